"""Entries that are spelt alike, passed over at once."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Any

import numpy as np

from tracelink.converters.flight_recorder import pickles, schema
from tracelink.model.columns import UNKNOWN, Bools, Int64s
from tracelink.model.errors import UnreadableError

# How torch spells an entry whose texts all stood in the dump before: numbers, and what stands between them.


GET = rb"(?:h.|j.{4})"
WHOLE_NUMBER = rb"(?:K.|M..|J.{4}|\x8a\x08.{8})"
LIST = rb"\]\((?:%b|\]\(%b*+e)*+e" % (GET, WHOLE_NUMBER)
WORD_SPELLING = rb"(?:%b%b\x86|%b|[\x88\x89]|%b)" % (GET, GET, GET, LIST)
"""A pair of texts, a text, a flag, or a list of texts or of sizes."""

FIELDS = rb"(?>%b%b)*+" % (GET, WORD_SPELLING)
TO_A_NUMBER = FIELDS + GET + rb"(?=[KMJGN\x8a])"

FIRST = re.compile(rb"\}\(" + TO_A_NUMBER, re.DOTALL)
MIDDLE = re.compile(TO_A_NUMBER, re.DOTALL)
LAST = re.compile(FIELDS + rb"u(?![qr])", re.DOTALL)
"""What is followed by a PUT is shared, and so is left where it is."""

NUMBER = re.compile(rb"%b|(G).{8}|N" % WHOLE_NUMBER, re.DOTALL)

KEYS = re.compile(rb"(%b)(?:%b)?+" % (GET, WORD_SPELLING), re.DOTALL)
"""The keys of a span."""

MOST_NUMBERS = 64
"""In an entry; torch writes ten."""

SHORT_PUT, LONG_PUT = b"qr"
GET_OF = {SHORT_PUT: b"h", LONG_PUT: b"j"}

FIRST_ENTRY = re.compile(
    rb"X\x07\0\0\0entries(?:q.|r.{4})\]\(\}\((?:(?P<known>%b)|X(?P<size>.{4}))" % GET, re.DOTALL
)
"""Where the list of entries begins, up to the first key of its first entry."""


def opening_of_entries(data: bytes) -> bytes | None:
    """How entries begin whose keys were all written before; None where there is no first entry."""
    first = FIRST_ENTRY.search(data)
    if not first or first["known"]:
        return b"}(" + first["known"] if first else None
    end = first.end() + int.from_bytes(first["size"], "little")
    put = data[end : end + 5]
    if len(put) < 5 or put[0] not in GET_OF:
        return None
    return b"}(" + GET_OF[put[0]] + (put[1:2] if put[0] == SHORT_PUT else put[1:])


def floats_among_numbers(data: bytes, start: int) -> list[bool] | None:
    """Which of its numbers are floats, of the entry that begins there; None where it is not of this kind."""
    floats: list[bool] = []
    span = FIRST.match(data, start)
    while span and len(floats) < MOST_NUMBERS and (number := NUMBER.match(data, span.end())):
        floats.append(number.lastindex is not None)
        if LAST.match(data, number.end()):
            return floats
        span = MIDDLE.match(data, number.end())
    return None


# Passes over all entries of a dump that are spelt alike at once, span by span and number by number. Numbers in a
# dump are not negative: UNKNOWN stands for None.


NONE, FLOAT, LONG = b"NG\x8a"
WHOLE = {ord("K"): ("u1", 1), ord("M"): ("<u2", 1), ord("J"): ("<i4", 1), LONG: ("<i8", 2)}
"""How the number after an opcode is written, and where."""

LONG_BYTES = 8
WIDTHS = np.zeros(256, np.int64)
WIDTHS[[NONE, FLOAT, *WHOLE]] = (1, 9, 2, 3, 5, 10)
"""Bytes of a number with its opcode."""

LONGEST_NUMBER = 10
LONGEST_SPAN = 1 << 11
WORD = 8
MOST_FORMS = 8
MOST_SIZES = 16
"""So many lengths of a span are looked at in all entries at once; what is left, in one entry after the other."""

BUCKET_BITS = 12
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
"""Odd and without a pattern: the upper bits of a product depend on all bits."""


@dataclass(frozen=True, slots=True)
class Alike:
    """Entries with the same keys in the same order, and numbers in the same places."""

    start: Int64s
    end: Int64s
    spans: Sequence[Int64s]
    """For each span a number that is the same for equal spans."""
    keys: Sequence[int]
    """How many keys each span has; all but the last end in the key of a number."""
    numbers: Sequence[Int64s | None]
    """None for floats."""


def entries_alike(data: bytes) -> list[Alike]:
    """Everything that looks like an entry without new texts, form by form."""
    text = data + bytes(2 * LONGEST_SPAN + WORD)
    starts = _starts(data, text)
    left = np.ones(len(starts), np.bool_)
    found: list[Alike] = []
    for row, start in enumerate(starts.tolist()):
        if left[row] and len(found) < MOST_FORMS and (floats := floats_among_numbers(data, start)):
            rows = row + left[row:].nonzero()[0]
            walk = _Walk(data, text, starts[rows])
            found.append(walk.along(floats))
            left[rows[walk.rows]] = False
    return [alike for alike in found if len(alike.start)]


def _starts(data: bytes, text: bytes) -> Int64s:
    """Where entries may begin."""
    opening = opening_of_entries(data)
    if opening is None:
        return np.empty(0, np.int64)
    starts = (np.frombuffer(data, np.uint8) == opening[0]).nonzero()[0]
    first = np.uint64(int.from_bytes(opening, "little"))
    read = _part(_read(text, WORD, starts), "<u8") & np.uint64((1 << 8 * len(opening)) - 1)
    found: Int64s = starts[read == first]
    return found


def _read(text: bytes, size: int, places: Int64s) -> Any:
    """So many bytes from each place; anything for a place behind the dump, where no entry ends."""
    windows = np.ndarray(len(text) - size + 1, f"V{size}", text, strides=(1,))
    return windows[np.minimum(places, len(windows) - 1)]


def _part(read: Any, kind: str, at: int = 0) -> Any:
    """What was read, as another kind of value that stands `at` bytes after the place."""
    return np.ndarray(len(read), kind, read, at, (read.itemsize,))


def _words(read: Any, size: int) -> list[Any]:
    """The first `size` bytes in words, for NumPy compares texts byte by byte."""
    words = [_part(read, "<u8", at) for at in range(0, size, WORD)]
    if size % WORD:
        words[-1] = words[-1] & np.uint64((1 << 8 * (size % WORD)) - 1)
    return words


def _first_alike(words: Sequence[Any]) -> Int64s:
    """For each row one of the first that have the same words; UNKNOWN for rows of which another took the place."""
    mixed = words[0] * MULTIPLIER
    for word in words[1:]:
        mixed = (mixed ^ word) * MULTIPLIER
    bucket = (mixed >> np.uint64(64 - BUCKET_BITS)).astype(np.int64)
    place = np.empty(1 << BUCKET_BITS, np.int64)
    place[bucket[::-1]] = np.arange(len(bucket) - 1, -1, -1)
    first = place[bucket]
    alike = np.ones(len(first), np.bool_)
    for word in words:
        alike &= word == word[first]
    return np.where(alike, first, UNKNOWN)


class _Walk:
    """A place in each of many entries, which all move on together; those that do not fit are left behind."""

    def __init__(self, data: bytes, text: bytes, starts: Int64s) -> None:
        self.data, self.text, self.starts = data, text, starts
        self.rows, self.at = np.arange(len(starts)), starts.copy()
        self.spans: list[Int64s] = []
        self.keys: list[int] = []
        self.numbers: list[Int64s | None] = []

    def along(self, floats: Sequence[bool]) -> Alike:
        """The entries with these numbers."""
        self.span(FIRST)
        for is_float in floats[:-1]:
            self.number(is_float)
            self.span(MIDDLE)
        self.number(floats[-1])
        self.span(LAST)
        self.keep(self.at <= len(self.data))
        return Alike(self.starts[self.rows], self.at, self.spans, self.keys, self.numbers)

    def keep(self, fitting: Bools) -> None:
        """Leaves all other entries behind."""
        if not fitting.all():
            self.rows, self.at = self.rows[fitting], self.at[fitting]
            self.spans = [span[fitting] for span in self.spans]
            self.numbers = [None if values is None else values[fitting] for values in self.numbers]

    def span(self, form: re.Pattern[bytes]) -> None:
        """Passes over a span in all entries, and numbers them so that equal spans have the same number."""
        numbers, pieces = np.full(len(self.at), UNKNOWN, np.int64), _Pieces(form, self.data)
        rows, size_count = np.arange(len(self.at)), 0
        while len(rows) and size_count < MOST_SIZES:
            number = pieces.number_at(int(self.at[rows[0]]))
            if number == UNKNOWN:
                rows = rows[1:]
                continue
            numbers[rows] = found = self._alike(rows, pieces, pieces.sizes[number])
            rows, size_count = rows[found == UNKNOWN], size_count + 1
        numbers[rows] = [pieces.number_at(place) for place in self.at[rows].tolist()]
        self.spans.append(numbers)
        self.keys.append(len(pieces.keys))
        self.at = self.at + np.array([*pieces.sizes, 0])[numbers]
        self.keep(np.array([*pieces.fit, False])[numbers])

    def _alike(self, rows: Int64s, pieces: _Pieces, size: int) -> Int64s:
        """The numbers of spans that are as long as the first, or shorter; of others only where it is easy."""
        places = self.at[rows]
        words = _words(_read(self.text, -(-size // WORD) * WORD, places), size)
        if all((word == word[0]).all() for word in words):
            return np.full(len(rows), pieces.number_at(int(places[0])), np.int64)
        first = _first_alike(words)
        known = np.full(len(rows) + 1, UNKNOWN, np.int64)
        common = np.bincount(first + 1, minlength=1)[1:] > 1
        common[:1] = True
        for row in common.nonzero()[0].tolist():
            number = pieces.number_at(int(places[row]))
            if number != UNKNOWN and pieces.sizes[number] <= size:
                known[row] = number
        return known[first]

    def number(self, is_float: bool) -> None:
        """Passes over a number in all entries."""
        read = _read(self.text, LONGEST_NUMBER, self.at)
        opcode = _part(read, "u1")
        if is_float:
            self.at = self.at + WIDTHS[FLOAT]
            self.numbers.append(None)
            self.keep(opcode == FLOAT)
            return
        values, codes = np.full(len(self.at), UNKNOWN, np.int64), opcode.tobytes()
        for code, (kind, before) in WHOLE.items():
            if code in codes:
                np.copyto(values, _part(read, kind, before), where=opcode == code)
        if LONG in codes:
            values[(opcode == LONG) & (_part(read, "u1", 1) != LONG_BYTES)] = UNKNOWN
        self.at = self.at + WIDTHS[opcode]
        self.numbers.append(values)
        self.keep((values >= 0) | (opcode == NONE))


class _Pieces:
    """Different spans, each with a number."""

    def __init__(self, form: re.Pattern[bytes], data: bytes) -> None:
        self.form, self.data = form, data
        self.sizes: list[int] = []
        self.fit: list[bool] = []
        """Which of them have the keys of the first."""
        self.keys: list[bytes] = []
        self._numbers: dict[bytes, int] = {}

    def number_at(self, place: int) -> int:
        """The number of the span at a place; UNKNOWN where there is none."""
        found = self.form.match(self.data, place)
        if not found or len(found[0]) > LONGEST_SPAN:
            return UNKNOWN
        if (known := self._numbers.get(found[0])) is not None:
            return known
        keys = KEYS.findall(found[0])
        self.keys = self.keys or keys
        self.fit.append(keys == self.keys)
        self.sizes.append(len(found[0]))
        return self._numbers.setdefault(found[0], len(self._numbers))


# Puts marks into a dump in place of entries that repeat others.


MARK = b"\x8a\x08"
NUMBER_BYTES = TOKEN_BYTES = 4
FIRST_TOKEN = 0x6B72616D
"""A mark is a whole number: its own, and above that a token that stands nowhere in what is kept of the dump."""


@dataclass(frozen=True, slots=True)
class Form:
    """Entries of one form, and for each of their spans the first row that has it."""

    alike: Alike
    first: Sequence[Int64s]

    @classmethod
    def of(cls, alike: Alike) -> Form:
        """The form of these entries."""
        return cls(alike, [_first_of_equal(span) for span in alike.spans])

    @property
    def telling(self) -> Bools:
        """Which entries have a span that none had before."""
        telling = np.zeros(len(self.alike.start), np.bool_)
        for first in self.first:
            telling[first] = True
        return telling


def _first_of_equal(numbers: Int64s) -> Int64s:
    if not numbers.any():
        return numbers
    first = np.empty(int(numbers.max(initial=-1)) + 1, np.int64)
    first[numbers[::-1]] = np.arange(len(numbers) - 1, -1, -1)
    return first[numbers]


@dataclass(frozen=True, slots=True)
class Marks:
    """The entries of all forms in the order of the dump, and those among them that have a mark."""

    order: Int64s
    """Their rows in the forms, counted from one form to the next."""
    start: Int64s
    end: Int64s
    telling: Bools
    head: Int64s
    """Rows with a mark: each that tells, and the first of each run of others."""

    @classmethod
    def of(cls, forms: Sequence[Form]) -> Marks:
        """One mark before each entry that tells, and one in place of each run of others."""
        starts = np.concatenate([form.alike.start for form in forms])
        order = np.argsort(starts)
        start, end = starts[order], np.concatenate([form.alike.end for form in forms])[order]
        telling = np.concatenate([form.telling for form in forms])[order]
        continues = np.zeros(len(start), np.bool_)
        continues[1:] = ~telling[1:] & ~telling[:-1] & (start[1:] == end[:-1])
        return cls(order, start, end, telling, np.flatnonzero(~continues))

    @property
    def overlap(self) -> bool:
        """Whether entries stand in each other, so that not all of them are entries."""
        return bool((self.start[1:] < self.end[:-1]).any())

    @property
    def lengths(self) -> Int64s:
        """How many rows there are from each mark to the next."""
        return np.diff(self.head, append=len(self.start))

    @property
    def omitted(self) -> Int64s:
        """How many entries each mark stands for; a mark before an entry that tells, for none."""
        return np.where(self.telling[self.head], 0, self.lengths)

    def abridgement(self, data: bytes) -> tuple[bytes, int]:
        """The dump with the marks, and without the entries that they stand for; and what the first mark is."""
        starts = self.start[self.head]
        ends = np.where(self.omitted > 0, self.end[self.head + self.lengths - 1], starts)
        kept = [
            data[end:start] for end, start in zip([0, *ends.tolist()], [*starts.tolist(), None], strict=True)
        ]
        token = _token_unlike(b"".join(kept))
        text = b"".join(
            part + MARK + number.to_bytes(NUMBER_BYTES, "little") + token
            for number, part in enumerate(kept[:-1])
        )
        return text + kept[-1], int.from_bytes(token, "little") << 8 * NUMBER_BYTES


def _token_unlike(data: bytes) -> bytes:
    tokens = (token.to_bytes(TOKEN_BYTES, "little") for token in count(FIRST_TOKEN))
    return next(token for token in tokens if token not in data)


# The entries of a dump, of which those that repeat others but for their numbers need not be decoded.


@dataclass(frozen=True, slots=True)
class Repeats:
    """Entries of one form: who tells what they say, field by field."""

    row: Int64s
    """Among the rows of all entries."""
    like: Int64s
    """For each a decoded entry that has the same fields."""
    tellers: Mapping[str, Int64s]
    """For each a decoded entry that says the same in a field."""
    numbers: Mapping[str, Int64s | None]
    """What each says itself in a field, -1 where it says None; None for a field of floats."""


@dataclass(frozen=True, slots=True)
class Entries:
    """All entries: those that were decoded, and those that repeat them."""

    decoded: Sequence[Any]
    row: Int64s
    """Of those that were decoded, among the rows of all."""
    count: int
    repeats: Sequence[Repeats] = ()

    @classmethod
    def all_decoded(cls, entries: Sequence[Any]) -> Entries:
        """Entries of which none is known to repeat another."""
        return cls(entries, np.arange(len(entries)), len(entries))

    def numbered(self, *fields: str) -> bool:
        """Whether a field has numbers that no decoded entry tells."""
        return any(field in repeat.numbers for repeat in self.repeats for field in fields)

    def told(self, field: str, column: Any) -> Any:
        """A column of what decoded entries say in a field, for all entries."""
        return column if not self.repeats else self._spread(field, column)

    def tellers(self, fields: Sequence[str]) -> list[Int64s]:
        """For each field a decoded entry that says the same, for all entries; the same array for fields told alike."""
        known: dict[tuple[int, ...], Int64s] = {}
        keys = [tuple(id(repeat.tellers.get(field)) for repeat in self.repeats) for field in fields]
        for key, field in zip(keys, fields, strict=True):
            if key not in known:
                known[key] = self.told(field, np.arange(len(self.decoded)))
        return [known[key] for key in keys]

    def numbers(self, field: str, column: Int64s) -> Int64s:
        """The same of a field whose whole numbers each entry says itself."""
        if not self.repeats:
            return column
        rows: Int64s = self._spread(field, column)
        for repeat in self.repeats:
            if (values := repeat.numbers.get(field)) is not None:
                rows[repeat.row] = values
        return rows

    def _spread(self, field: str, column: Any) -> Any:
        rows = np.empty(self.count, column.dtype)
        rows[self.row] = column
        for repeat in self.repeats:
            rows[repeat.row] = column[repeat.tellers.get(field, repeat.like)]
        return rows


# Decodes a dump without the entries that repeat others, which are most of it.


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
        dump = schema.dump_of(pickles.load_with_stable_memo(text, path))
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
