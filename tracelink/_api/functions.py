"""One question to the traces of a job: each function is the method of `Job` of the same name, as for `httpx.get`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Unpack

from tracelink._api.job import Job, clocks_of
from tracelink._io.sources import Paths
from tracelink._join.job_reader import Reading, read_job
from tracelink._model.clock import Clocks
from tracelink._model.graph import EventGraph
from tracelink._model.job import LinkedJob
from tracelink._model.tables import Columns
from tracelink._run.reading import ReadOptions

if TYPE_CHECKING:
    from tracelink._api.inspection import Inspection
    from tracelink._api.outputs import Merged
    from tracelink._compile.model import CompileReport
    from tracelink._hang.facts.model import Diagnosis
    from tracelink._join.forecast import OnForecast
    from tracelink._sql.session import QueryResult
    from tracelink._sql.shipped import Value
    from tracelink._time.compare.model import Comparison
    from tracelink._time.model.results import Summary, WhatIf
    from tracelink.converters.chakra.validation.rules import Validation

Traces = Paths | EventGraph
"""Files, directories, globs and archives, also in remote stores; or what `load` returns."""


def load(paths: Paths = (), **options: Unpack[ReadOptions]) -> EventGraph:
    """Reads traces into one event graph: all ranks, linked, on one clock.

    Args:
        paths: Files, directories, globs and archives; `-` is standard input. Formats are found by looking inside.
        **options: See `ReadOptions`.

    Returns:
        The event graph. Its `findings` report what was skipped, unmatched or inconsistent.

    Raises:
        UsageError: A path does not exist, or an argument is invalid.
        UnreadableError: No source can be read. A file that is damaged or of an unknown format is skipped and reported
            as a finding as long as another one can be read.
        RankConflictError: Two files are of the same rank, or sources disagree about the rank of a file.

    Example:
        graph = tracelink.load("traces/", clock="collectives")
        graph.to_pandas("collectives")
    """
    return Job(paths, **options).graph


def collectives(paths: Paths = (), **options: Unpack[ReadOptions]) -> Columns:
    """Returns the collectives, matched across ranks, without keeping events: it needs less memory than `load`.

    The arguments and errors are those of `load`.

    Example:
        tracelink.collectives("traces/").to_polars()
    """
    return linked_job(paths, **options).table("collectives")


def clocks(paths: Paths = (), **options: Unpack[ReadOptions]) -> Clocks:
    """Returns the clock of each rank with bounds of its offset; other functions take them as `clock`.

    The arguments and errors are those of `load`.
    """
    return clocks_of(linked_job(paths, **options), options)


def linked_job(paths: Paths = (), **options: Unpack[ReadOptions]) -> LinkedJob:
    """Reads traces for what ranks did together; events are needed only to cut a part out of them."""
    reading = Reading.of(paths, options)
    return read_job(reading, with_events=reading.selection.cuts)


def inspect(paths: Paths = (), **options: Unpack[ReadOptions]) -> Inspection:
    """Returns what the inputs are, without making one job of them: see `Job.inspect`, and `load` for the arguments."""
    return Job(paths, **options).inspect()


def summary(
    paths: Traces = (), *, what_if: Sequence[str] = (), shapes: bool = False, **options: Unpack[ReadOptions]
) -> Summary:
    """Returns where the time went, on every rank and step: see `Job.summary`, and `load` for the other arguments.

    Example:
        tracelink.summary("traces/", steps="3-5").step_time.p50
    """
    return Job(paths, **options).summary(what_if=what_if, shapes=shapes)


def what_if(paths: Traces, *questions: str, **options: Unpack[ReadOptions]) -> list[WhatIf]:
    """Returns how long the steps would take if something were faster: see `Job.what_if`, and `load`.

    Example:
        (answer,) = tracelink.what_if("traces/", "communication free")
        answer.share
    """
    return Job(paths, **options).what_if(*questions)


def diff(
    before: Traces,
    after: Traces,
    *,
    gates: Sequence[str] = (),
    anyway: bool = False,
    run: int | None = None,
    **options: Unpack[ReadOptions],
) -> Comparison:
    """Compares two runs of a job: see `Job.diff`, and `load` for the other arguments.

    Example:
        tracelink.diff("monday/", "friday/", gates=["step_time > +5%"]).causes
    """
    return Job(before, **options).diff(after, gates=gates, anyway=anyway, run=run)


def diagnose(
    paths: Paths = (), *, before: Paths = (), hung: bool = False, **options: Unpack[ReadOptions]
) -> Diagnosis:
    """Finds out why a job hangs: see `Job.diagnose`, and `load` for the other arguments."""
    return Job(paths, **options).diagnose(before=before, hung=hung)


def compile(  # noqa: A001  the name of the command
    paths: Paths = (), *, run: int | None = None, **options: Unpack[ReadOptions]
) -> CompileReport:
    """Reads the logs of torch.compile: see `Job.compile`, and `load` for the other arguments."""
    return Job(paths, **options).compile(run=run)


def validate(
    paths: Paths,
    *,
    groups: str | os.PathLike[str] | None = None,
    variant: str | None = None,
    limit: int | None = 100,
    **options: Unpack[ReadOptions],
) -> Validation:
    """Checks whether simulators can load `.et` files: see `Job.validate`, and `load` for the other arguments."""
    return Job(paths, **options).validate(groups=groups, variant=variant, limit=limit)


def query(
    paths: Traces,
    sql: str = "",
    *,
    name: str = "",
    parameters: Mapping[str, Value] | None = None,
    arguments: bool = False,
    memory: int | None = None,
    **options: Unpack[ReadOptions],
) -> QueryResult:
    """Runs SQL on the tables of a job: see `Job.query`, and `load` for the other arguments.

    Example:
        tracelink.query("job.duckdb", "SELECT name, count(*) FROM events GROUP BY name").to_pandas()
    """
    with Job(paths, **options) as job:
        return job.query(sql, name=name, parameters=parameters, arguments=arguments, memory=memory)


def merge(
    paths: Traces = (),
    output: str | os.PathLike[str] | None = None,
    *,
    to: str | None = None,
    options: Mapping[str, str] | None = None,
    depth: int | None = None,
    limit: int | None = None,
    on_forecast: OnForecast | None = None,
    resume: bool = False,
    **reading: Unpack[ReadOptions],
) -> Merged:
    """Reads, links and writes traces, with few ranks in memory at a time: see `Job.merge`, and `load` for `reading`.

    Some formats are made of the file itself, with everything in it: a Chakra trace as JSON and back, the timeline of
    tracelink as JSON, and drawings of Chakra traces. All others are made of the linked events.

    Example:
        tracelink.merge("traces/", output="merged.json", clock="none")
    """
    from tracelink._api.outputs import merge_inputs

    if isinstance(paths, EventGraph):
        return Job(paths, **reading).merge(output, to=to, options=options, on_forecast=on_forecast)
    path = None if output is None else os.fspath(output)
    return merge_inputs(
        lambda: Reading.of(paths, reading),
        path,
        to,
        options,
        on_forecast,
        depth=depth,
        limit=limit,
        resume=resume,
    )
