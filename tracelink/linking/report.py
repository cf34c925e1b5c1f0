"""What a linker found: edges, and how many of those it could have found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tracelink.events import Edges
from tracelink.findings import Finding

STATED = "stated by the source"
"""The note on edges that no linker had to find."""


@dataclass(frozen=True, slots=True)
class LinkReport:
    """How one relation was linked on one rank: `linked` of `candidates`, and why the others were not."""

    relation: str
    linked: int
    candidates: int
    unlinked: Mapping[str, int] = field(default_factory=dict)
    """Reason to count; the counts of the reasons explain `candidates - linked`."""
    notes: Mapping[str, int] = field(default_factory=dict)
    """Anything else worth counting: events left out of the candidates, ids that agree, names that differ."""


@dataclass(frozen=True, slots=True)
class Links:
    """The edges of one relation on one rank, with the report on them."""

    edges: Edges
    report: LinkReport
    findings: tuple[Finding, ...] = ()
