"""What could not be written of a rank as it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracelink.converters.chakra.plan import Plan
from tracelink.findings import Finding, Severity


def without_trace(rank: int) -> Finding:
    """A rank that cannot be written at all."""
    text = f"rank {rank} has no execution trace and is not written. Add its file with --et."
    return Finding(Severity.ERROR, "no_execution_trace", text)


def findings_of(plan: Plan, others: Sequence[str]) -> Iterator[Finding]:
    """One finding for each kind of thing that is missing from the file or differs in it."""
    path = plan.part.graph.sources[plan.source].path
    total = len(plan.work.rows) + plan.work.unlaunched + plan.work.unlinked
    for reason, count, why in (
        ("without_launch", plan.work.unlaunched, "no recorded call launched them"),
        ("without_node", plan.work.unlinked, "no node of the execution trace encloses their launch"),
    ):
        if count:
            text = f"{path}: {count} of {total} kernels, copies and memsets are not written: {why}."
            yield Finding(Severity.WARNING, reason, text, count, path)
    if not plan.linked:
        text = f"{path}: no node is linked to a profile; the file has no times. Add the profile of this rank."
        yield Finding(Severity.WARNING, "without_times", text, source=path)
    if plan.tree.moved:
        text = (
            f"{path}: {plan.tree.moved} nodes name a parent that is missing or stands inside them; they "
            "stand under the operator around them in the profile, else under the root of their thread."
        )
        yield Finding(Severity.INFO, "parent_replaced", text, plan.tree.moved, path)
    if others:
        text = f"{path}: this rank has other execution traces, which are not written: {', '.join(others)}."
        yield Finding(Severity.WARNING, "other_execution_traces", text, len(others), path)
