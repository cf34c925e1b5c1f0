r"""Abridged decoding: entries that repeat earlier ones, except for their numbers, are not decoded.

Most of a dump are entries of a few forms: the same keys, and only known strings. All entries of a form are scanned at
once, span by span and number by number. Entries with a new span are decoded; each run of others becomes a marker in
the pickle. Numbers in a dump are not negative: UNKNOWN represents None.

An example, of which a test holds every byte. A dump has four entries, of records 7 to 10. The first has all strings,
and the PUTs by which later entries know them (`q` and a memo index):

    }(X\t\0\0\0record_idq\1  K\7  X…profiling_nameq\2 X…nccl:all_reduceq\3  X…time_created_nsq\4  \x8a\x08…  …u

The others are spans of GETs (`h` and a memo index), and numbers between them. A number is `K` and a byte, `\x8a\x08`
and eight bytes, or another opcode of `_INTEGERS`; `](](K\2K\4ee` is a list of sizes, and belongs to a span:

    span        number  span                number          span
    }( h\1      K\x08   h\2 h\3  h\4      \x8a\x08 time8  h\5 ](](K\2K\4ee u     record 8: decoded
    }( h\1      K\x09   h\2 h\3  h\4      \x8a\x08 time9  h\5 ](](K\2K\4ee u     record 9: the spans of 8
    }( h\1      K\x0a   h\2 h\3  h\4      \x8a\x08 time10 h\5 ](](K\2K\4ee u     record 10: the spans of 8

So all three have one form with the keys (record_id), (profiling_name, time_created_ns), (input_sizes), and all their
numbers are read into two columns. In the pickle that is decoded, marker 0 is before record 8, and marker 1 in place of
records 9 and 10. A marker is an integer: its number, and `mark` or another token that is in no kept byte:

    ](  …entry of record 7…  \x8a\x08\0\0\0\0mark  …entry of record 8…  \x8a\x08\1\0\0\0mark  e
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import count, islice
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._io.pickles import GET, STOP
from tracelink._model.columns import UNKNOWN, Bools, Float64s, Int64s
from tracelink._model.errors import UnreadableError
from tracelink.converters.flight_recorder import pickles, schema

_INTEGER = rb"(?:K.|M..|J.{4}|\x8a\x08.{8})"
_LIST = rb"\]\((?:%b|\]\(%b*+e)*+e" % (GET, _INTEGER)
_WORD = rb"(?:%b%b\x86|%b|[\x88\x89]|%b)" % (GET, GET, GET, _LIST)
"""A pair of strings, a string, a flag, or a list of strings or of sizes."""

_FIELDS = rb"(?>%b%b)*+" % (GET, _WORD)
_TO_A_NUMBER = _FIELDS + GET + rb"(?=[KMJGN\x8a])"

_FIRST = re.compile(rb"\}\(" + _TO_A_NUMBER, re.DOTALL)
_MIDDLE = re.compile(_TO_A_NUMBER, re.DOTALL)
_LAST = re.compile(_FIELDS + rb"u(?![qr])", re.DOTALL)
"""An entry with a PUT is shared, and so is always decoded."""

_NUMBER = re.compile(rb"%b|(G).{8}|N" % _INTEGER, re.DOTALL)

_KEYS = re.compile(rb"(%b)(?:%b)?+" % (GET, _WORD), re.DOTALL)
"""The keys of a span."""

_MOST_NUMBERS = 64
"""In one entry; torch writes ten."""

_SHORT_PUT, _LONG_PUT = b"qr"
_GET_OF = {_SHORT_PUT: b"h", _LONG_PUT: b"j"}

_FIRST_ENTRY = re.compile(
    rb"X\x07\0\0\0entries(?:q.|r.{4})\]\(\}\((?:(?P<known>%b)|X(?P<size>.{4}))" % GET, re.DOTALL
)
"""The start of the list of entries, up to the first key of its first entry."""

_NONE, _FLOAT, _LONG = b"NG\x8a"
_INTEGERS = {ord("K"): ("u1", 1), ord("M"): ("<u2", 1), ord("J"): ("<i4", 1), _LONG: ("<i8", 2)}
"""The type and the offset of the number after each opcode."""

_LONG_BYTES = 8
_WIDTHS = np.zeros(256, np.int64)
_WIDTHS[[_NONE, _FLOAT, *_INTEGERS]] = (1, 9, 2, 3, 5, 10)
"""Bytes of a number with its opcode."""

_LONGEST_NUMBER = 10
_LONGEST_SPAN = 1 << 11
_WORD_BYTES = 8
_MOST_FORMS = 8
_MOST_SIZES = 16
"""Lengths of a span that are compared in all entries at once; spans of other lengths, one entry at a time."""

_BUCKET_BITS = 12
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
"""Odd and without a pattern: the upper bits of a product depend on all bits."""

_MARKER = b"\x8a\x08"
_NUMBER_BYTES = _TOKEN_BYTES = 4
_FIRST_TOKEN = 0x6B72616D
"""A marker is an integer: its number, and in the upper bytes a token that does not occur in the kept bytes."""

_OPENED = b"}("
_MOST_ENTRIES = 1 << 18
"""More dicts are not scanned: scanning takes about 200 bytes of memory for each."""

_FEWEST = 64
"""Fewer entries are all decoded: abridging would take longer."""


# Grammar of entries without new strings: spans of fields, each followed by a number


def _entry_start(data: bytes) -> bytes | None:
    """The first bytes of entries without new keys; None without a first entry."""
    first = _FIRST_ENTRY.search(data)
    if not first or first["known"]:
        return b"}(" + first["known"] if first else None
    end = first.end() + int.from_bytes(first["size"], "little")
    put = data[end : end + 5]
    if len(put) < 5 or put[0] not in _GET_OF:
        return None
    return b"}(" + _GET_OF[put[0]] + (put[1:2] if put[0] == _SHORT_PUT else put[1:])


def _float_flags(data: bytes, start: int) -> list[bool] | None:
    """For each number of the entry at `start`, whether it is a float; None if the entry has new strings."""
    floats: list[bool] = []
    span = _FIRST.match(data, start)
    while span and len(floats) < _MOST_NUMBERS and (number := _NUMBER.match(data, span.end())):
        floats.append(number.lastindex is not None)
        if _LAST.match(data, number.end()):
            return floats
        span = _MIDDLE.match(data, number.end())
    return None


# Scan of all entries of a form


class SimilarEntries(Struct, frozen=True):
    """Entries with the same keys in the same order, and with numbers in the same fields."""

    start: Int64s
    end: Int64s
    spans: Sequence[Int64s]
    """For each span a number, equal for equal spans."""
    keys: Sequence[int]
    """Number of keys in each span; all but the last end in the key of a number."""
    numbers: Sequence[Int64s | Float64s]


def _similar_entries(data: bytes) -> list[SimilarEntries]:
    """All byte ranges that look like entries without new strings, by form."""
    padded = data + bytes(2 * _LONGEST_SPAN + _WORD_BYTES)
    starts = _starts(data, padded)
    left = np.ones(len(starts), np.bool_)
    found: list[SimilarEntries] = []
    for row, start in enumerate(starts.tolist()):
        if left[row] and len(found) < _MOST_FORMS and (floats := _float_flags(data, start)):
            rows = row + left[row:].nonzero()[0]
            scan = _FormScan(data, padded, starts[rows])
            found.append(scan.entries(floats))
            left[rows[scan.rows]] = False
    return [similar for similar in found if len(similar.start)]


def _starts(data: bytes, padded: bytes) -> Int64s:
    """Offsets where entries may start."""
    opening = _entry_start(data)
    if opening is None:
        return np.empty(0, np.int64)
    starts = (np.frombuffer(data, np.uint8) == opening[0]).nonzero()[0]
    first = np.uint64(int.from_bytes(opening, "little"))
    read = _part(_read(padded, _WORD_BYTES, starts), "<u8") & np.uint64((1 << 8 * len(opening)) - 1)
    return starts[read == first]


def _read(padded: bytes, size: int, offsets: Int64s) -> Any:
    """`size` bytes at each offset; arbitrary bytes for offsets after the dump, where no entry ends."""
    windows = np.ndarray(len(padded) - size + 1, f"V{size}", padded, strides=(1,))
    return windows[np.minimum(offsets, len(windows) - 1)]


def _part(read: Any, kind: str, at: int = 0) -> Any:
    """The bytes after the first `at` ones, as values of another type."""
    return np.ndarray(len(read), kind, read, at, (read.itemsize,))


def _words(read: Any, size: int) -> list[Any]:
    """The first `size` bytes as words, because NumPy compares strings byte by byte."""
    words = [_part(read, "<u8", at) for at in range(0, size, _WORD_BYTES)]
    if size % _WORD_BYTES:
        words[-1] = words[-1] & np.uint64((1 << 8 * (size % _WORD_BYTES)) - 1)
    return words


def _first_equal(words: Sequence[Any]) -> Int64s:
    """For each row the first row with the same words; UNKNOWN for rows with a hash collision."""
    hashed = words[0] * _MULTIPLIER
    for word in words[1:]:
        hashed = (hashed ^ word) * _MULTIPLIER
    bucket = (hashed >> np.uint64(64 - _BUCKET_BITS)).astype(np.int64)
    first_of = np.empty(1 << _BUCKET_BITS, np.int64)
    first_of[bucket[::-1]] = np.arange(len(bucket) - 1, -1, -1)
    first = first_of[bucket]
    equal = np.ones(len(first), np.bool_)
    for word in words:
        equal &= word == word[first]
    return np.where(equal, first, UNKNOWN)


class _FormScan:
    """An offset in each of many entries, which advance together; entries that do not match are dropped."""

    def __init__(self, data: bytes, padded: bytes, starts: Int64s) -> None:
        self.data, self.padded, self.starts = data, padded, starts
        self.rows, self.at = np.arange(len(starts)), starts.copy()
        self.spans: list[Int64s] = []
        self.keys: list[int] = []
        self.numbers: list[Int64s | Float64s] = []

    def entries(self, floats: Sequence[bool]) -> SimilarEntries:
        """The entries of the form with these numbers."""
        self.span(_FIRST)
        for is_float in floats[:-1]:
            self.number(is_float)
            self.span(_MIDDLE)
        self.number(floats[-1])
        self.span(_LAST)
        self.keep(self.at <= len(self.data))
        return SimilarEntries(self.starts[self.rows], self.at, self.spans, self.keys, self.numbers)

    def keep(self, matching: Bools) -> None:
        """Drops all other entries."""
        if not matching.all():
            self.rows, self.at = self.rows[matching], self.at[matching]
            self.spans = [span[matching] for span in self.spans]
            self.numbers = [values[matching] for values in self.numbers]

    def span(self, form: re.Pattern[bytes]) -> None:
        """Scans a span in all entries; equal spans get the same number."""
        numbers, distinct = np.full(len(self.at), UNKNOWN, np.int64), _Spans(form, self.data)
        rows, size_count = np.arange(len(self.at)), 0
        while len(rows) and size_count < _MOST_SIZES:
            number = distinct.number_at(int(self.at[rows[0]]))
            if number == UNKNOWN:
                rows = rows[1:]
                continue
            numbers[rows] = found = self._equal(rows, distinct, distinct.sizes[number])
            rows, size_count = rows[found == UNKNOWN], size_count + 1
        numbers[rows] = [distinct.number_at(offset) for offset in self.at[rows].tolist()]
        self.spans.append(numbers)
        self.keys.append(len(distinct.keys))
        self.at = self.at + np.array([*distinct.sizes, 0])[numbers]
        self.keep(np.array([*distinct.same_keys, False])[numbers])

    def _equal(self, rows: Int64s, distinct: _Spans, size: int) -> Int64s:
        """The numbers of spans of at most `size` bytes; UNKNOWN for others, and for rare ones."""
        offsets = self.at[rows]
        words = _words(_read(self.padded, -(-size // _WORD_BYTES) * _WORD_BYTES, offsets), size)
        if all((word == word[0]).all() for word in words):
            return np.full(len(rows), distinct.number_at(int(offsets[0])), np.int64)
        first = _first_equal(words)
        known = np.full(len(rows) + 1, UNKNOWN, np.int64)
        common = np.bincount(first + 1, minlength=1)[1:] > 1
        common[:1] = True
        for row in common.nonzero()[0].tolist():
            number = distinct.number_at(int(offsets[row]))
            if number != UNKNOWN and distinct.sizes[number] <= size:
                known[row] = number
        return known[first]

    def number(self, is_float: bool) -> None:
        """Scans a number in all entries."""
        read = _read(self.padded, _LONGEST_NUMBER, self.at)
        opcode = _part(read, "u1")
        if is_float:
            self.at = self.at + _WIDTHS[_FLOAT]
            floats = _part(read, ">f8", 1) if len(read) else np.empty(0)
            self.numbers.append(floats.astype(np.float64))
            self.keep(opcode == _FLOAT)
            return
        values, codes = np.full(len(self.at), UNKNOWN, np.int64), opcode.tobytes()
        for code, (kind, before) in _INTEGERS.items():
            if code in codes:
                np.copyto(values, _part(read, kind, before), where=opcode == code)
        if _LONG in codes:
            values[(opcode == _LONG) & (_part(read, "u1", 1) != _LONG_BYTES)] = UNKNOWN
        self.at = self.at + _WIDTHS[opcode]
        self.numbers.append(values)
        self.keep((values >= 0) | (opcode == _NONE))


class _Spans:
    """Distinct spans, each with a number."""

    def __init__(self, form: re.Pattern[bytes], data: bytes) -> None:
        self.form, self.data = form, data
        self.sizes: list[int] = []
        self.same_keys: list[bool] = []
        """True for each that has the keys of the first."""
        self.keys: list[bytes] = []
        self._numbers: dict[bytes, int] = {}

    def number_at(self, offset: int) -> int:
        """The number of the span at an offset; UNKNOWN without a span."""
        found = self.form.match(self.data, offset)
        if not found or len(found[0]) > _LONGEST_SPAN:
            return UNKNOWN
        if (known := self._numbers.get(found[0])) is not None:
            return known
        keys = _KEYS.findall(found[0])
        self.keys = self.keys or keys
        self.same_keys.append(keys == self.keys)
        self.sizes.append(len(found[0]))
        return self._numbers.setdefault(found[0], len(self._numbers))


# Markers in place of entries that repeat others


class Form(Struct, frozen=True):
    """Entries of one form, and for each of their spans the first row with an equal one."""

    similar: SimilarEntries
    first: Sequence[Int64s]

    @classmethod
    def of(cls, similar: SimilarEntries) -> Form:
        """The form of these entries."""
        return cls(similar, [_first_of_equal(span) for span in similar.spans])

    @property
    def decoded_rows(self) -> Bools:
        """True for each entry with a span that no earlier entry has."""
        decoded_rows = np.zeros(len(self.similar.start), np.bool_)
        for first in self.first:
            decoded_rows[first] = True
        return decoded_rows


def _first_of_equal(numbers: Int64s) -> Int64s:
    if not numbers.any():
        return numbers
    first = np.empty(int(numbers.max(initial=-1)) + 1, np.int64)
    first[numbers[::-1]] = np.arange(len(numbers) - 1, -1, -1)
    return first[numbers]


class Markers(Struct, frozen=True):
    """The entries of all forms in the order of the dump, and which of them have a marker."""

    order: Int64s
    """Their rows among the entries of all forms, one form after the other."""
    start: Int64s
    end: Int64s
    decoded_rows: Bools
    head: Int64s
    """Rows with a marker: each decoded entry, and the first of each run of others."""

    @classmethod
    def of(cls, forms: Sequence[Form], requested: Bools | None = None) -> Markers:
        """One marker before each decoded entry, and one in place of each run of others.

        Entries that are `requested`, in the order of the forms, are decoded, too.
        """
        starts = np.concatenate([form.similar.start for form in forms])
        order = np.argsort(starts)
        start, end = starts[order], np.concatenate([form.similar.end for form in forms])[order]
        decoded_rows = np.concatenate([form.decoded_rows for form in forms])
        decoded_rows = (decoded_rows if requested is None else decoded_rows | requested)[order]
        continues = np.zeros(len(start), np.bool_)
        continues[1:] = ~decoded_rows[1:] & ~decoded_rows[:-1] & (start[1:] == end[:-1])
        return cls(order, start, end, decoded_rows, np.flatnonzero(~continues))

    @property
    def overlap(self) -> bool:
        """True if byte ranges overlap, so that not all of them are entries."""
        return bool((self.start[1:] < self.end[:-1]).any())

    @property
    def lengths(self) -> Int64s:
        """Number of rows from each marker to the next."""
        return np.diff(self.head, append=len(self.start))

    @property
    def omitted(self) -> Int64s:
        """Number of entries that each marker replaces; 0 before a decoded entry."""
        return np.where(self.decoded_rows[self.head], 0, self.lengths)

    def abridgement(self, data: bytes) -> tuple[bytes, int]:
        """The dump with markers in place of entries, and the value of the first marker."""
        starts = self.start[self.head]
        ends = np.where(self.omitted > 0, self.end[self.head + self.lengths - 1], starts)
        kept = [
            data[end:start] for end, start in zip([0, *ends.tolist()], [*starts.tolist(), None], strict=True)
        ]
        token = _unused_token(b"".join(kept))
        padded = b"".join(
            part + _MARKER + number.to_bytes(_NUMBER_BYTES, "little") + token
            for number, part in enumerate(kept[:-1])
        )
        return padded + kept[-1], int.from_bytes(token, "little") << 8 * _NUMBER_BYTES


def _unused_token(data: bytes) -> bytes:
    tokens = (token.to_bytes(_TOKEN_BYTES, "little") for token in count(_FIRST_TOKEN))
    return next(token for token in tokens if token not in data)


# Entries: decoded, or repeating decoded ones


class Repeats(Struct, frozen=True):
    """Entries of one form: for each field, which decoded entries provide its values."""

    row: Int64s
    """Their rows among all entries."""
    like: Int64s
    """For each entry a decoded entry with the same fields."""
    providers: Mapping[str, Int64s]
    """For each entry a decoded entry with the same value, by field."""
    numbers: Mapping[str, Int64s]
    """The integers of the entries themselves by field, UNKNOWN for None."""
    floats: Mapping[str, Float64s]
    """The same for fields of floats."""


class Entries(Struct, frozen=True):
    """All entries: the decoded ones, and those that repeat them."""

    decoded: Sequence[Any]
    row: Int64s
    """The rows of the decoded entries among all entries."""
    count: int
    repeats: Sequence[Repeats] = ()

    @classmethod
    def all_decoded(cls, entries: Sequence[Any]) -> Entries:
        """Entries that are all decoded."""
        return cls(entries, np.arange(len(entries)), len(entries))

    def has_numbers_in(self, *fields: str) -> bool:
        """True if repeating entries have numbers of their own in one of the fields."""
        return any(
            field in repeat.numbers or field in repeat.floats for repeat in self.repeats for field in fields
        )

    def spread(self, field: str, column: Any) -> Any:
        """A column of decoded entries, for all entries."""
        return column if not self.repeats else self._spread(field, column)

    def providers(self, fields: Sequence[str]) -> list[Int64s]:
        """For each field and entry a decoded entry with the same value; equal results are one array."""
        known: dict[tuple[int, ...], Int64s] = {}
        keys = [tuple(id(repeat.providers.get(field)) for repeat in self.repeats) for field in fields]
        for key, field in zip(keys, fields, strict=True):
            if key not in known:
                known[key] = self.spread(field, np.arange(len(self.decoded)))
        return [known[key] for key in keys]

    def numbers(self, field: str, column: Int64s) -> Int64s:
        """A column of integers of decoded entries, for all entries; repeating entries have numbers of their own."""
        if not self.repeats:
            return column
        rows: Int64s = self._spread(field, column)
        for repeat in self.repeats:
            if (values := repeat.numbers.get(field)) is not None:
                rows[repeat.row] = values
        return rows

    def floats(self, field: str, column: Float64s) -> Float64s:
        """A column of numbers of decoded entries, for all entries, NaN if unknown; as `numbers`, for any numbers."""
        rows: Float64s = self.spread(field, column)
        for repeat in self.repeats:
            if (values := repeat.floats.get(field)) is not None:
                rows[repeat.row] = values
            elif (integers := repeat.numbers.get(field)) is not None:
                rows[repeat.row] = np.where(integers == UNKNOWN, np.nan, integers)
        return rows

    def _spread(self, field: str, column: Any) -> Any:
        rows = np.empty(self.count, column.dtype)
        rows[self.row] = column
        for repeat in self.repeats:
            rows[repeat.row] = column[repeat.providers.get(field, repeat.like)]
        return rows


# Decoding without the repeating entries


def abridged(data: bytes, path: str, fewest: int = _FEWEST) -> tuple[schema.Dump, Entries] | None:
    """The dump with its decoded entries, and all its entries; None unless most of them repeat others."""
    forms = find_forms(data)
    if sum(len(form.similar.start) for form in forms) < fewest:
        return None
    markers = Markers.of(forms)
    if markers.overlap or 2 * np.count_nonzero(markers.decoded_rows) > len(markers.decoded_rows):
        return None
    dump, members = _decoded_with(markers, data, path)
    repeats = _repeats(forms, members) if members else None
    if not dump or not members or repeats is None:
        return None
    entries = Entries(members.decoded, members.row, members.count, repeats)
    return replace(dump, entries=members.decoded), entries


def selected(data: bytes, path: str, rows: Collection[int]) -> tuple[schema.Dump, dict[int, Any]] | None:
    """The dump, with only those of its entries that are decoded: at least the ones in these rows, by row.

    None unless most entries repeat others.
    """
    forms = find_forms(data)
    markers = Markers.of(forms) if forms else None
    if not markers or markers.overlap:
        return None
    _, members = _decoded_with(markers, data, path)
    if not members:
        return None
    dump, members = _decoded_with(Markers.of(forms, np.isin(members.row_of_form, [*rows])), data, path)
    if not dump or not members:
        return None
    found = dict(zip(members.row.tolist(), members.decoded, strict=True))
    return replace(dump, entries=members.decoded), found


def find_forms(data: bytes) -> list[Form]:
    """The forms of entries that may repeat others; none of a truncated dump, or of one with too many entries."""
    # Counting takes a tenth of the time that reading takes: not where there cannot be so many.
    may_be_too_many = len(data) > len(_OPENED) * _MOST_ENTRIES
    if not data.endswith(STOP) or (may_be_too_many and data.count(_OPENED) > _MOST_ENTRIES):
        return []
    return [Form.of(similar) for similar in _similar_entries(data)]


def _decoded_with(
    markers: Markers, data: bytes, path: str
) -> tuple[schema.Dump, _Members] | tuple[None, None]:
    """The dump with markers in place of entries, and its list of entries; None if it is invalid or too large."""
    padded, first_mark = markers.abridgement(data)
    try:
        pickles.refuse_if_too_large(padded, pickles.COSTS, path)
        dump = schema.dump_of(pickles.load_with_stable_memo(padded, path))
    except UnreadableError:
        return None, None
    members = _Members.of(dump.entries, markers, first_mark) if dump else None
    return (dump, members) if dump and members else (None, None)


class _Members(Struct, frozen=True):
    """The decoded list, separated into entries and markers."""

    decoded: list[dict[Any, Any]]
    row: Int64s
    """The rows of the decoded entries among all entries."""
    count: int
    row_of_form: Int64s
    """The row of each entry of a form."""
    decoded_of_form: Int64s
    """For each entry of a form its index among the decoded ones, if it is decoded."""

    @classmethod
    def of(cls, members: Sequence[Any], markers: Markers, first_mark: int) -> _Members | None:
        """None unless the list consists of entries and of all markers in their order."""
        decoded: list[dict[Any, Any]] = []
        rows: list[int] = []
        marked: list[int] = []
        follows: list[int] = []
        row = 0
        omitted = markers.omitted.tolist()
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
        row_of_form, decoded_of_form = np.empty((2, len(markers.order)), np.int64)
        within = np.arange(len(markers.order)) - np.repeat(markers.head, markers.lengths)
        row_of_form[markers.order] = np.repeat(np.array(marked, np.int64), markers.lengths) + within
        decoded_of_form[markers.order] = np.repeat(np.array(follows, np.int64), markers.lengths)
        return cls(decoded, np.array(rows, np.int64), row, row_of_form, decoded_of_form)


def _repeats(forms: Sequence[Form], members: _Members) -> list[Repeats] | None:
    """The providers by field; None for duplicate fields, where a later span would count."""
    repeats = []
    ends = np.cumsum([len(form.similar.start) for form in forms])
    for form, end in zip(forms, ends.tolist(), strict=True):
        rows = slice(end - len(form.similar.start), end)
        providers = [members.decoded_of_form[rows][first] for first in form.first]
        fields = iter(names := list(members.decoded[providers[0][0]]))
        if len(names) != sum(form.similar.keys):
            return None
        by_field: dict[str, Int64s] = {}
        numbers: dict[str, Int64s] = {}
        floats: dict[str, Float64s] = {}
        for provider, keys, values in zip(providers, form.similar.keys, form.similar.numbers, strict=False):
            by_field |= dict.fromkeys(islice(fields, keys - 1), provider)
            kept: dict[str, Any] = floats if values.dtype.kind == "f" else numbers
            kept[next(fields)] = values
        by_field |= dict.fromkeys(fields, providers[-1])
        repeats.append(Repeats(members.row_of_form[rows], providers[0], by_field, numbers, floats))
    return repeats
