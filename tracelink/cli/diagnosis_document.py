"""What `tracelink diagnose --json` prints."""

from __future__ import annotations

from typing import Any

from tracelink.cli.documents import Document
from tracelink.diagnosis import Diagnosis, Problem


def diagnosis_document(diagnosis: Diagnosis) -> Document:
    """The result of `diagnose`."""
    return {
        "verdict": diagnosis.verdict,
        "problems": [_problem(problem) for problem in diagnosis.problems],
        "ranks": {
            "present": list(diagnosis.present),
            "missing": list(diagnosis.missing),
            "unreadable": list(diagnosis.unreadable),
        },
    }


def _problem(problem: Problem) -> dict[str, Any]:
    return {
        "kind": problem.kind.value,
        "group": problem.group,
        "sequence": problem.sequence,
        "operation": problem.operation,
        "culprits": list(problem.culprits),
        "waiting": list(problem.waiting),
        "message": problem.message,
    }
