"""The text of slices and instants: their own arguments are copied as they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tracelink.converters.perfetto.categories import categories_of, category, driver_calls
from tracelink.converters.perfetto.drawing import Drawing
from tracelink.converters.perfetto.flows import Binding
from tracelink.converters.perfetto.layout import Seats
from tracelink.converters.perfetto.links import SaidOf, add_member
from tracelink.converters.perfetto.payload_runs import payload_runs
from tracelink.converters.perfetto.schema import HUNG_COLOUR, RECORDER
from tracelink.converters.perfetto.text import Texts, loadable, micros, quoted
from tracelink.converters.perfetto.wanted import Wanted
from tracelink.events import Bools, EventKind, Int64s
from tracelink.graph import EventGraph
from tracelink.trace import Payload

NEXT = b"},\n"
"""Every event closes the one before it: one piece fewer for each."""

CHUNK = 4096
"""Events that are joined at once: what fits a cache is several times faster than all."""

KINDS = 64
"""More than there are sorts of openings, so that seat * KINDS + kind is a code."""

INSTANTS = 16
"""Added to the category where the event is an instant."""

PIECES = 7
DURATION = b',"dur":'
ARGUMENTS = b',"args":'
RECORDED = b'{"%s":%%s}' % RECORDER.encode()


@dataclass(frozen=True, slots=True)
class Sheet:
    """All that the text of events is made of; built once and shared by every part."""

    graph: EventGraph
    drawing: Drawing
    opening: Texts
    """For each seat and kind: everything up to the name."""
    names: Texts
    driver: Bools
    """For each name, whether it is one of the driver's."""
    seat: Int64s
    bindings: dict[int, Binding]
    extras: dict[int, bytes]
    """For few rows: members to add to the arguments."""
    wanted: Wanted
    special: Int64s
    """The rows that have bindings or extras, or hang."""


def sheet(
    graph: EventGraph,
    drawing: Drawing,
    seats: Seats,
    seat: Int64s,
    bindings: dict[int, Binding],
    said: SaidOf,
    wanted: Wanted,
) -> Sheet:
    """Prepares the texts that events share; `said` are more arguments of some rows."""
    rows = np.flatnonzero(drawing.shown)
    extras: dict[int, bytes] = {}
    for name, members in said.items():
        head = b'"%s":{' % name.encode()
        for row, text in members.items():
            add_member(extras, row, b"%s%s}" % (head, text))
    driver = driver_calls(graph)
    rare = [np.fromiter(column, np.int64, len(column)) for column in (bindings, extras, drawing.hung)]
    special = np.unique(np.concatenate(rare))
    openings = _openings(_codes(graph, drawing, seat, driver, rows), seats)
    names = _names(graph, rows)
    return Sheet(graph, drawing, openings, names, driver, seat, bindings, extras, wanted, special)


def write_rows(sheet: Sheet, source: int, low: int, high: int) -> Iterator[bytes]:
    """The text of one source's rows in [low, high)."""
    rows = low + np.flatnonzero(sheet.drawing.shown[low:high])
    numbers = sheet.graph.events.payload[rows]
    own = source < len(sheet.graph.payloads) and sheet.wanted == Wanted.ALL
    for begin, texts in payload_runs(sheet.graph.payloads[source] if own else None, numbers):
        for at in range(0, len(texts), CHUNK):
            some = texts[at : at + CHUNK]
            yield _chunk(sheet, rows[begin + at : begin + at + len(some)], some)


def _chunk(sheet: Sheet, rows: Int64s, payloads: Sequence[Payload]) -> bytes:
    pieces: list[Payload] = [ARGUMENTS] * (PIECES * len(rows))
    payloads = _grouped(sheet.graph.events.kind[rows] == EventKind.RECORD, payloads)
    codes = _codes(sheet.graph, sheet.drawing, sheet.seat, sheet.driver, rows)
    pieces[0::PIECES] = sheet.opening[codes].tolist()
    pieces[1::PIECES] = sheet.names[sheet.graph.events.name[rows]].tolist()
    pieces[2::PIECES] = micros(sheet.drawing.start[rows])
    pieces[3::PIECES] = [DURATION] * len(rows)
    pieces[4::PIECES] = micros(sheet.drawing.duration[rows])
    pieces[6::PIECES] = payloads
    if not all(payloads):
        pieces[5::PIECES] = [ARGUMENTS if text else b"" for text in payloads]
    for at in (PIECES * np.flatnonzero(sheet.drawing.instant[rows])).tolist():
        pieces[at + 3] = pieces[at + 4] = b""
    first, last = np.searchsorted(sheet.special, [rows[0], rows[-1] + 1]).tolist()
    for index in np.searchsorted(rows, sheet.special[first:last]).tolist():
        _specialise(sheet, int(rows[index]), pieces, index * PIECES)
    return loadable(b"".join(pieces))


def _grouped(recorded: Bools, payloads: Sequence[Payload]) -> Sequence[Payload]:
    """Arguments as they are, but in one of their own where a recorder said them."""
    if not recorded.any():
        return payloads
    return [
        RECORDED % text if text and mine else text
        for text, mine in zip(payloads, recorded.tolist(), strict=True)
    ]


def _specialise(sheet: Sheet, row: int, pieces: list[Payload], at: int) -> None:
    if binding := sheet.bindings.get(row):
        leaves = b',"flow_out":true' if binding.leaves else b""
        arrives = b',"flow_in":true' if binding.arrives else b""
        pieces[at + 5] = b',"bind_id":%d%s%s%s' % (binding.number, leaves, arrives, pieces[at + 5])
    if extra := sheet.extras.get(row):
        if not pieces[at + 6]:
            pieces[at + 5] = b"%s%s" % (pieces[at + 5], ARGUMENTS)
        pieces[at + 6] = with_members(pieces[at + 6], extra)
    if row in sheet.drawing.hung:
        pieces[at + 5] = b"%s%s" % (HUNG_COLOUR, pieces[at + 5])


def with_members(payload: Payload, members: bytes) -> bytes:
    """A JSON object's text with further members at its end."""
    head = bytes(payload).rstrip().removesuffix(b"}").rstrip() or b"{"
    return b"%s%s%s}" % (head, b"" if head == b"{" else b",", members)


def _codes(graph: EventGraph, drawing: Drawing, seat: Int64s, driver: Bools, rows: Int64s) -> Int64s:
    codes = seat[rows] * KINDS + categories_of(graph, driver, rows)
    codes += drawing.instant[rows] * np.int64(INSTANTS)
    return codes


def _openings(codes: Int64s, seats: Seats) -> Texts:
    table = np.empty(len(seats.tid) * KINDS, object)
    used = np.zeros(len(table), np.bool_)
    used[codes] = True
    for code in np.flatnonzero(used).tolist():
        seat, kind = divmod(code, KINDS)
        phase = b'"i","s":"t"' if kind & INSTANTS else b'"X"'
        table[code] = b'%s{"ph":%s,"cat":"%s","pid":%d,"tid":%d,"name":' % (
            NEXT,
            phase,
            category(kind & ~INSTANTS).encode(),
            seats.pid[seat],
            seats.tid[seat],
        )
    return table


def _names(graph: EventGraph, rows: Int64s) -> Texts:
    table = np.empty(len(graph.strings), object)
    used = np.zeros(len(table), np.bool_)
    used[graph.events.name[rows]] = True
    for code in np.flatnonzero(used).tolist():
        table[code] = quoted(graph.strings[code]) + b',"ts":'
    return table
