"""Inputs to tables: the event graph, the sources, the collectives and the clocks of a job."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tracelink.clock.clock import clock_choice
from tracelink.engines import EngineChoice, Watch, engine_for
from tracelink.io.sources import Paths, discover_inputs
from tracelink.model.clock import ClockMode, Clocks
from tracelink.model.graph import EventGraph
from tracelink.model.job import Job
from tracelink.model.selection import Selection
from tracelink.pipeline.job_reader import assemble, read_job

if TYPE_CHECKING:
    from tracelink.api.inspection import Inspection
    from tracelink.model.metrics import Metrics


def load(
    paths: Paths = (),
    *,
    et: Paths = (),
    kineto: Paths = (),
    fr: Paths = (),
    rank_of: Mapping[str, int] | None = None,
    max_unpacked: int | None = None,
    metrics: Metrics | None = None,
    include: Sequence[str] = (),
    jobs: int | None = None,
    engine: EngineChoice = None,
    watch: Watch | None = None,
    clock: str | os.PathLike[str] | Clocks = ClockMode.HOST,
    selection: Selection | None = None,
) -> EventGraph:
    """Reads traces into one event graph: all ranks, linked, on one clock.

    Args:
        paths: Files, directories, globs and archives; `-` is standard input. Formats are found by looking inside.
        et: Paths that contain execution traces.
        kineto: Paths that contain Kineto profiles.
        fr: Paths that contain flight-recorder dumps.
        rank_of: The rank of some files, by path or name, such as `{"odd.json": 3}`; it overrules their content.
        max_unpacked: The most bytes of an input once it is uncompressed; by default 64 GB.
        metrics: Zone, start and interval of metrics that do not contain them, and ranks of devices; see `Metrics`.
        include: What readers leave out by default, such as `osrt` (calls of the operating system of Nsight Systems).
        jobs: The number of processes that work at once; by default one for each core.
        engine: Where the work runs: by default in processes of this machine; "dask", the address of a Dask scheduler
            such as "dask://host:8786", or a `distributed.Client`.
        watch: Is called with the total number of bytes processed so far, as work goes on.
        clock: How the clocks of ranks are corrected: "host" (ranks of one host share a clock), "collectives" (every
            rank has its own), "none" (no correction), a file written by `tracelink clocks --json`, or known `Clocks`.
        selection: Keeps only some ranks, a time window, some steps or some kinds of events; see `Selection`.

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
    discovery = discover_inputs(
        paths,
        et=et,
        kineto=kineto,
        fr=fr,
        rank_of=rank_of,
        max_unpacked=max_unpacked,
        metrics=metrics,
        include=include,
    )
    job = read_job(discovery, engine_for(jobs, watch, engine), clock=clock_choice(clock), selection=selection)
    return assemble(job)


def collectives(
    paths: Paths = (),
    *,
    et: Paths = (),
    kineto: Paths = (),
    fr: Paths = (),
    rank_of: Mapping[str, int] | None = None,
    max_unpacked: int | None = None,
    metrics: Metrics | None = None,
    include: Sequence[str] = (),
    jobs: int | None = None,
    engine: EngineChoice = None,
    watch: Watch | None = None,
    clock: str | os.PathLike[str] | Clocks = ClockMode.HOST,
    selection: Selection | None = None,
) -> Job:
    """Reads traces for what ranks did together, without keeping their events.

    It needs much less memory than `load`.

    Args:
        paths: Files, directories, globs and archives; `-` is standard input. Formats are found by looking inside.
        et: Paths that contain execution traces.
        kineto: Paths that contain Kineto profiles.
        fr: Paths that contain flight-recorder dumps.
        rank_of: The rank of some files, by path or name, such as `{"odd.json": 3}`; it overrules their content.
        max_unpacked: The most bytes of an input once it is uncompressed; by default 64 GB.
        metrics: Zone, start and interval of metrics that do not contain them, and ranks of devices; see `Metrics`.
        include: What readers leave out by default, such as `osrt` (calls of the operating system of Nsight Systems).
        jobs: The number of processes that work at once; by default one for each core.
        engine: Where the work runs: by default in processes of this machine; "dask", the address of a Dask scheduler
            such as "dask://host:8786", or a `distributed.Client`.
        watch: Is called with the total number of bytes processed so far, as work goes on.
        clock: How the clocks of ranks are corrected: "host" (ranks of one host share a clock), "collectives" (every
            rank has its own), "none" (no correction), a file written by `tracelink clocks --json`, or known `Clocks`.
        selection: Keeps only some ranks, a time window, some steps or some kinds of events; see `Selection`.

    Returns:
        A job with `collectives`, `participations` and `messages`, but without events.

    Raises:
        UsageError: A path does not exist, or an argument is invalid.
        UnreadableError: No source can be read. A file that is damaged or of an unknown format is skipped and reported
            as a finding as long as another one can be read.
        RankConflictError: Two files are of the same rank, or sources disagree about the rank of a file.
    """
    discovery = discover_inputs(
        paths,
        et=et,
        kineto=kineto,
        fr=fr,
        rank_of=rank_of,
        max_unpacked=max_unpacked,
        metrics=metrics,
        include=include,
    )
    chosen = engine_for(jobs, watch, engine)
    return read_job(discovery, chosen, clock=clock_choice(clock), selection=selection, with_events=False)


