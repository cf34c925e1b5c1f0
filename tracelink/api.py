"""What notebooks and commands call: load, inspect, collectives, clocks, write, merge, convert."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tracelink import plugins
from tracelink.clock.clock import read_clocks
from tracelink.engine import Engine
from tracelink.errors import Finding, Severity, UsageError, in_order
from tracelink.io.sources import Discovery, Paths, Source, Watch, discover_inputs, engine_for
from tracelink.io.targets import (
    DirectoryTarget,
    FileTarget,
    PrefixTarget,
    StreamTarget,
    Target,
    check_folder,
    check_not_read,
    target_of,
)
from tracelink.model.clock import ClockMode, Clocks
from tracelink.model.graph import EventGraph
from tracelink.model.job import Job
from tracelink.model.selection import Selection, View
from tracelink.model.trace import SourceInfo
from tracelink.pipeline.gathering import assemble, read_job
from tracelink.pipeline.reading import Task, by_rank, nothing_readable, read, tasks_of, with_ranks
from tracelink.plugins import (
    ConversionSpec,
    Copying,
    Drawing,
    Files,
    Output,
    Writer,
)

if TYPE_CHECKING:
    from tracelink.open.forecast import Foresee

# Files rewritten as others with everything that is in them, or drawn, where such a conversion is installed.


@dataclass(frozen=True, slots=True)
class Converted:
    """What a conversion made, and everything that did not fit."""

    outputs: Sequence[Output]

    @property
    def findings(self) -> list[Finding]:
        """The findings on all files."""
        return [finding for output in self.outputs for finding in output.findings]


def rewritten(
    discovery: Discovery, output: str, to: str | None, engine: Engine, view: View | None = None
) -> Converted | None:
    """The one source rewritten as the format `to`, else as what the output's name means; None if that takes a graph.

    Where that is a drawing it shows all sources, as `view` says.
    """
    possible = _possible(output, to)
    for name, spec in possible.items():
        if spec.draws:
            return _drawn(name, spec.reads, discovery, output, engine, view or View())
    if view:
        drawings = (spec for spec in plugins.conversions().values() if spec.draws)
        known = ", ".join(f"x{suffix}" for spec in drawings for suffix in spec.suffixes)
        raise UsageError(
            f"{to or output} is no drawing: --depth, --window, --ranks and --limit say what a drawing shows",
            advice=f"Leave them out, or name the output {known}.",
        )
    if not possible or len(discovery.sources) != 1:
        return None
    (task,) = _tasks(discovery, list(discovery.findings))
    for name, spec in possible.items():
        if task.reader.name in spec.reads:
            return Converted(plugins.conversion(name).convert(task.source, target_of(output), engine))
    if to and to not in plugins.writers():
        takes = " or ".join(name for spec in possible.values() for name in spec.reads)
        raise UsageError(
            f"{to} is made of {takes}, and {task.source.path} is {task.reader.name}",
            advice="Name another format; see: tracelink formats",
        )
    return None


def _drawn(
    name: str, reads: Sequence[str], discovery: Discovery, output: str, engine: Engine, view: View
) -> Converted:
    """One picture of all sources that can be drawn."""
    findings = list(discovery.findings)
    tasks = _tasks(discovery, findings)
    fitting = [task.source for task in tasks if task.reader.name in reads]
    others = [task for task in tasks if task.reader.name not in reads]
    if not fitting:
        takes = " or ".join(reads)
        raise UsageError(
            f"{name} is drawn of {takes}, and {others[0].source.path} is {others[0].reader.name}",
            advice="Make .et files of it first: tracelink merge INPUT --to chakra -o job",
        )
    findings += [
        Finding(
            Severity.WARNING,
            "other_format",
            f"{task.source.path} is not drawn: it is {task.reader.name}.",
            source=task.source.path,
        )
        for task in others
    ]
    drawing = plugins.conversion(name)
    assert isinstance(drawing, Drawing)
    first, *rest = drawing.draw(fitting, target_of(output), engine, view)
    return Converted([replace(first, findings=(*findings, *first.findings)), *rest])


def _tasks(discovery: Discovery, findings: list[Finding]) -> list[Task]:
    tasks = tasks_of(discovery, findings)
    if not tasks:
        raise nothing_readable(findings)
    return tasks


def _possible(output: str, to: str | None) -> dict[str, ConversionSpec]:
    """The conversions that the user may mean, by the format that they make, the longest suffix first."""
    known = plugins.conversions()
    if to:
        return {to: known[to]} if to in known else {}
    lengths = {
        name: max((len(suffix) for suffix in spec.suffixes if output.endswith(suffix)), default=0)
        for name, spec in known.items()
    }
    fitting = sorted((name for name in known if lengths[name]), key=lambda name: -lengths[name])
    return {name: known[name] for name in fitting}


# What a set of inputs is, without making one job of them.


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a set of inputs is: each source, and everything that is wrong with them."""

    sources: Sequence[SourceInfo]
    findings: Sequence[Finding]
    inputs: Sequence[Source] = ()
    """Behind each of the sources, to be opened again."""

    def of_format(self, name: str) -> list[Source]:
        """The inputs of a format."""
        return [one for info, one in zip(self.sources, self.inputs, strict=False) if info.format == name]


