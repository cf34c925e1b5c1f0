"""What did not fit, as every `--json` prints it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracelink.findings import Finding

Document = dict[str, Any]


def findings_document(findings: Sequence[Finding]) -> list[Document]:
    """Findings, as every result has them."""
    return [
        {
            "severity": finding.severity.value,
            "reason": finding.reason,
            "count": finding.count,
            "source": finding.source,
            "message": finding.message,
        }
        | ({"example": finding.example} if finding.example else {})
        for finding in findings
    ]
