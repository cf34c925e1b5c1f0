"""Inputs to tables: the event graph, the sources, the collectives and the clocks of a job."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from tracelink.clock.clock import clock_choice
from tracelink.engines import EngineChoice, Watch, engine_for
from tracelink.io.engine import Engine
from tracelink.io.sources import Discovery, Paths, Source, discover_inputs
from tracelink.model.clock import ClockMode, Clocks
from tracelink.model.findings import Finding, in_order
from tracelink.model.graph import EventGraph
from tracelink.model.job import Job
from tracelink.model.selection import Selection
from tracelink.model.text import counted
from tracelink.model.trace import SourceInfo
from tracelink.pipeline.job_reader import assemble, read_job
from tracelink.pipeline.reading import inspected, nothing_readable, tasks_of, to_inspect, with_ranks
from tracelink.plugins import MetricsReader

if TYPE_CHECKING:
    from tracelink.model.metrics import Metrics


class Inspection(Struct, frozen=True):
    """The sources of a set of inputs, and their findings."""

    sources: Sequence[SourceInfo]
    findings: Sequence[Finding]
    inputs: Sequence[Source] = ()
    """For each source, what it is read from."""
    contents: Mapping[str, object] = {}
    """What readers found in some sources, by path."""

    def __repr__(self) -> str:
        from tracelink.model import results

        parts = {"sources": results.formats(self.sources), "findings": results.problems(self.findings)}
        return results.as_text(f"Inspection: {counted(len(self.sources), 'source')}", parts)

    def of_format(self, name: str) -> list[Source]:
        """The inputs of a format."""
        return [
            source for info, source in zip(self.sources, self.inputs, strict=False) if info.format == name
        ]


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
        The sources with format, rank, host, time and size, and findings. A rank that two files claim is a finding
        here, not an error.

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
    return inspect_sources(discovery, engine_for(jobs, watch, engine))


def inspect_sources(discovery: Discovery, engine: Engine) -> Inspection:
    """Reads every source for what it is; raises `UnreadableError` if none can be read."""
    findings = list(discovery.findings)
    tasks = to_inspect(tasks_of(discovery, findings), engine, findings)
    outer, inner = engine.split(len(tasks))
    sampled = [task for task in tasks if isinstance(task.reader, MetricsReader)]
    tasks = [task for task in tasks if task not in sampled]
    results = outer.map(lambda task: inspected(task, inner), tasks, shared=[task.source for task in tasks])
    of_reading = [result for result in results if isinstance(result, Finding)]
    found = [each for result in results if not isinstance(result, Finding) for each in result]
    if not found and not sampled:
        raise nothing_readable([*findings, *of_reading], discovery.paths)
    findings += of_reading
    inputs = [each.source for each in found]
    infos = with_ranks([each.info for each in found], inputs, findings)
    findings += [finding for each in found for finding in each.findings]
    if sampled:
        from tracelink.pipeline.metrics import inspected as inspected_metrics

        devices = [each.devices for each in found]
        of_metrics = inspected_metrics(sampled, engine, (infos, devices), discovery.metrics, findings)
        if not infos and not of_metrics:
            raise nothing_readable(findings, discovery.paths)
        infos += [info for info, _ in of_metrics]
        inputs += [source for _, source in of_metrics]
    contents = {each.info.path: each.content for each in found}
    return Inspection(infos, in_order(findings), inputs, contents)
