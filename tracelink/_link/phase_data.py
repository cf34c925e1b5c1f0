"""Annotations that only state data of a phase of torch.compile become arguments of the operator of that phase.

torch 2.13 records them as `dynamo_data: fn_name=step, compile_id=0/0`, at once after the operator `dynamo` began.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._model.columns import UNKNOWN, Bools, Int64s, scatter
from tracelink._model.communications import Calls, Communications
from tracelink._model.events import PHASE_DATA, TIMED, Edges, EventKind, Key, Relation
from tracelink._model.findings import Finding, Severity
from tracelink._model.trace import Payload, Payloads, RankTrace, SparsePayloads

_MEMBER = re.compile(r", (?=\w+=)")
"""Between two members; a value can contain a comma, too."""
_OF_PHASE = {"compile_id": Key.COMPILE_ID, "fn_name": Key.COMPILED_FUNCTION}
"""Members that the phase of a compile log has as well, with the same value."""


AnyTable = TypeVar("AnyTable", Communications, Calls)


class Folded(Struct, frozen=True):
    """A rank without these annotations."""

    trace: RankTrace
    edges: Edges
    calls: Calls
    findings: Sequence[Finding]


def fold_phase_data(trace: RankTrace, edges: Edges, calls: Calls) -> Folded:
    """The rank with the data of phases as arguments; `edges` are all edges.

    An annotation is kept if the operator around it is not the one that its name states. What is the same as
    a folded annotation, such as a node of the execution trace, is left out with it.
    """
    rows, operators = _annotations(trace, edges)
    known = operators != UNKNOWN
    findings = _kept(int(np.count_nonzero(~known)))
    rows, operators = rows[known], operators[known]
    if not len(rows):
        return Folded(trace, edges, calls, findings)
    removed = np.zeros(len(trace.events), np.bool_)
    removed[rows] = True
    same = edges.where(Relation.SAME)
    copies = np.unique(same.source[removed[same.target]])
    removed[copies] = True
    members = _members(trace, edges, rows, operators)
    payloads = _extended(trace, members)
    text = "annotations with data of compile phases are arguments of the operators of these phases"
    findings.append(Finding(Severity.INFO, "phase_data", text, len(rows)))
    if len(copies):
        text = "execution-trace nodes and NVTX ranges that are the same as such annotations are left out"
        findings.append(Finding(Severity.INFO, "phase_data_copies", text, len(copies)))
    renumbering = _Renumbering(removed)
    return Folded(
        renumbering.trace(replace(trace, payloads=payloads)),
        renumbering.edges(edges),
        renumbering.table(calls),
        findings,
    )


def _kept(count: int) -> list[Finding]:
    if not count:
        return []
    text = "annotations with data of compile phases stay slices: the operator around them has another name"
    return [Finding(Severity.INFO, "phase_data_without_operator", text, count)]


def _annotations(trace: RankTrace, edges: Edges) -> tuple[Int64s, Int64s]:
    """Annotations that only state data, and for each the operator of its phase, or UNKNOWN."""
    texts = trace.strings.texts()
    of_name = np.array([PHASE_DATA in text for text in texts], np.bool_)
    events, calls = trace.events, edges.where(Relation.CALLS)
    rows = np.flatnonzero(of_name[events.name] & events.of_kind(EventKind.ANNOTATION) & events.timed)
    callers = scatter(len(events), calls.target, calls.source)
    leads = np.zeros(len(events), np.bool_)
    leads[calls.source] = True
    operators = callers[rows]
    phase = [texts[code].partition(PHASE_DATA)[0] for code in events.name[rows].tolist()]
    around = ["" if row == UNKNOWN else texts[events.name[row]] for row in operators.tolist()]
    fits = [own in (name, name + TIMED) for own, name in zip(around, phase, strict=True)]
    return rows, np.where(np.array(fits, np.bool_) & ~leads[rows], operators, UNKNOWN)


# Arguments.


def _members(trace: RankTrace, edges: Edges, rows: Int64s, operators: Int64s) -> dict[int, dict[str, str]]:
    """For each operator its data, without what the phase of a compile log that is the same states."""
    texts, names = trace.strings.texts(), trace.events.name
    stated = _stated_by_logs(trace, edges, operators)
    members: dict[int, dict[str, str]] = {}
    for row, operator in zip(rows.tolist(), operators.tolist(), strict=True):
        own = members.setdefault(operator, {})
        for key, value in _data(texts[names[row]].partition(PHASE_DATA)[2]):
            if (operator, key, value) in stated:
                continue
            before = own.get(key, value)
            own[key] = value if before == value else f"{before}, {value}"
    return {operator: own for operator, own in members.items() if own}


def _data(text: str) -> Iterator[tuple[str, str]]:
    """`compile_id=0/0, fn_name=step` as pairs; a text of another form is a value itself."""
    for member in _MEMBER.split(text):
        key, equals, value = member.partition("=")
        yield (key, value) if equals else ("data", member)


def _stated_by_logs(trace: RankTrace, edges: Edges, operators: Int64s) -> set[tuple[int, str, str]]:
    """The members that phases of compile logs state of the operators that are the same as they are."""
    same = edges.where(Relation.SAME)
    same = same.take(
        (trace.events.kind[same.source] == EventKind.COMPILATION) & np.isin(same.target, operators)
    )
    texts, found = trace.strings.texts(), set()
    for member, key in _OF_PHASE.items():
        values = trace.key(key).dense(len(trace.events), UNKNOWN)[same.source]
        found |= {
            (operator, member, texts[value])
            for operator, value in zip(same.target.tolist(), values.tolist(), strict=True)
            if value != UNKNOWN
        }
    return found


def _extended(trace: RankTrace, members: Mapping[int, Mapping[str, str]]) -> list[Payloads]:
    """The payloads of all sources; those of operators with their members."""
    added: dict[int, dict[int, bytes]] = {}
    for operator, own in members.items():
        source, number = int(trace.events.source[operator]), int(trace.events.payload[operator])
        added.setdefault(source, {})[number] = msgspec.json.encode(own)[1:-1]
    return [
        ExtendedPayloads(payloads, np.array(sorted(added[source]), np.int64), added[source])
        if source in added
        else payloads
        for source, payloads in enumerate(trace.payloads)
    ]


class ExtendedPayloads(Struct, frozen=True):
    """Payloads of which some have further members."""

    payloads: Payloads
    numbers: Int64s
    """Those that have, sorted."""
    members: Mapping[int, bytes]

    def batches(self, first: int = 0, last: int | None = None) -> Iterator[tuple[int, Sequence[Payload]]]:
        """Yields runs of consecutive payloads."""
        for begin, texts in self.payloads.batches(first, last):
            yield begin, self._with_members(begin, texts)

    def near(self, numbers: Int64s) -> Iterator[tuple[int, Sequence[Payload]]]:
        """Yields runs of consecutive payloads that contain these numbers."""
        if not isinstance(self.payloads, SparsePayloads):
            if len(numbers):
                yield from self.batches(int(numbers[0]), int(numbers[-1]) + 1)
            return
        for begin, texts in self.payloads.near(numbers):
            yield begin, self._with_members(begin, texts)

    def _with_members(self, begin: int, texts: Sequence[Payload]) -> Sequence[Payload]:
        low, high = np.searchsorted(self.numbers, [begin, begin + len(texts)]).tolist()
        if low == high:
            return texts
        changed = list(texts)
        for number in self.numbers[low:high].tolist():
            changed[number - begin] = _joined(bytes(changed[number - begin]), self.members[number])
        return changed


def _joined(text: bytes, members: bytes) -> bytes:
    """A JSON object with more members."""
    own = text.strip().removeprefix(b"{").removesuffix(b"}").strip()
    return b"{%s%s%s}" % (own, b"," if own else b"", members)


# Rows.


class _Renumbering:
    """Tables after some events were removed."""

    def __init__(self, removed: Bools) -> None:
        self.kept = ~removed
        self.new = np.where(removed, UNKNOWN, np.cumsum(self.kept) - 1)

    def trace(self, trace: RankTrace) -> RankTrace:
        """The rank without the removed events, and what referred to them."""
        events = trace.events.take(self.kept)
        counts = Counter(trace.events.source[~self.kept].tolist())
        return replace(
            trace,
            events=events,
            sources=[
                replace(source, events=source.events - counts[number]) if counts[number] else source
                for number, source in enumerate(trace.sources)
            ],
            keys={
                key: replace(column.take(kept), rows=self.new[column.rows[kept]])
                for key, column in trace.keys.items()
                for kept in (self.kept[column.rows],)
            },
            communications=self.table(trace.communications.take(self.kept[trace.communications.row])),
            edges=self.edges(trace.edges),
        )

    def edges(self, edges: Edges) -> Edges:
        """Edges between the events that are left."""
        kept = edges.take(self.kept[edges.source] & self.kept[edges.target])
        return replace(kept, source=self.new[kept.source], target=self.new[kept.target])

    def table(self, table: AnyTable) -> AnyTable:
        """A table with the new rows of events; UNKNOWN for removed ones."""
        changed: dict[str, Any] = {}
        for name in table.event_columns():
            rows = getattr(table, name)
            changed[name] = np.where(rows == UNKNOWN, UNKNOWN, self.new[rows])
        return replace(table, **changed)
