"""What `--json` prints of jobs: a struct for each command's document; their JSON Schemas are in `tracelink.schemas`.

A key that is left out where it has no value is `UNSET`. `compile`, `diagnose`, `inspect` and `validate` have modules of
their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from tracelink.model import findings
from tracelink.model.findings import Severity

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
RankNumber = Annotated[int, Meta(ge=0)]
Ranks = Annotated[Sequence[RankNumber], Meta(extra_json_schema={"uniqueItems": True})]
Nanoseconds = Annotated[int, Meta(ge=0)]
Text = Annotated[str, Meta(min_length=1)]


class Finding(Struct, frozen=True):
    """One kind of problem or note in one source."""

    severity: Severity
    reason: Text
    count: Positive
    source: Annotated[str | None, Meta(description="Path of the source; empty if it is about all of them.")]
    message: Text
    example: str | UnsetType = UNSET


def findings_of(findings: Sequence[findings.Finding]) -> list[Finding]:
    """Findings, as every document has them."""
    return [
        Finding(
            finding.severity,
            finding.reason,
            finding.count,
            finding.source,
            finding.message,
            finding.example or UNSET,
        )
        for finding in findings
    ]
