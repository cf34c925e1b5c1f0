"""Inputs to tables: the event graph, the sources, the collectives and the clocks of a job."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Unpack

from tracelink._io.sources import Paths
from tracelink._join.job_reader import assemble, read_job
from tracelink._match.clock import clock_choice
from tracelink._model.clock import ClockMode, Clocks
from tracelink._model.graph import EventGraph
from tracelink._model.job import Job
from tracelink._model.selection import Selection
from tracelink._run.reading import ReadOptions, engine_of, inputs_of

if TYPE_CHECKING:
    from tracelink._api.inspection import Inspection


def load(
    paths: Paths = (),
    *,
    clock: str | os.PathLike[str] | Clocks = ClockMode.HOST,
    selection: Selection | None = None,
    **reading: Unpack[ReadOptions],
) -> EventGraph:
    """Reads traces into one event graph: all ranks, linked, on one clock.

    Args:
        paths: Files, directories, globs and archives; `-` is standard input. Formats are found by looking inside.
        clock: How the clocks of ranks are corrected: "host" (ranks of one host share a clock), "collectives" (every
            rank has its own), "none" (no correction), a file written by `tracelink clocks --json`, or known `Clocks`.
        selection: Keeps only some ranks, a time window, some steps or some kinds of events; see `Selection`.
        **reading: What is read, as what, and where the work runs: see `ReadOptions`.

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
    discovery = inputs_of(paths, reading)
    job = read_job(discovery, engine_of(reading), clock=clock_choice(clock), selection=selection)
    return assemble(job)


def collectives(
    paths: Paths = (),
    *,
    clock: str | os.PathLike[str] | Clocks = ClockMode.HOST,
    selection: Selection | None = None,
    **reading: Unpack[ReadOptions],
) -> Job:
    """Reads traces for what ranks did together, without keeping their events.

    It needs much less memory than `load`.

    Args:
        paths: Files, directories, globs and archives; `-` is standard input. Formats are found by looking inside.
        clock: How the clocks of ranks are corrected: "host" (ranks of one host share a clock), "collectives" (every
            rank has its own), "none" (no correction), a file written by `tracelink clocks --json`, or known `Clocks`.
        selection: Keeps only some ranks, a time window, some steps or some kinds of events; see `Selection`.
        **reading: What is read, as what, and where the work runs: see `ReadOptions`.

    Returns:
        A job with `collectives`, `participations` and `messages`, but without events.

    Raises:
        UsageError: A path does not exist, or an argument is invalid.
        UnreadableError: No source can be read. A file that is damaged or of an unknown format is skipped and reported
            as a finding as long as another one can be read.
        RankConflictError: Two files are of the same rank, or sources disagree about the rank of a file.
    """
    discovery = inputs_of(paths, reading)
    chosen = engine_of(reading)
    return read_job(discovery, chosen, clock=clock_choice(clock), selection=selection, with_events=False)


def clocks(
    paths: Paths = (),
    *,
    clock: str | os.PathLike[str] | Clocks = ClockMode.HOST,
    **reading: Unpack[ReadOptions],
) -> Clocks:
    """Estimates the offset of each rank's clock, as `tracelink clocks` prints it.

    Args:
        paths: Files, directories, globs and archives; `-` is standard input. Formats are found by looking inside.
        clock: How the clocks of ranks are corrected: "host" (ranks of one host share a clock), "collectives" (every
            rank has its own), "none" (no correction), a file written by `tracelink clocks --json`, or known `Clocks`.
        **reading: What is read, as what, and where the work runs: see `ReadOptions`.

    Returns:
        The clock of each rank with bounds of its offset, the findings, and the sources. `load`, `collectives` and
        `merge` take it as `clock`.

    Raises:
        UsageError: A path does not exist, or an argument is invalid.
        UnreadableError: No source can be read. A file that is damaged or of an unknown format is skipped and reported
            as a finding as long as another one can be read.
        RankConflictError: Two files are of the same rank, or sources disagree about the rank of a file.
    """
    job = collectives(paths, clock=clock, **reading)
    return Clocks.of((rank.clock for rank in job.ranks), job.findings, _mode(clock))


def _mode(clock: str | os.PathLike[str] | Clocks) -> str:
    return clock.mode if isinstance(clock, Clocks) else os.fspath(clock)


def inspect(
    paths: Paths = (),
    **reading: Unpack[ReadOptions],
) -> Inspection:
    """Reads traces for what they are, without making one job of them.

    Args:
        paths: Files, directories, globs and archives; `-` is standard input. Formats are found by looking inside.
        **reading: What is read, as what, and where the work runs: see `ReadOptions`.

    Returns:
        The sources with format, rank, host, time and size, what Chakra traces contain, and findings. A rank that two
        files claim is a finding here, not an error.

    Raises:
        UsageError: A path does not exist, or an argument is invalid.
        UnreadableError: No source can be read. A file that is damaged or of an unknown format is skipped and reported
            as a finding as long as another one can be read.
    """
    discovery = inputs_of(paths, reading)
    from tracelink._api.inspection import inspect_sources

    return inspect_sources(discovery, engine_of(reading))
