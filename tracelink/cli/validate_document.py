"""What `validate --json` prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracelink.converters.chakra.validation import RULES, Rule, Validation, Violation

Document = dict[str, Any]


def validate_document(validation: Validation) -> Document:
    """The verdict, the files, each violation that is listed, and how often each rule is broken."""
    return {
        "valid": validation.valid,
        "files": [
            {
                "path": file.path,
                "rank": file.rank,
                "nodes": file.nodes,
                "profile": file.profile.value,
                "bytes": file.bytes,
            }
            for file in validation.files
        ],
        "violations": [_violation(one) for one in validation.violations],
        "warnings": [_violation(one) for one in validation.warnings],
        "rules": _rules(validation.counts, "violation") + _rules(validation.warning_counts, "warning"),
    }


def _violation(one: Violation) -> Document:
    return {
        "rule": one.rule.value,
        "rank": one.rank,
        "node": one.node,
        "message": one.message,
        "file": one.file,
    }


def _rules(counts: Mapping[Rule, int], severity: str) -> list[Document]:
    return [
        {
            "rule": rule.value,
            "severity": severity,
            "count": count,
            "invariants": RULES[rule].ids.split(", "),
            "breaks": RULES[rule].breaks,
            "advice": RULES[rule].advice,
        }
        for rule, count in counts.items()
    ]
