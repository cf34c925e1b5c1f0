"""One file rewritten as another with everything that is in it, where a conversion between the two is installed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tracelink import plugins
from tracelink.engine import Engine
from tracelink.errors import UsageError
from tracelink.findings import Finding
from tracelink.plugins import Conversion, Output
from tracelink.reading import nothing_readable, tasks_of
from tracelink.sources import Discovery
from tracelink.targets import target_of


@dataclass(frozen=True, slots=True)
class Converted:
    """What a conversion made, and everything that did not fit."""

    outputs: Sequence[Output]

    @property
    def findings(self) -> list[Finding]:
        """The findings on all files."""
        return [finding for output in self.outputs for finding in output.findings]


def rewritten(discovery: Discovery, output: str, to: str | None, engine: Engine) -> Converted | None:
    """The one source rewritten as the format `to`, else as what the output's name means; None if that takes a graph."""
    possible = _possible(output, to)
    if not possible or len(discovery.sources) != 1:
        return None
    findings = list(discovery.findings)
    tasks = tasks_of(discovery, findings)
    if not tasks:
        raise nothing_readable(findings)
    (task,) = tasks
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
