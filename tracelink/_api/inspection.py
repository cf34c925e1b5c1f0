"""What inputs are: format, rank, time and problems of each source, and what Chakra traces contain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from msgspec import UNSET, UnsetType

from tracelink._io.engine import Engine
from tracelink._io.sources import Discovery
from tracelink._join.reading import inspected, nothing_readable, tasks_of, to_inspect, with_ranks
from tracelink._model.fields import Doc
from tracelink._model.findings import Finding, in_order
from tracelink._model.results import Result
from tracelink._model.trace import Source, SourceInfo
from tracelink.converters.chakra.census import Census
from tracelink.plugins import Content, Inspected


class InspectedSource(Source, frozen=True):
    """One input, and what it contains."""

    chakra: Annotated[Census | UnsetType, Doc("Chakra traces only: what they contain.")] = UNSET

    @classmethod
    def of(cls, source: Source, chakra: Census | UnsetType = UNSET) -> InspectedSource:
        """The source with its census."""
        values = {name: getattr(source, name) for name in Source.__struct_fields__}
        return cls(**values, chakra=chakra)


class Inspection(Result, frozen=True):
    """The sources of a set of inputs, and what is wrong with them."""

    sources: Sequence[InspectedSource]
    findings: Sequence[Finding]

    drawn_by = "tracelink._api.inspection_report"


def inspect_sources(discovery: Discovery, engine: Engine) -> Inspection:
    """Reads every source for what it is; raises `UnreadableError` if none can be read."""
    findings = list(discovery.findings)
    tasks = to_inspect(tasks_of(discovery, findings), engine, findings)
    outer, inner = engine.split(len(tasks))
    sampled = [task for task in tasks if task.content is Content.METRICS]
    tasks = [task for task in tasks if task not in sampled]
    results = outer.map(lambda task: inspected(task, inner), tasks, shared=[task.source for task in tasks])
    of_reading = [result for result in results if isinstance(result, Finding)]
    found = [each for result in results if not isinstance(result, Finding) for each in result]
    if not found and not sampled:
        raise nothing_readable([*findings, *of_reading], discovery.paths)
    findings += of_reading
    infos = with_ranks([each.info for each in found], [each.source for each in found], findings)
    findings += [finding for each in found for finding in each.findings]
    if sampled:
        from tracelink._join.metrics import inspected as inspected_metrics

        devices = [each.devices for each in found]
        of_metrics = inspected_metrics(sampled, engine, (infos, devices), discovery.metrics, findings)
        if not infos and not of_metrics:
            raise nothing_readable(findings, discovery.paths)
        infos += [info for info, _ in of_metrics]
    censuses = _censuses(infos, found, engine, findings)
    sources = [InspectedSource.of(info, censuses.get(info.path, UNSET)) for info in infos]
    return Inspection(sources, in_order(findings))


def _censuses(
    infos: Sequence[SourceInfo], found: Sequence[Inspected], engine: Engine, findings: list[Finding]
) -> Mapping[str, Census]:
    """The censuses of the Chakra traces by path; what is wrong with these traces is added to the findings."""
    traces = [each.source for each in found if each.content is not None]
    if not traces:
        return {}
    from tracelink.converters.chakra.validation.validate import inspect_traces

    censuses, problems = inspect_traces(traces, {each.info.path: each.content for each in found}, engine)
    findings += problems
    return censuses
