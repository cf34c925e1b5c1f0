"""What a set of inputs is, without making one job of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tracelink.assignment import surveyed
from tracelink.engine import Engine
from tracelink.findings import Finding, in_order
from tracelink.reading import Task, by_rank, nothing_readable, read, tasks_of
from tracelink.sources import Discovery, Source
from tracelink.trace import SourceInfo


@dataclass(frozen=True, slots=True)
class Survey:
    """What a set of inputs is: each source, and everything that is wrong with them."""

    sources: Sequence[SourceInfo]
    findings: Sequence[Finding]
    inputs: Sequence[Source] = ()
    """Behind each of the sources, to be opened again."""

    def of_format(self, name: str) -> list[Source]:
        """The inputs of a format."""
        return [one for info, one in zip(self.sources, self.inputs, strict=False) if info.format == name]


def survey_sources(discovery: Discovery, engine: Engine) -> Survey:
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
    infos = surveyed([info for info, _ in pairs], inputs, findings)
    findings += [finding for info, some in results if info for finding in some]
    return Survey(infos, in_order(findings), inputs)
