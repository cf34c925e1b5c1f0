"""Files rewritten as others with everything that is in them, or drawn, where such a conversion is installed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tracelink import plugins
from tracelink.engine import Engine
from tracelink.errors import UsageError
from tracelink.findings import Finding, Severity
from tracelink.plugins import Conversion, Drawing, Output
from tracelink.reading import Task, nothing_readable, tasks_of
from tracelink.sources import Discovery
from tracelink.targets import target_of
from tracelink.view import View


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
    drawings = [conversion for conversion in possible if isinstance(conversion, Drawing)]
    if drawings:
        return _drawn(drawings[0], discovery, output, engine, view or View())
    if view:
        known = ", ".join(f"x{suffix}" for name in _drawings() for suffix in name.suffixes)
        raise UsageError(
            f"{to or output} is no drawing: --depth, --window, --ranks and --limit say what a drawing shows",
            advice=f"Leave them out, or name the output {known}.",
        )
    if not possible or len(discovery.sources) != 1:
        return None
    (task,) = _tasks(discovery, list(discovery.findings))
    found = [conversion for conversion in possible if task.reader.name in conversion.reads]
    if found:
        return Converted(found[0].convert(task.source, target_of(output), engine))
    if to and to not in plugins.writers():
        takes = " or ".join(name for conversion in possible for name in conversion.reads)
        raise UsageError(
            f"{to} is made of {takes}, and {task.source.path} is {task.reader.name}",
            advice="Name another format; see: tracelink formats",
        )
    return None


def _drawn(drawing: Drawing, discovery: Discovery, output: str, engine: Engine, view: View) -> Converted:
    """One picture of all sources that can be drawn."""
    findings = list(discovery.findings)
    tasks = _tasks(discovery, findings)
    fitting = [task.source for task in tasks if task.reader.name in drawing.reads]
    others = [task for task in tasks if task.reader.name not in drawing.reads]
    if not fitting:
        takes = " or ".join(drawing.reads)
        raise UsageError(
            f"{drawing.name} is drawn of {takes}, and {others[0].source.path} is {others[0].reader.name}",
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
    first, *rest = drawing.draw(fitting, target_of(output), engine, view)
    return Converted([replace(first, findings=(*findings, *first.findings)), *rest])


def _tasks(discovery: Discovery, findings: list[Finding]) -> list[Task]:
    tasks = tasks_of(discovery, findings)
    if not tasks:
        raise nothing_readable(findings)
    return tasks


def _drawings() -> list[Drawing]:
    return [one for one in plugins.working(plugins.conversions()) if isinstance(one, Drawing)]


def _possible(output: str, to: str | None) -> list[Conversion]:
    """The conversions that the user may mean, those of the longest suffix first."""
    if to:
        return list(plugins.working({to: plugins.conversions()[to]})) if to in plugins.conversions() else []
    fitting = [
        (max(map(len, suffixes)), conversion)
        for conversion in plugins.working(plugins.conversions())
        if (suffixes := [suffix for suffix in conversion.suffixes if output.endswith(suffix)])
    ]
    return [conversion for _, conversion in sorted(fitting, key=lambda found: -found[0])]
