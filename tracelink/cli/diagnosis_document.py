"""What `tracelink diagnose --json` prints."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tracelink.cli.finding_document import Document, findings_document
from tracelink.diagnosis import Diagnosis, Entry, Evidence, Lateness, Problem, Sighting, Standing


def diagnosis_document(diagnosis: Diagnosis, limit: int | None = None) -> Document:
    """The result of `diagnose`, with at most `limit` problems; 0 and None are no limit."""
    shown = diagnosis.problems[: limit or None]
    return {
        "verdict": diagnosis.verdict,
        "problems": [_problem(problem) for problem in shown],
        "more_problems": len(diagnosis.problems) - len(shown),
        "ranks": {
            "present": list(diagnosis.present),
            "missing": list(diagnosis.missing),
            "unreadable": list(diagnosis.unreadable),
        },
        "checked": asdict(diagnosis.checked),
        "standings": [_standing(standing) for standing in diagnosis.standings],
        "lateness": [_lateness(lateness) for lateness in diagnosis.lateness],
        "notes": list(diagnosis.notes),
        "findings": findings_document(diagnosis.findings),
    }


def _problem(problem: Problem) -> dict[str, Any]:
    return {
        "kind": problem.kind.value,
        "group": problem.group,
        "description": problem.description,
        "sequence": problem.sequence,
        "operation": problem.operation,
        "culprits": list(problem.culprits),
        "waiting": list(problem.waiting),
        "message": problem.message,
        "advice": problem.advice,
        "tie": problem.tie,
        "proven": problem.proven,
        "count": problem.count,
        "waited_ns": problem.waited_ns,
        "cycle": [asdict(link) for link in problem.cycle],
        "evidence": [_evidence(evidence) for evidence in problem.evidence],
        "sightings": [_sighting(sighting) for sighting in problem.sightings],
    }


def _evidence(evidence: Evidence) -> dict[str, Any]:
    return {
        "rank": evidence.rank,
        "role": evidence.role.value,
        "entries": [_entry(entry) for entry in evidence.entries],
    }


def _entry(entry: Entry) -> dict[str, Any]:
    return {
        "group": entry.group,
        "description": entry.description,
        "sequence": entry.sequence,
        "operation": entry.operation,
        "input_sizes": entry.input_sizes,
        "output_sizes": entry.output_sizes,
        "input_types": entry.input_types,
        "output_types": entry.output_types,
        "state": entry.state,
        "retired": entry.retired,
        "created_ns": entry.created_ns,
        "timeout_ms": entry.timeout_ms,
        "frames": [asdict(frame) for frame in entry.frames],
    }


def _sighting(sighting: Sighting) -> dict[str, Any]:
    return asdict(sighting) | {"role": sighting.role.value}


def _standing(standing: Standing) -> dict[str, Any]:
    return asdict(standing) | {"stage": standing.stage.value, "ranks": list(standing.ranks)}


def _lateness(lateness: Lateness) -> dict[str, Any]:
    return asdict(lateness)