def inspect_sources(discovery: Discovery, engine: Engine) -> Inspection:
    """Reads every source for what it is; raises `UnreadableError` if none can be read."""
    findings = list(discovery.findings)
    tasks = by_rank(tasks_of(discovery, findings), engine, findings)
    outer, inner = engine.split(len(tasks))

    def work(task: Task) -> tuple[SourceInfo | None, Sequence[Finding]]:
        result = read(task, inner)
        return (None, [result]) if isinstance(result, Finding) else (result.source, result.findings)

    results = outer.map(work, tasks)
    of_reading = [finding for info, some in results if info is None for finding in some]
    pairs = [(info, task.source) for (info, _), task in zip(results, tasks, strict=True) if info]
    if not pairs:
        raise nothing_readable([*findings, *of_reading])
    findings += of_reading
    inputs = [source for _, source in pairs]
    infos = with_ranks([info for info, _ in pairs], inputs, findings)
    findings += [finding for info, some in results if info for finding in some]
    return Inspection(infos, in_order(findings), inputs)


# What harnesses call: load inputs into a graph, write a graph, or both.


DEFAULT_FORMAT = "perfetto-json"
WORTH_FORECASTING = 200_000
"""Events of a job: fewer are written in less than a second, before a forecast could be read."""
USUAL_NAME = "merged"
"""How outputs are called that nobody named, before the suffix."""


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge made: the job that was read, the files, and everything that did not fit."""

    job: Job
    outputs: Sequence[Output]
    foreseen: Sequence[Finding] = ()
    """What was known before anything was written."""

    @property
    def findings(self) -> list[Finding]:
        """The findings of reading and linking, then those of writing."""
        written = [finding for output in self.outputs for finding in output.findings]
        return [*self.job.findings, *self.foreseen, *written]


def load(
    paths: Paths = (),
    *,
    et: Paths = (),
    kineto: Paths = (),
    fr: Paths = (),
    rank_of: Mapping[str, int] | None = None,
    jobs: int | None = None,
    watch: Watch | None = None,
    clock: str | os.PathLike[str] | Clocks = ClockMode.HOST,
    selection: Selection | None = None,
) -> EventGraph:
    """Reads files, directories, globs and archives, of formats found by looking inside, into one graph.

    `et`, `kineto` and `fr` say what a path holds; `rank_of` gives the rank of a file, by its path or name.
    `jobs` bounds the processes that work at once; `watch` is told the bytes dealt with so far.
    `clock` is a `ClockMode`, a file that `tracelink clocks --json` wrote, or clocks that are known.
    `selection` cuts the graph to some ranks, a time, some steps or some kinds of events.
    """
    discovery = discover_inputs(paths, et=et, kineto=kineto, fr=fr, rank_of=rank_of)
    job = read_job(discovery, engine_for(jobs, watch), clock=_clock(clock), selection=selection)
    return assemble(job)


def collectives(
    paths: Paths = (),
    *,
    et: Paths = (),
    kineto: Paths = (),
    fr: Paths = (),
    rank_of: Mapping[str, int] | None = None,
    jobs: int | None = None,
    watch: Watch | None = None,
    clock: str | os.PathLike[str] | Clocks = ClockMode.HOST,
    selection: Selection | None = None,
) -> Job:
    """Reads the same inputs as `load` for what the ranks did together; the events themselves are not kept."""
    discovery = discover_inputs(paths, et=et, kineto=kineto, fr=fr, rank_of=rank_of)
    engine = engine_for(jobs, watch)
    return read_job(discovery, engine, clock=_clock(clock), selection=selection, with_events=False)


def clocks(
    paths: Paths = (),
    *,
    et: Paths = (),
    kineto: Paths = (),
    fr: Paths = (),
    rank_of: Mapping[str, int] | None = None,
    jobs: int | None = None,
    watch: Watch | None = None,
    clock: str | os.PathLike[str] | Clocks = ClockMode.HOST,
) -> Clocks:
    """The offsets between the clocks of the ranks, as `tracelink clocks` prints them."""
    job = collectives(
        paths, et=et, kineto=kineto, fr=fr, rank_of=rank_of, jobs=jobs, watch=watch, clock=clock
    )
    return Clocks({rank.rank: rank.clock for rank in job.ranks}, job.findings, job.sources)


def inspect(
    paths: Paths = (),
    *,
    et: Paths = (),
    kineto: Paths = (),
    fr: Paths = (),
    rank_of: Mapping[str, int] | None = None,
    jobs: int | None = None,
    watch: Watch | None = None,
) -> Inspection:
    """Reads the same inputs as `load` and says what they are, without making one job of them."""
    discovery = discover_inputs(paths, et=et, kineto=kineto, fr=fr, rank_of=rank_of)
    return inspect_sources(discovery, engine_for(jobs, watch))


def write(
    graph: EventGraph,
    output: str | os.PathLike[str] = "merged.json",
    *,
    to: str | None = None,
    options: Mapping[str, str] | None = None,
    jobs: int | None = None,
    watch: Watch | None = None,
) -> list[Output]:
    """Writes a graph: in the format `to`, else in the one that the output's name means. `-` is standard output."""
    path = os.fspath(output)
    job, writer = Job.of(graph), _writer(path, to, options)
    return writer.write(job, _target(writer, path, len(job.ranks)), engine_for(jobs, watch))


