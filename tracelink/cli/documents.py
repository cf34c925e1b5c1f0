"""The structs that --json prints; schemas are generated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tracelink.converters.chakra.validation import RULES, Rule, Validation, Violation
from tracelink.diagnosis.model import Diagnosis, Evidence, Lateness, Problem, Sighting, Standing
from tracelink.errors import Finding
from tracelink.model.records import Entry

if TYPE_CHECKING:
    from tracelink.converters.chakra.census import Census


# What did not fit, as every `--json` prints it.


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


# What `inspect --json` says of a Chakra trace.


CYCLE_SHOWN = 100


def census_document(census: Census) -> Document:
    """What is in the trace of one rank."""
    longest = census.longest
    return {
        "nodes": {role.value: count for role, count in census.nodes.items()},
        "communication": [
            {
                "kind": row.kind,
                "group": row.group,
                "count": row.count,
                "bytes": row.bytes,
                "without_size": row.sizeless,
            }
            for row in census.communicated
        ],
        "longest_chain": {
            "ns": longest.total_ns,
            "compute_ns": longest.compute_ns,
            "communication_ns": longest.communication_ns,
            "host_ns": longest.host_ns,
            "nodes": longest.nodes,
        },
        "device_nodes": census.device_nodes,
        "device_nodes_after_device": census.device_nodes_after_device,
        "missing_dependencies": census.missing,
        "nodes_without_order": census.unordered,
        "cycle": list(census.cycle[:CYCLE_SHOWN]),
    }


# What `tracelink diagnose --json` prints.


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


# What `validate --json` prints.


def validate_document(validation: Validation) -> Document:
    """The verdict, the files, each violation that is listed, and how often each rule is broken."""
    return {
        "valid": validation.valid,
        "files": [
            {
                "path": file.path,
                "rank": file.rank,
                "nodes": file.nodes,
                "variant": file.variant.value,
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
