"""The attributes of calls: each from the best source that tells it, and where sources contradict each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracelink.communications import FLAGS, UNKNOWN, Communications
from tracelink.events import Bools, EventKind, Int32s, Int64s
from tracelink.findings import Finding, Severity
from tracelink.linking.communicating import RECORDED, Words, spelled
from tracelink.linking.joins import NONE, lookup, values_at
from tracelink.operations import POINT_TO_POINT, Operation
from tracelink.trace import RankTrace

NUMBERED = ("sequence", "point_to_point")
PEERS = ("source", "target", "global_ranks")
COUNTS = ("elements_in", "elements_out", "shape")
TOLD_ALONE = ("group", "tag", "elements_in", "elements_out", "type", "size", "members", "shape")

SUBSTITUTES = {
    (Operation.REDUCE_SCATTER.value, Operation.ALL_REDUCE.value),
    (Operation.BARRIER.value, Operation.ALL_REDUCE.value),
}
"""What was asked for and what the backend does for it and records: gloo has no reduce_scatter of its own."""
PARTS = {
    (Operation.ALL_GATHER.value, Operation.BROADCAST.value),
    (Operation.REDUCE_SCATTER.value, Operation.REDUCE.value),
    (Operation.ALL_TO_ALL.value, Operation.SEND.value),
    (Operation.ALL_TO_ALL.value, Operation.RECV.value),
    (Operation.GATHER.value, Operation.SEND.value),
    (Operation.GATHER.value, Operation.RECV.value),
    (Operation.SCATTER.value, Operation.SEND.value),
    (Operation.SCATTER.value, Operation.RECV.value),
    *((Operation.COALESCED.value, operation.value) for operation in Operation),
}
"""What was asked for and what a backend makes it of; what closes a group, and what the group is of."""


@dataclass(frozen=True, slots=True)
class Witness:
    """One of the events that tell of each call: its row or NONE, and by what name people know it."""

    name: str
    rows: Int64s


@dataclass(frozen=True, slots=True)
class _Testimony:
    """What one witness says: places in the communications, and operations."""

    witness: Witness
    said: Int64s
    operation: Int32s
    known: Bools
    asked: Bools
    """Whether it is what the program asked for, and not what the backend made of it."""
    sworn: Bools
    """Whether the operation counts against that of others; a kernel's name is only a hint."""


@dataclass(frozen=True, slots=True)
class Attributes:
    """Columns of calls, by name, and what of them is disputed."""

    columns: dict[str, Any]
    findings: Sequence[Finding]


def attributes_of(trace: RankTrace, words: Words, witnesses: Sequence[Witness]) -> Attributes:
    """What the witnesses, the best first, tell of each call."""
    table = trace.communications
    heard = [_hear(trace, words, witness) for witness in witnesses]
    places = [testimony.said for testimony in heard]
    columns = _columns(table, places)
    operation, substituted = _operation(words, heard)
    if substituted.any():
        asked = [np.where(one.asked, one.said, NONE) for one in heard]
        for name in COUNTS:
            better = _told(table, (name,), asked)[name]
            columns[name] = np.where(substituted & (better != UNKNOWN), better, columns[name])
    columns["operation"] = operation
    messages = np.isin(operation, [words.strings.find(name.value) for name in POINT_TO_POINT])
    columns["point_to_point"] |= messages & (columns["sequence"] == UNKNOWN)
    closing = operation == words.strings.find(Operation.COALESCED.value)
    # What only closes a group of messages is numbered as if it were a collective.
    columns["sequence"][closing & ~columns["point_to_point"]] = UNKNOWN
    return Attributes(columns, _contradictions(words, heard, columns, table))


def _hear(trace: RankTrace, words: Words, witness: Witness) -> _Testimony:
    table, events = trace.communications, trace.events
    there = witness.rows != NONE
    said = lookup(table.row, witness.rows)
    operation = spelled(trace, words, witness.rows)
    names = values_at(events.name, witness.rows)
    recorded = names == words.strings.find(RECORDED)
    hinted = (operation == UNKNOWN) | (operation == names)
    operation = words.operations(np.where((operation == UNKNOWN) & ~recorded, names, operation))
    known = words.known(operation)
    kind = values_at(events.kind, witness.rows, EventKind.OTHER)
    asked = known & there & ~recorded & ((kind == EventKind.OPERATOR) | (kind == EventKind.NODE))
    sworn = known & (said != NONE) & ((kind != EventKind.KERNEL) | ~hinted)
    return _Testimony(witness, said, operation, known, asked, sworn)


