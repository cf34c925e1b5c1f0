"""What entries ask for: each different request once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tracelink.communications import UNKNOWN
from tracelink.converters.flight_recorder.repeats import Entries
from tracelink.converters.flight_recorder.schema import Layout
from tracelink.converters.flight_recorder.tensors import first_types, sizes_of
from tracelink.converters.flight_recorder.values import Values
from tracelink.events import Int32s, Int64s
from tracelink.linking.coding import distinct
from tracelink.operations import peers_of
from tracelink.records import Requests
from tracelink.strings import StringTable


@dataclass(frozen=True, slots=True)
class Asked:
    """The requests, and which of them each entry makes."""

    request: Int64s
    requests: Requests
    sizes: list[Any]
    """Of the input tensors of each request, as they were decoded."""
    unreadable: int
    """How many entries have sizes that are none."""


def asked_by(entries: Entries, values: Values, layout: Layout, strings: StringTable) -> Asked:
    """The requests in the order of the entries that make them first."""
    fields = (layout.name, layout.input_sizes, layout.output_sizes, layout.input_types, layout.output_types)
    combination, (name, given, got, given_type, got_type) = _combinations(entries, fields)
    sizes = sizes_of(values.input_sizes + values.output_sizes)
    got = got + len(values.input_sizes)
    type_out = first_types(values.output_types, strings)[got_type]
    type_in = first_types(values.input_types, strings)[given_type]
    operation = strings.encode(values.name)[name]
    requests = Requests(
        operation,
        *_peers(operation, strings),
        sizes.elements[given],
        sizes.elements[got],
        sizes.shapes[given],
        sizes.shapes[got],
        np.where(type_in == UNKNOWN, type_out, type_in),
        type_out,
    )
    request, first = _numbered(requests)
    wrong = sizes.wrong[given] | sizes.wrong[got]
    return Asked(
        request[combination],
        requests.take(first),
        [values.input_sizes[row] for row in given[first].tolist()],
        int(np.count_nonzero(wrong[combination])),
    )


def _numbered(requests: Requests) -> tuple[Int64s, Int64s]:
    """The same number for the same requests, in the order of the first ones; and these."""
    rows = zip(*(column.tolist() for column in requests.columns().values()), strict=True)
    numbers: dict[tuple[int, ...], int] = {}
    number = np.array([numbers.setdefault(row, len(numbers)) for row in rows], np.int64)
    first = np.empty(len(numbers), np.int64)
    first[number[::-1]] = np.arange(len(number) - 1, -1, -1)
    return number, first


def _combinations(entries: Entries, fields: tuple[str, ...]) -> tuple[Int64s, list[Int64s]]:
    """Entries told by the same have the same number, in the order of the first; and by whom, for each field."""
    tellers = entries.tellers(fields)
    if not entries.repeats:
        return tellers[0], tellers
    number, first = distinct(*{id(teller): teller for teller in tellers}.values())
    order = np.argsort(first)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return place[number], [teller[first[order]] for teller in tellers]


def _peers(operation: Int32s, strings: StringTable) -> tuple[Int32s, Int32s]:
    """Which rank sends, and which receives."""
    texts = strings.texts()
    codes, which = np.unique(operation, return_inverse=True)
    known = [peers_of(texts[code]) or (UNKNOWN, UNKNOWN) for code in codes.tolist()]
    peers = np.array(known, np.int32).reshape(-1, 2)[which]
    return peers[:, 0], peers[:, 1]
