"""Decodes a dump without the entries that repeat others, which are most of it.

An entry is left out if each of its spans stood in an entry before. Marks stand in the places of those that are left
out, and before those that tell of them. They must come out as members of the list of entries, each once and in order;
else what looked like entries was something else, and nothing is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from tracelink.converters.flight_recorder import pickles, schema
from tracelink.converters.flight_recorder.marking import Form, Marks
from tracelink.converters.flight_recorder.repeats import Entries, Repeats
from tracelink.converters.flight_recorder.walking import entries_alike
from tracelink.errors import UnreadableError
from tracelink.events import Int64s

FEWEST = 64
"""Of fewer entries none is left out: that would cost more than it saves."""


def abridged(data: bytes, path: str, fewest: int = FEWEST) -> tuple[schema.Dump, Entries] | None:
    """A dump with the entries that were decoded, and all its entries; None where not most of them repeat others."""
    forms = [Form.of(alike) for alike in entries_alike(data)] if data.endswith(pickles.STOP) else []
    if sum(len(form.alike.start) for form in forms) < fewest:
        return None
    marks = Marks.of(forms)
    if marks.overlap or 2 * np.count_nonzero(marks.telling) > len(marks.telling):
        return None
    text, first_mark = marks.abridgement(data)
    try:
        dump = schema.dump_of(pickles.load_settled(text, path))
    except UnreadableError:
        return None
    members = _Members.of(dump.entries, marks, first_mark) if dump else None
    if not dump or not members:
        return None
    repeats = _repeats(forms, members)
    if repeats is None:
        return None
    entries = Entries(members.decoded, members.row, members.count, repeats)
    return replace(dump, entries=members.decoded), entries


@dataclass(frozen=True, slots=True)
class _Members:
    """The list of entries as it came out, told apart."""

    decoded: list[dict[Any, Any]]
    row: Int64s
    """Of those that were decoded, among all entries."""
    count: int
    row_alike: Int64s
    """Of each entry of a form."""
    decoded_alike: Int64s
    """Which of the decoded ones it is, if it tells."""

    @classmethod
    def of(cls, members: Sequence[Any], marks: Marks, first_mark: int) -> _Members | None:
        """None if not all marks are there in their order, or if there is anything but marks and entries."""
        decoded: list[dict[Any, Any]] = []
        rows: list[int] = []
        marked: list[int] = []
        follows: list[int] = []
        row = 0
        omitted = marks.omitted.tolist()
        for member in members:
            if type(member) is dict:
                decoded.append(member)
                rows.append(row)
                row += 1
            elif type(member) is int and len(marked) < len(omitted) and member == first_mark + len(marked):
                row += omitted[len(marked)]
                marked.append(row - omitted[len(marked)])
                follows.append(len(decoded))
            else:
                return None
        if len(marked) < len(omitted) or len(set(map(id, decoded))) < len(decoded):
            return None
        row_alike, decoded_alike = np.empty((2, len(marks.order)), np.int64)
        within = np.arange(len(marks.order)) - np.repeat(marks.head, marks.lengths)
        row_alike[marks.order] = np.repeat(np.array(marked, np.int64), marks.lengths) + within
        decoded_alike[marks.order] = np.repeat(np.array(follows, np.int64), marks.lengths)
        return cls(decoded, np.array(rows, np.int64), row, row_alike, decoded_alike)


def _repeats(forms: Sequence[Form], members: _Members) -> list[Repeats] | None:
    """Who tells what, field by field; None if an entry says something twice, so that a later span counts."""
    repeats = []
    ends = np.cumsum([len(form.alike.start) for form in forms])
    for form, end in zip(forms, ends.tolist(), strict=True):
        rows = slice(end - len(form.alike.start), end)
        tellers = [members.decoded_alike[rows][first] for first in form.first]
        fields = iter(names := list(members.decoded[tellers[0][0]]))
        if len(names) != sum(form.alike.keys):
            return None
        told: dict[str, Int64s] = {}
        numbers: dict[str, Int64s | None] = {}
        for teller, keys, values in zip(tellers, form.alike.keys, [*form.alike.numbers, None], strict=True):
            is_last = len(numbers) == len(form.alike.numbers)
            told |= dict.fromkeys(islice(fields, keys - (not is_last)), teller)
            if not is_last:
                numbers[next(fields)] = values
        repeats.append(Repeats(members.row_alike[rows], tellers[0], told, numbers))
    return repeats
