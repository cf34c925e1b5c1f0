"""Whether the dumps that were taken hold what shows a fault: recorders forget, and dumps go missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tracelink.samples.generate.recorded_plan import Plan, Snapshot, Truth

Dumps = Mapping[int, Mapping[str, Any]]

STOPS = frozenset({"never_joined", "never_joined_any", "lagging", "died"})
"""Faults that show in those who wait."""

FEWEST_FOR_A_MAJORITY = 2


def with_evidence(truth: Truth, plan: Plan, snapshot: Snapshot, dumps: Dumps) -> Truth:
    """The truth, with whether these dumps can tell it."""
    culprits = set(truth.culprits)
    if truth.fault == "straggler":
        return replace(truth, evident=culprits <= set(dumps) and len(dumps) > 1)
    if truth.cycle:
        kept = all(_holds(dumps, who, group, number, truth) for group, number, who, _ in truth.cycle)
        return replace(truth, evident=kept)
    holding = {rank for rank in truth.members if _holds(dumps, rank, truth.group, truth.sequence, truth)}
    if truth.point_to_point:
        return replace(truth, evident=culprits <= holding and set(truth.waiting) <= set(dumps))
    others = holding - culprits
    if truth.fault in STOPS:
        # After a timeout gloo calls everything retired: only the culprit's own dump shows what it left out.
        ended = plan.blocks and snapshot.when == "timed_out"
        return replace(truth, evident=bool(others) and (not ended or culprits <= set(dumps)))
    if truth.fault == "timed_out":
        return replace(truth, evident=bool(others) and (snapshot.when == "timed_out" or plan.timing))
    tie = truth.tie or len(others) < FEWEST_FOR_A_MAJORITY
    return replace(truth, evident=culprits <= holding and bool(others), tie=tie)


def _holds(dumps: Dumps, rank: int, group: str, number: int | None, truth: Truth) -> bool:
    key = "p2p_seq_id" if truth.point_to_point else "collective_seq_id"
    return rank in dumps and any(
        entry["process_group"][0] == group and entry[key] == number for entry in dumps[rank]["entries"]
    )
