"""What could not be written of a rank as it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tracelink.converters.chakra_json.device_work import DeviceWork
from tracelink.converters.chakra_json.names import RENAMED, current_name, is_refused
from tracelink.converters.chakra_json.plan import Plan
from tracelink.findings import Finding, Severity


def without_trace(rank: int) -> Finding:
    """A rank that cannot be written at all."""
    text = f"rank {rank} has no execution trace and is not written. Add its file with --et."
    return Finding(Severity.ERROR, "no_execution_trace", text)


def findings_of(plan: Plan, others: Sequence[str]) -> Iterator[Finding]:
    """One finding for each kind of thing that is missing from the file or differs in it."""
    path = plan.part.graph.sources[plan.source].path
    yield from _missing_work(path, plan.work)
    yield from _names(path, plan)
    if not plan.linked:
        text = f"{path}: no node is linked to a profile; the file has no times. Add the profile of this rank."
        yield Finding(Severity.WARNING, "without_times", text, source=path)
    if plan.tree.moved:
        text = (
            f"{path}: {plan.tree.moved} nodes name a parent that is missing or stands inside them; they "
            "stand under the operator around them in the profile, else under the root of their thread."
        )
        yield Finding(Severity.INFO, "parent_replaced", text, plan.tree.moved, path)
    if plan.hand_overs.circular:
        count = plan.hand_overs.circular
        text = f"{path}: {count} nodes would wait in a circle for nodes of other threads; they do not wait."
        yield Finding(Severity.INFO, "circular_wait", text, count, path)
    if others:
        text = f"{path}: this rank has other execution traces, which are not written: {', '.join(others)}."
        yield Finding(Severity.WARNING, "other_execution_traces", text, len(others), path)


def _missing_work(path: str, work: DeviceWork) -> Iterator[Finding]:
    total = len(work.rows) + work.unlaunched + work.unlinked
    for reason, count, why in (
        ("without_launch", work.unlaunched, "no recorded call launched them"),
        ("without_node", work.unlinked, "no node of the execution trace encloses their launch"),
    ):
        if count:
            text = f"{path}: {count} of {total} kernels, copies and memsets are not written: {why}."
            yield Finding(Severity.WARNING, reason, text, count, path)


def _names(path: str, plan: Plan) -> Iterator[Finding]:
    codes, counts = np.unique(plan.part.events.name[plan.work.rows], return_counts=True)
    names = [plan.part.graph.strings[code] for code in codes.tolist()]
    renamed = [(name, int(count)) for name, count in zip(names, counts, strict=True) if RENAMED[0] in name]
    refused = [
        (name, int(count))
        for name, count in zip(names, counts, strict=True)
        if is_refused(current_name(name))
    ]
    if renamed:
        text = (
            f"{path}: {RENAMED[0]} is written as {RENAMED[1]}, as newer NCCL calls it: "
            "chakra_converter knows only that."
        )
        count = sum(count for _, count in renamed)
        yield Finding(Severity.INFO, "renamed_kernel", text, count, path, renamed[0][0])
    if refused:
        text = (
            f"{path}: chakra_converter will refuse the file, for it cannot tell the operation of kernels "
            f"such as {refused[0][0]}."
        )
        count = sum(count for _, count in refused)
        yield Finding(Severity.WARNING, "refused_kernel", text, count, path, refused[0][0])
