"""NVTX rows as events: ranges that programs and libraries named, and operators of torch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice

import numpy as np
from msgspec import Struct, field

from tracelink._model.columns import UNKNOWN, Bools, Int32s, Int64s, StringTable, UInt8s
from tracelink._model.events import EventKind, Key, Track, TrackKind
from tracelink._model.operations import COLLECTIVE_ANNOTATION
from tracelink.converters.nsys import schema
from tracelink.converters.nsys.activities import Activities, coded, pid_of
from tracelink.converters.nsys.database import known
from tracelink.converters.nsys.payloads import NvtxWords

# Texts of NVTX ranges, many at once: names, and the ids that torch adds: `aten::mul, seq = 45328, op_id = 990726`.


SEPARATOR = b"\x1e"
"""Between two texts."""
ID, SEQUENCE = b", op_id = ", b", seq = "
DIGITS = 18
"""As many fit into 64 bits."""
PADDING = bytes(32)


class Labels(Struct, frozen=True):
    """One row for each text."""

    name: Int32s
    identity: Int64s
    sequence: Int64s
    """What follows `op_id` and `seq`, or UNKNOWN."""


class NameCodes(dict[bytes, int]):
    """Codes of names by their bytes."""

    def __init__(self, names: StringTable) -> None:
        super().__init__()
        self.names = names

    def __missing__(self, name: bytes) -> int:
        code = self[name] = self.names[name.decode("utf-8", "replace")]
        return code


def labels_of(joined: bytes, codes: NameCodes) -> Labels:
    """The labels in texts with separators between them."""
    data = np.frombuffer(joined + SEPARATOR + PADDING, np.uint8)
    ends = np.flatnonzero(data == SEPARATOR[0])
    begins = np.concatenate([[0], ends[:-1] + 1])
    commas = np.flatnonzero(data[: len(joined)] == ID[0])
    at = [_first_marks(data, commas, mark, ends) for mark in (ID, SEQUENCE)]
    name_ends = np.minimum(ends, np.minimum(*(np.where(found == UNKNOWN, ends, found) for found in at)))
    texts = map(joined.__getitem__, map(slice, begins.tolist(), name_ends.tolist()))
    name = np.fromiter(map(codes.__getitem__, texts), np.int32, len(ends))
    numbers = [_numbers(data, found, len(mark)) for found, mark in zip(at, (ID, SEQUENCE), strict=True)]
    return Labels(name, *numbers)


def _first_marks(data: UInt8s, commas: Int64s, mark: bytes, ends: Int64s) -> Int64s:
    """The offset of the first such mark in each text, or UNKNOWN; `commas` are where marks can begin."""
    found = commas
    for index in (2, *(number for number in range(1, len(mark)) if number != 2)):
        found = found[data[found + index] == mark[index]]
    first = np.full(len(ends), UNKNOWN, np.int64)
    first[np.searchsorted(ends, found[::-1])] = found[::-1]
    return first


def _numbers(data: UInt8s, found: Int64s, length: int) -> Int64s:
    """The number behind each mark, or UNKNOWN."""
    numbers = np.full(len(found), UNKNOWN, np.int64)
    rows = np.flatnonzero(found != UNKNOWN)
    at, value = found[rows] + length, np.zeros(len(rows), np.int64)
    for digit in range(DIGITS):
        character = data[at + digit] - np.uint8(48)
        is_digit = character < 10
        if not is_digit.all():
            keep = np.flatnonzero(is_digit)
            if digit:
                numbers[rows[~is_digit]] = value[~is_digit]
            rows, at, value, character = rows[keep], at[keep], value[keep], character[keep]
        if not len(rows):
            break
        value = value * 10 + character
    numbers[rows] = value
    return numbers


# The table of ranges.

NO_OPERATORS = ("Torch-Compiled Region", "## Call ", "ProfilerStep#")
"""Names of torch's ranges that are no operators."""
BACKWARD = "autograd::engine::evaluate_function: "
BACKWARD_THREAD = 1
"""The forward thread of a backward operator is not recorded, only that there is one."""
UNNAMED = "unnamed NVTX range"

