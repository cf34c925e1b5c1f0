"""`tracelink.what_if`: how long the steps of a job would take if something were different."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import Unpack

import numpy as np

from tracelink._io.engine import Engine
from tracelink._io.sources import Paths
from tracelink._join.job_reader import read_job
from tracelink._match.clock import clock_choice
from tracelink._model.call_tree import callers, innermost, outside
from tracelink._model.clock import ClockMode, Clocks
from tracelink._model.columns import UNKNOWN
from tracelink._model.errors import UsageError
from tracelink._model.events import EventKind
from tracelink._model.graph import EventGraph, Excerpt
from tracelink._model.job import Job, Part
from tracelink._run.reading import ReadOptions, engine_of, inputs_of
from tracelink._time.model.results import WhatIf
from tracelink._time.path.job import joined
from tracelink._time.path.questions import EXAMPLES, answered, asked, not_answered
from tracelink._time.path.rank import RankPieces, contracted
from tracelink._time.path.times import unusable_times


def what_if(
    traces: Paths | EventGraph | Job,
    *questions: str,
    clock: str | os.PathLike[str] | Clocks = ClockMode.HOST,
    **reading: Unpack[ReadOptions],
) -> list[WhatIf]:
    """Returns how long the steps would take if communication, kernels or a rank were faster, by replay of the job.

    Args:
        traces: Files, directories, globs and archives; or what `load` returns.
        questions: What is different: "communication free", "kernel NAME 2x", "operator NAME 1.5x", "rank 3 on time";
            several changes at once are separated by commas. NAME is a full name or a part of it.
        clock: How the clocks of ranks are corrected; see `load`.
        **reading: What is read, as what, and where the work runs: see `ReadOptions`.

    Returns:
        An answer to each question, with the error of the replay of the unchanged job. An error of more than 3 % is no
        answer.

    Raises:
        UsageError: There is no question, one is not understood, names a rank, kernel or operator that the job does not
            have, or no rank has a profile.
        UnreadableError: No source can be read.

    Example:
        (answer,) = tracelink.what_if("traces/", "communication free")
        answer.share
    """
    if not asked(questions):
        raise UsageError("no what-if question", advice=f"Ask, for example, {EXAMPLES}.")
    chosen = engine_of(reading)
    return answers_of(_job_of(traces, chosen, reading, clock), questions, chosen)


def _job_of(
    traces: Paths | EventGraph | Job,
    engine: Engine,
    options: ReadOptions,
    clock: str | os.PathLike[str] | Clocks,
) -> Job:
    if isinstance(traces, EventGraph):
        return Job.of(traces)
    if isinstance(traces, Job):
        return traces
    return read_job(inputs_of(traces, options), engine, clock=clock_choice(clock))


def answers_of(job: Job, questions: Sequence[str], engine: Engine) -> list[WhatIf]:
    """The answers of a job that was read."""

    def work(part: Part) -> RankPieces:
        return contracted(part.load(), job, part.rank)

    return answers_of_ranks(engine.map(work, job.parts), job, questions)


def answers_of_ranks(parts: Sequence[RankPieces], job: Job, questions: Sequence[str]) -> list[WhatIf]:
    """The answers of the contracted graphs of all ranks."""
    if not questions:
        return []
    if reason := unusable_times(parts, job):
        return not_answered(questions, reason)
    pieces = joined(parts, job)
    if not len(pieces.begin) or pieces.begin[-1] <= pieces.begin[0]:
        raise UsageError("no rank has a profile, so nothing can be replayed")
    return answered(pieces, questions, lambda name: _operators_around(job, name))


def _operators_around(job: Job, name: str) -> list[str]:
    """The outermost operators around those of a name, in full or as a part of it; the most frequent first."""
    counts: Counter[str] = Counter()
    for part in job.parts:
        graph = part.load()
        operator = graph.events.of_kind(EventKind.OPERATOR)
        names = {code for code, text in enumerate(graph.strings) if name.lower() in text.lower()}
        caller = callers(Excerpt(graph))
        outer = outside(caller, innermost(caller, operator))
        row = np.flatnonzero(operator & np.isin(graph.events.name, list(names)) & (outer != UNKNOWN))
        while len(row):
            top = row[outer[row] == UNKNOWN]
            counts.update(graph.strings[code] for code in graph.events.name[top].tolist())
            row = outer[row[outer[row] != UNKNOWN]]
    return [text for text, _ in counts.most_common()]
