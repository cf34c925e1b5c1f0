"""What a user should know of a rank that was written: what is left out, and what the order rests on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tracelink.analysis.ordering.order import Order
from tracelink.converters.chakra.orders import HOST_WAIT, STREAM_WAIT
from tracelink.converters.chakra.rank_nodes import RankNodes
from tracelink.converters.chakra.schema import CollectiveType
from tracelink.converters.chakra.simulated import INSTEAD
from tracelink.events import EventKind
from tracelink.findings import Finding, Severity

NOT_NODES = {
    EventKind.PYTHON: "Python functions",
    EventKind.RUNTIME: "calls of the runtime",
    EventKind.GPU_ANNOTATION: "annotations on devices",
    EventKind.SYNCHRONIZATION: "records of waits",
    EventKind.OVERHEAD: "overheads",
    EventKind.SPAN: "spans",
    EventKind.INSTANT: "instants",
    EventKind.MEMORY: "changes of memory",
    EventKind.RECORD: "entries of the recorder",
    EventKind.OTHER: "others",
}
"""Their time is in the operators around them, or they take none."""

UNUSABLE = {
    "operation": "which operation they are is not recorded, or Chakra has no word for it",
    "size": "how many bytes they have is not recorded",
    "peer": "with which rank is not known",
}


def findings_of(path: str, number: int, rank: RankNodes) -> Iterator[Finding]:
    """One finding for each kind of thing."""
    of = f"rank {number}"
    yield from _nothing(path, of, rank)
    yield from _not_nodes(path, of, rank)
    for reason, count in rank.unusable.items():
        text = f"{of}: {count:,} communications are written as computation: {UNUSABLE[reason]}."
        yield Finding(Severity.WARNING, "not_communication", text, count, path)
    yield from _unseen(path, of, rank)
    yield from _simulated(path, of, rank)
    yield from _without_times(path, of, rank)
    for name, count in rank.plan.waiting.against_order.items():
        text = f"{of}: {count:,} dependencies ({name}) contradict the order of starts and are left out."
        yield Finding(Severity.INFO, "against_order", text, count, path)
    yield from _device_order(path, of, rank)
    yield from _waits(path, of, rank)


def _nothing(path: str, of: str, rank: RankNodes) -> Iterator[Finding]:
    if rank.empty:
        text = (
            f"{of}: nothing of it is a node, so its file has one that is idle: simulators need a first one."
        )
        yield Finding(Severity.WARNING, "nothing_to_write", text, source=path)


def _not_nodes(path: str, of: str, rank: RankNodes) -> Iterator[Finding]:
    events = rank.plan.part.events
    written = np.zeros(len(events), np.bool_)
    written[rank.plan.spots.row] = True
    counts = np.bincount(events.kind[~written], minlength=len(EventKind)).tolist()
    parts = [f"{counts[kind]:,} {words}" for kind, words in NOT_NODES.items() if counts[kind]]
    if parts:
        total = sum(counts[kind] for kind in NOT_NODES)
        text = f"{of}: what is no operator and no work on a device has no node: {', '.join(parts)}."
        yield Finding(Severity.INFO, "not_nodes", text, total, path)


def _unseen(path: str, of: str, rank: RankNodes) -> Iterator[Finding]:
    missing = len(rank.plan.communications) - int(np.count_nonzero(rank.plan.spots.communication >= 0))
    if missing:
        text = (
            f"{of}: {missing:,} communications have no node: only the recorder tells of them, "
            "outside what was profiled."
        )
        yield Finding(Severity.INFO, "outside_profile", text, missing, path)


def _simulated(path: str, of: str, rank: RankNodes) -> Iterator[Finding]:
    limited = rank.simulated
    if limited is None:
        return
    for kind, count in limited.replaced.items():
        instead = INSTEAD[CollectiveType[kind]].name
        text = f"{of}: {count:,} {kind} are written as {instead}, for ASTRA-sim cannot run them."
        yield Finding(Severity.WARNING, "replaced_collective", text, count, path)
    if limited.alone:
        text = (
            f"{of}: {limited.alone:,} communications of a rank with itself are written as computation: "
            "ASTRA-sim would wait for them for ever."
        )
        yield Finding(Severity.INFO, "alone", text, limited.alone, path)
    if limited.incomplete:
        text = (
            f"{of}: {limited.incomplete:,} communications are written as computation, for files of other ranks do not "
            "have them: ASTRA-sim would wait for ever. Record all ranks for the same time, or cut it: --steps"
        )
        yield Finding(Severity.WARNING, "incomplete_communication", text, limited.incomplete, path)
    if limited.equalized:
        text = (
            f"{of}: {limited.equalized:,} communications have another size on other ranks, and are written with the "
            "largest: ASTRA-sim would wait for ever."
        )
        yield Finding(Severity.WARNING, "size_differs", text, limited.equalized, path)
    if limited.enlarged:
        text = (
            f"{of}: {limited.enlarged:,} communications of hardly any bytes are written with more: "
            "ASTRA-sim cannot split them."
        )
        yield Finding(Severity.INFO, "enlarged", text, limited.enlarged, path)


def _without_times(path: str, of: str, rank: RankNodes) -> Iterator[Finding]:
    host = rank.plan.host
    if len(host) and not host.timed.any():
        text = f"{of}: no operator has a time, so nodes have no durations. Add the profile of this rank: --kineto"
        yield Finding(Severity.WARNING, "without_times", text, len(host), path)


def _device_order(path: str, of: str, rank: RankNodes) -> Iterator[Finding]:
    nodes = rank.nodes
    device = rank.plan.spots.work[rank.plan.turns.spot] >= 0
    if rank.simulated is not None or rank.gaps is not None:
        return
    total = int(np.count_nonzero(device))
    if not total:
        return
    owner, place = nodes.data.owners, nodes.places(nodes.data)
    following = np.unique(owner[device[owner] & device[place]])
    streams = len(np.unique(rank.plan.stream[rank.plan.stream >= 0]))
    text = (
        f"{of}: {len(following):,} of {total:,} kernels, copies and memsets wait for another one, "
        f"on {streams:,} streams."
    )
    yield Finding(Severity.INFO, "device_order", text, len(following), path)


def _waits(path: str, of: str, rank: RankNodes) -> Iterator[Finding]:
    for name, words in ((STREAM_WAIT, "streams for streams"), (HOST_WAIT, "the host for devices")):
        order: Order | None = rank.orders.get(name)
        inferred = order.counts.get("inferred", 0) if order else 0
        if inferred:
            text = (
                f"{of}: {inferred:,} waits of {words} are inferred from calls and times, "
                "for the profiler did not record which stream was meant."
            )
            yield Finding(Severity.INFO, "inferred_waits", text, inferred, path)