def _columns(table: Communications, places: Sequence[Int64s]) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    columns |= _told(table, NUMBERED, places, table.sequence != UNKNOWN)
    columns |= _told(table, PEERS, places, (table.source != UNKNOWN) | (table.target != UNKNOWN))
    for name in TOLD_ALONE:
        columns |= _told(table, (name,), places)
    return columns


def _told(
    table: Communications, names: Sequence[str], places: Sequence[Int64s], tells: Bools | None = None
) -> dict[str, Any]:
    """Columns from the first that tells, together where they mean nothing apart."""
    place = places[0]
    if len(places) > 1:
        tells = getattr(table, names[0]) != UNKNOWN if tells is None else tells
        place = np.where(values_at(tells, place, False), place, NONE)
        for others in places[1:]:
            place = np.where((place == NONE) & values_at(tells, others, False), others, place)
    return {name: values_at(getattr(table, name), place, kind_of_unknown(name)) for name in names}


def kind_of_unknown(name: str) -> int | bool:
    """What stands in a column for what is not known."""
    return False if name in FLAGS else UNKNOWN


def _operation(words: Words, heard: Sequence[_Testimony]) -> tuple[Int32s, Bools]:
    """The first operation that is known, else any; and where it is what was asked for, not what was done."""
    operation = _first([one.operation for one in heard], [one.known for one in heard])
    asked = _first([one.operation for one in heard], [one.asked for one in heard])
    substituted = _among(words, asked, operation, SUBSTITUTES)
    operation = np.where(substituted, asked, operation)
    any_text = _first([one.operation for one in heard], [one.operation != UNKNOWN for one in heard])
    return np.where(operation == UNKNOWN, any_text, operation).astype(np.int32), substituted


def _first(values: Sequence[Int32s], usable: Sequence[Bools]) -> Int32s:
    found = np.where(usable[0], values[0], UNKNOWN)
    for value, use in zip(values[1:], usable[1:], strict=True):
        found = np.where((found == UNKNOWN) & use, value, found)
    return found.astype(np.int32)


def _among(words: Words, one: Int32s, other: Int32s, pairs: set[tuple[str, str]]) -> Bools:
    """Whether each two operations are one of the pairs."""
    found = np.zeros(len(one), np.bool_)
    for first, second in pairs:
        codes = words.strings.find(first), words.strings.find(second)
        if UNKNOWN not in codes:
            found |= (one == codes[0]) & (other == codes[1])
    return found


def _contradictions(
    words: Words, heard: Sequence[_Testimony], columns: dict[str, Any], table: Communications
) -> list[Finding]:
    """One finding for each of operation, group and sequence that sources give differently."""
    findings = []
    for name in ("operation", "group", "sequence"):
        disputed = np.zeros(len(columns["operation"]), np.bool_)
        example = ""
        for one in heard if len(heard) > 1 else ():
            differs, said = _differs(words, one, columns, table, name)
            if differs.any() and not example:
                example = _example(words, columns, name, int(np.flatnonzero(differs)[0]), said, one.witness)
            disputed |= differs
        if count := int(np.count_nonzero(disputed)):
            message = (
                f"{count} communications have another {name} in one source than in another; "
                "the flight recorder was believed, else the execution trace"
            )
            findings.append(
                Finding(Severity.WARNING, "communication_contradiction", message, count, example=example)
            )
    return findings


def _differs(
    words: Words, one: _Testimony, columns: dict[str, Any], table: Communications, name: str
) -> tuple[Bools, Any]:
    chosen = columns[name]
    if name == "operation":
        said: Any = one.operation
        differs = one.sworn & (said != chosen) & (chosen != UNKNOWN)
        if not differs.any():
            return differs, said
        differs &= ~_among(words, chosen, said, SUBSTITUTES | PARTS)
        return differs & ~_among(words, said, chosen, SUBSTITUTES | PARTS), said
    said = values_at(getattr(table, name), one.said)
    differs = (said != UNKNOWN) & (said != chosen)
    if name == "sequence":
        differs &= values_at(table.point_to_point, one.said, False) == columns["point_to_point"]
    return differs, said


def _example(words: Words, columns: dict[str, Any], name: str, row: int, said: Any, witness: Witness) -> str:
    def text(value: int) -> str:
        return str(value) if name == "sequence" else words.strings.texts()[value]

    return f"{text(int(said[row]))} by the {witness.name}, elsewhere {text(int(columns[name][row]))}"