JOIN = re.compile(r"[nr]cclx?Comm(Init|Split)")
"""Names of ranges in which a communicator is joined."""
ACROSS = "NVTX start/end ranges"
DESCRIPTIONS = (schema.CATEGORY_NAME, schema.THREAD_NAME, schema.DOMAIN)
"""Types of rows that only describe others."""


class Ranges(Struct):
    """Reads the table of NVTX events."""

    activities: Activities
    domains: dict[tuple[int, int], str] = field(default_factory=dict)
    """The name of each domain of a process."""
    kind_of_name: UInt8s = field(default_factory=lambda: np.empty(0, np.uint8))
    """The kind of a range of torch with each name."""
    is_backward: Bools = field(default_factory=lambda: np.empty(0, np.bool_))
    """True for each name of a backward function."""
    categories: dict[tuple[int, int, int], str] | None = None
    described: bool = False
    """True if there are rows with names of categories."""
    inits: dict[int, list[int]] = field(default_factory=dict)
    """The rows of each process in which NCCL communicators are joined."""
    others: int = 0
    """Number of rows of other types."""

    def read(self) -> None:
        """Reads the table, if it is there."""
        database = self.activities.database
        if schema.RANGES not in database.tables:
            return
        needed = ("start", "end", "eventType", "globalTid", "text")
        if not database.has(schema.RANGES, *needed):
            database.damage[schema.RANGES] = f"it has not all of the columns {', '.join(needed)}"
            return
        columns = [known(name) for name in needed[:-1]]
        columns += [
            known(name, unknown) if database.has(schema.RANGES, name) else str(unknown)
            for name, unknown in (("domainId", 0), ("textId", UNKNOWN))
        ]
        codes = NameCodes(self.activities.collector.names)
        for block in database.blocks(schema.RANGES, columns):
            self._add(block, labels_of(database.joined(schema.RANGES, "text", block[0], SEPARATOR), codes))

    def words(self, pid: int) -> NvtxWords:
        """The names of domains and categories of a process."""
        domains = {domain: name for (owner, domain), name in self.domains.items() if owner == pid}
        categories = {key[1:]: name for key, name in self._categories().items() if key[0] == pid}
        return NvtxWords(domains, categories)

    def _categories(self) -> dict[tuple[int, int, int], str]:
        """The names of categories by process, domain and number; found when they are first used."""
        if self.categories is None:
            rows = (
                self.activities.database.rows(
                    schema.RANGES,
                    "globalTid",
                    "domainId",
                    "category",
                    "text",
                    where=f"WHERE eventType = {schema.CATEGORY_NAME}",
                )
                if self.described
                else []
            )
            self.categories = {
                (thread >> schema.PID_BITS & schema.PID_MASK, domain or 0, category): text
                for thread, domain, category, text in rows
                if isinstance(thread, int) and isinstance(category, int) and isinstance(text, str)
            }
        return self.categories

    def _add(self, block: Sequence[Int64s], labels: Labels) -> None:
        row, start, end, form, thread, domain, text_id = block
        name, identity, sequence = self._names(labels.name, text_id), labels.identity, labels.sequence
        self._learn_names()
        self._learn_inits(row, thread, name, text_id)
        self._learn(form, thread, domain, name)
        self.described |= bool((form == schema.CATEGORY_NAME).any())
        chosen = (form == schema.PUSH_POP) | (form == schema.START_END) | (form == schema.MARK)
        self.others += int(np.count_nonzero(~chosen & ~np.isin(form, DESCRIPTIONS)))
        kind = self._kinds(form, name, identity != UNKNOWN)
        end = np.where(form == schema.MARK, UNKNOWN, end)
        forward = np.where(self.is_backward[name] & (sequence != UNKNOWN), BACKWARD_THREAD, UNKNOWN)
        keys = {Key.RECORD_FUNCTION: identity, Key.SEQUENCE: sequence, Key.FORWARD_THREAD: forward}
        columns = (name, self._tracks(thread, form), row, start, end)
        if not chosen.all():
            kind, thread = kind[chosen], thread[chosen]
            columns = tuple(column[chosen] for column in columns)
            keys = {key: values[chosen] for key, values in keys.items()}
        self.activities.add(schema.RANGES, pid_of(thread), kind, columns, keys)

    def _names(self, name: Int32s, text_id: Int64s) -> Int32s:
        """The codes of names: the texts, else those with the ids."""
        names = self.activities.collector.names
        empty = names.find("")
        if empty == UNKNOWN or not (name == empty).any():
            return name
        by_id = np.flatnonzero((name == empty) & (text_id != UNKNOWN))
        name[by_id] = self.activities.names.of_ids(text_id[by_id])
        name[name == empty] = names[UNNAMED]
        return name

    def _learn_names(self) -> None:
        """Adds what the names that are new mean."""
        names = self.activities.collector.names
        new = list(islice(reversed(names), len(names) - len(self.kind_of_name)))[::-1]
        kinds = np.array([kind_of_range(text) for text in new], np.uint8)
        backward = np.array([text.startswith(BACKWARD) for text in new], np.bool_)
        self.kind_of_name = np.append(self.kind_of_name, kinds)
        self.is_backward = np.append(self.is_backward, backward)

    def _kinds(self, form: Int64s, name: Int32s, identified: Bools) -> UInt8s:
        """Ranges with an id are torch's; most of them are operators."""
        kind = np.where(identified, self.kind_of_name[name], np.uint8(EventKind.ANNOTATION))
        kind[form == schema.START_END] = EventKind.SPAN
        kind[form == schema.MARK] = EventKind.INSTANT
        return kind

    def _tracks(self, thread: Int64s, form: Int64s) -> Int32s:
        """The thread of each range; start/end ranges are of no single thread."""
        track = self.activities.lanes.threads(thread)
        across = np.flatnonzero(form == schema.START_END)
        if len(across):
            pids, which = coded(pid_of(thread[across]))
            tracks = [Track(TrackKind.PROCESS, str(pid), ACROSS, ACROSS) for pid in pids.tolist()]
            track[across] = np.array(list(map(self.activities.collector.track, tracks)), np.int32)[which]
        return track

    def _learn_inits(self, row: Int64s, thread: Int64s, name: Int32s, text_id: Int64s) -> None:
        """Rows in which NCCL communicators are joined: their names are always registered strings."""
        named = np.flatnonzero(text_id != UNKNOWN)
        if not len(named):
            return
        distinct, which = coded(name[named].astype(np.int64))
        texts = self.activities.collector.names.texts()
        joins = np.array([JOIN.match(texts[code]) is not None for code in distinct.tolist()], np.bool_)
        for index in named[joins[which]].tolist():
            self.inits.setdefault(int(pid_of(thread[index])), []).append(int(row[index]))

    def _learn(self, form: Int64s, thread: Int64s, domain: Int64s, name: Int32s) -> None:
        """Names of threads and domains."""
        rows = np.flatnonzero((form == schema.THREAD_NAME) | (form == schema.DOMAIN))
        if not len(rows):
            return
        texts = self.activities.collector.names.texts()
        for row in rows.tolist():
            text = texts[name[row]]
            if form[row] == schema.DOMAIN:
                self.domains[int(pid_of(thread[row])), int(domain[row])] = text
            else:
                self.activities.lanes.name(int(thread[row]), text)


def kind_of_range(name: str) -> EventKind:
    """The kind of a range of torch by its name."""
    if name.startswith(NO_OPERATORS) or COLLECTIVE_ANNOTATION.match(name):
        return EventKind.ANNOTATION
    return EventKind.OPERATOR