def clocks(
    paths: Paths = (),
    *,
    et: Paths = (),
    kineto: Paths = (),
    fr: Paths = (),
    rank_of: Mapping[str, int] | None = None,
    max_unpacked: int | None = None,
    metrics: Metrics | None = None,
    include: Sequence[str] = (),
    jobs: int | None = None,
    engine: EngineChoice = None,
    watch: Watch | None = None,
    clock: str | os.PathLike[str] | Clocks = ClockMode.HOST,
) -> Clocks:
    """Estimates the offset of each rank's clock, as `tracelink clocks` prints it.

    Args:
        paths: Files, directories, globs and archives; `-` is standard input. Formats are found by looking inside.
        et: Paths that contain execution traces.
        kineto: Paths that contain Kineto profiles.
        fr: Paths that contain flight-recorder dumps.
        rank_of: The rank of some files, by path or name, such as `{"odd.json": 3}`; it overrules their content.
        max_unpacked: The most bytes of an input once it is uncompressed; by default 64 GB.
        metrics: Zone, start and interval of metrics that do not contain them, and ranks of devices; see `Metrics`.
        include: What readers leave out by default, such as `osrt` (calls of the operating system of Nsight Systems).
        jobs: The number of processes that work at once; by default one for each core.
        engine: Where the work runs: by default in processes of this machine; "dask", the address of a Dask scheduler
            such as "dask://host:8786", or a `distributed.Client`.
        watch: Is called with the total number of bytes processed so far, as work goes on.
        clock: How the clocks of ranks are corrected: "host" (ranks of one host share a clock), "collectives" (every
            rank has its own), "none" (no correction), a file written by `tracelink clocks --json`, or known `Clocks`.

    Returns:
        The clock of each rank with bounds of its offset, the findings, and the sources. `load`, `collectives` and
        `merge` take it as `clock`.

    Raises:
        UsageError: A path does not exist, or an argument is invalid.
        UnreadableError: No source can be read. A file that is damaged or of an unknown format is skipped and reported
            as a finding as long as another one can be read.
        RankConflictError: Two files are of the same rank, or sources disagree about the rank of a file.
    """
    job = collectives(
        paths,
        et=et,
        kineto=kineto,
        fr=fr,
        rank_of=rank_of,
        max_unpacked=max_unpacked,
        metrics=metrics,
        include=include,
        jobs=jobs,
        engine=engine,
        watch=watch,
        clock=clock,
    )
    return Clocks.of((rank.clock for rank in job.ranks), job.findings, _mode(clock))


def _mode(clock: str | os.PathLike[str] | Clocks) -> str:
    return clock.mode if isinstance(clock, Clocks) else os.fspath(clock)


def inspect(
    paths: Paths = (),
    *,
    et: Paths = (),
    kineto: Paths = (),
    fr: Paths = (),
    rank_of: Mapping[str, int] | None = None,
    max_unpacked: int | None = None,
    metrics: Metrics | None = None,
    include: Sequence[str] = (),
    jobs: int | None = None,
    engine: EngineChoice = None,
    watch: Watch | None = None,
) -> Inspection:
    """Reads traces for what they are, without making one job of them.

    Args:
        paths: Files, directories, globs and archives; `-` is standard input. Formats are found by looking inside.
        et: Paths that contain execution traces.
        kineto: Paths that contain Kineto profiles.
        fr: Paths that contain flight-recorder dumps.
        rank_of: The rank of some files, by path or name, such as `{"odd.json": 3}`; it overrules their content.
        max_unpacked: The most bytes of an input once it is uncompressed; by default 64 GB.
        metrics: Zone, start and interval of metrics that do not contain them, and ranks of devices; see `Metrics`.
        include: What readers leave out by default, such as `osrt` (calls of the operating system of Nsight Systems).
        jobs: The number of processes that work at once; by default one for each core.
        engine: Where the work runs: by default in processes of this machine; "dask", the address of a Dask scheduler
            such as "dask://host:8786", or a `distributed.Client`.
        watch: Is called with the total number of bytes processed so far, as work goes on.

    Returns:
        The sources with format, rank, host, time and size, what Chakra traces contain, and findings. A rank that two
        files claim is a finding here, not an error.

    Raises:
        UsageError: A path does not exist, or an argument is invalid.
        UnreadableError: No source can be read. A file that is damaged or of an unknown format is skipped and reported
            as a finding as long as another one can be read.
    """
    discovery = discover_inputs(
        paths,
        et=et,
        kineto=kineto,
        fr=fr,
        rank_of=rank_of,
        max_unpacked=max_unpacked,
        metrics=metrics,
        include=include,
    )
    from tracelink.api.inspection import inspect_sources

    return inspect_sources(discovery, engine_for(jobs, watch, engine))