def merge(
    paths: Paths = (),
    *,
    output: str | os.PathLike[str] | None = None,
    to: str | None = None,
    options: Mapping[str, str] | None = None,
    et: Paths = (),
    kineto: Paths = (),
    fr: Paths = (),
    rank_of: Mapping[str, int] | None = None,
    jobs: int | None = None,
    watch: Watch | None = None,
    clock: str | os.PathLike[str] | Clocks = ClockMode.HOST,
    selection: Selection | None = None,
    foresee: Foresee | None = None,
) -> Merged:
    """Loads, links and writes in one go, with few ranks in memory at a time.

    `output` is by default `merged` with the suffix of the format. `options` are those of the writer, such as
    {"variant": "astra-sim"} of chakra. `foresee` is told how large a timeline will be, before it is written.
    """
    writer = _writer(None if output is None else os.fspath(output), to, options)
    spec = plugins.writer_spec(writer.name)
    default = USUAL_NAME + ("" if spec.files == Files.WITH_PREFIX else spec.suffixes[0])
    path = default if output is None else os.fspath(output)
    if spec.files == Files.ONE:
        check_folder(path)
    copying = isinstance(writer, Copying)
    if copying and selection and selection.cuts:
        raise UsageError(
            f"{writer.name} copies files as they are: --window, --steps and --only cannot cut inside them",
            advice="Leave them out, choose --ranks, or write another format: --to",
        )
    discovery = discover_inputs(paths, et=et, kineto=kineto, fr=fr, rank_of=rank_of)
    engine = engine_for(jobs, watch)
    job = read_job(discovery, engine, clock=_clock(clock), selection=selection, with_events=not copying)
    return _merged(job, path, _of_files(writer, discovery), options or {}, engine, foresee)


def convert(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    to: str | None = None,
    options: Mapping[str, str] | None = None,
    view: View | None = None,
    jobs: int | None = None,
    watch: Watch | None = None,
    foresee: Foresee | None = None,
) -> Merged | Converted:
    """Writes one input in another format: as it is where a conversion between the two exists, else as a graph.

    `view` says what a drawing shows. `foresee` is told how large a timeline will be, before it is written.
    """
    discovery = discover_inputs(path)
    check_not_read(os.fspath(output), [source.path for source in discovery.sources])
    engine = engine_for(jobs, watch)
    if converted := rewritten(discovery, os.fspath(output), to, engine, view):
        return converted
    writer = _writer(os.fspath(output), to, options)
    job = read_job(discovery, engine, clock=ClockMode.HOST, selection=None)
    return _merged(job, os.fspath(output), _of_files(writer, discovery), options or {}, engine, foresee)


def _writer(path: str | None, to: str | None, options: Mapping[str, str] | None) -> Writer:
    return plugins.writer(to or _format_of(path or ""), options)


def _of_files(writer: Writer, discovery: Discovery) -> Writer:
    return writer.of_files(discovery.sources) if isinstance(writer, Copying) else writer


def _merged(
    job: Job,
    path: str,
    writer: Writer,
    options: Mapping[str, str],
    engine: Engine,
    foresee: Foresee | None,
) -> Merged:
    target = _target(writer, path, len(job.ranks))
    check_not_read(target.path(), [source.path for source in job.sources])
    warned: Sequence[Finding] = ()
    if job.events >= WORTH_FORECASTING:
        from tracelink.open.forecast import foreseen

        warned = foreseen(job, writer, target.path(), options, engine, foresee)
    return Merged(job, writer.write(job, target, engine), warned)


def _target(writer: Writer, path: str, ranks: int) -> Target:
    """Where the files of a writer go."""
    target, spec = target_of(path), plugins.writer_spec(writer.name)
    if isinstance(target, StreamTarget) or spec.files == Files.ONE:
        return target
    if spec.files == Files.WITH_PREFIX:
        return PrefixTarget.of(target, spec.suffixes[0], ranks)
    return DirectoryTarget(target.location) if isinstance(target, FileTarget) and ranks > 1 else target


def _clock(said: str | os.PathLike[str] | Clocks) -> ClockMode | Clocks:
    if isinstance(said, Clocks):
        return said
    if said in list(ClockMode):
        return ClockMode(said)
    return read_clocks(said)


def _format_of(path: str) -> str:
    """The format with the longest suffix of the path; the default if the path has no suffix, or exists."""
    known = [
        (len(suffix), name, suffix) for name, spec in plugins.writers().items() for suffix in spec.suffixes
    ]
    fitting = [(length, name) for length, name, suffix in known if path.endswith(suffix)]
    strange = Path(path).suffix
    if not fitting and strange and not Path(path).exists():
        raise UsageError(
            f"no format has names that end in {strange}",
            advice=f"Name the file {', '.join(sorted(suffix for *_, suffix in known))}, or say the format: --to",
        )
    return max(fitting)[1] if fitting else DEFAULT_FORMAT
