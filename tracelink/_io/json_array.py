"""One long array in a JSON document, read in pieces and without loading the document; its elements can be read again.

Damage costs the element it is in, and is reported with its byte offset.
"""

from __future__ import annotations

import json
import os
import re
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import accumulate
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np
from msgspec import Struct, field

from tracelink._io.salvage import Damage, parse_document, parse_elements
from tracelink._io.sources import Opened, Source
from tracelink._model.columns import Int64s
from tracelink._model.errors import UnreadableError
from tracelink._model.findings import Finding, Severity, Truncated
from tracelink._model.text import number, subject
from tracelink._model.trace import Payload, Payloads

Decoded = TypeVar("Decoded")

PIECE = 1 << 20
"""Bytes of a piece: its decoded elements fit into the processor's cache."""

FEWEST_BYTES = 8
"""A long piece with smaller elements is decoded part by part: they take a multiple of its size."""

LONGEST = 512 << 20
"""The longest header, element or trailer that is held in memory."""

BOM = b"\xef\xbb\xbf"


class ArrayFormat(Struct, Generic[Decoded], frozen=True):
    """The array of a format that contains its elements, and how to decode a piece of it."""

    key: str
    """The key of the array in the document."""
    first_keys: tuple[str, ...]
    """Keys that an element starts with; the first of them never starts an object inside an element."""
    decode: Callable[[memoryview], Decoded]
    """Decodes the text of an array of elements."""
    convert: Callable[[list[Any]], Decoded]
    """The same for elements that only the lenient parser could read."""


class Part(Struct, frozen=True):
    """Bytes [start, stop) of the uncompressed document; both are between elements."""

    start: int = 0
    stop: int | None = None


class ArrayDocument(Struct, Generic[Decoded]):
    """One document, or a part of one. The other attributes are complete after `pieces()` was iterated to its end."""

    source: Source
    format: ArrayFormat[Decoded]
    part: Part = field(default_factory=Part)
    skips: Callable[[int, int], bool] | None = None
    """True if a valid piece with these offsets of its start and end is not decoded."""
    header: Mapping[str, Any] = field(default_factory=dict)
    """The keys of the document before the array and after it."""
    damage: list[Damage] = field(default_factory=list)
    truncated_at: int | None = None
    """The byte offset at which the document is truncated; None if it is complete."""
    truncated_reason: str = ""

    def pieces(self, count: Callable[[int], None]) -> Iterator[tuple[int, Decoded]]:
        """Yields the byte offset and the elements of each piece; calls `count` with the number of bytes read."""
        with self.source.open() as stream:
            yield from _Scan(self, stream, count).run()

    def boundary_near(self, offset: int) -> int | None:
        """The offset of an element that starts soon after `offset`, in an uncompressed file; None if there is none."""
        pattern = _boundary(self.format.first_keys[:1])
        with self.source.open() as stream:
            stream.skip(offset)
            match = pattern.search(stream.read(4 * PIECE))
        return None if match is None else offset + match.start("element")


def _boundary(keys: tuple[str, ...]) -> re.Pattern[bytes]:
    return re.compile(rb"\}\s*(?P<comma>,)\s*(?P<element>\{)\s*\"(?:%s)\"\s*:" % "|".join(keys).encode())


class _Scan(Generic[Decoded]):
    """Reads one part, through a buffer whose first byte is reserved for the bracket that opens a piece."""

    def __init__(
        self, document: ArrayDocument[Decoded], stream: Opened, count: Callable[[int], None]
    ) -> None:
        self.document = document
        self.format = document.format
        self.stream = stream
        self.count = count
        self.best_boundary = _boundary(self.format.first_keys[:1])
        self.any_boundary = _boundary(self.format.first_keys)
        self.text_boundary = re.compile(self.any_boundary.pattern.decode())
        self.sure_boundary = re.compile(self.best_boundary.pattern.decode())
        self.buffer = bytearray(2 * PIECE)
        self.end = 1
        self.offset = document.part.start - 1
        """Offset in the document of the first byte of the buffer."""
        self.left = None if document.part.stop is None else document.part.stop - document.part.start
        self.finished = False
        self.bare = False
        """True if the document is the array itself, not an object that contains it."""
        self.closed = False
        """True if the array ended."""
        self.unfinished = False
        """True if the last element that did not parse is truncated by the end of the text."""

    def run(self) -> Iterator[tuple[int, Decoded]]:
        if start := self.document.part.start:
            beginning = self.stream.read(min(start, 256))
            self.bare = beginning.removeprefix(BOM).lstrip().startswith(b"[")
            self.stream.skip(start - len(beginning))
        elif not self._header():
            return
        while not self.closed:
            if not self.finished:
                self._fill()
            cut = self._last_boundary()
            if cut is None:
                if not self.finished:
                    self._fill(self.end)  # as much again: long elements are searched only a few times
                    continue
                yield from self._tail()
                return
            comma, element = cut
            offset = self.offset + 1
            decoded = self._fast(comma, element)
            if decoded is not None:
                self._discard(element)
                yield offset, decoded
                continue
            yield from self._lenient(element, final=False)
            if self.finished and not self.closed and self.offset + 1 == offset:
                yield from self._tail()
                return
        self._trailer()

    def _fill(self, least: int = 0) -> None:
        wanted = max(PIECE, least)
        while len(self.buffer) - self.end < wanted:
            self._grow()
        if self.left is not None:
            wanted = min(wanted, self.left)
        got = self.stream.readinto(memoryview(self.buffer)[self.end : self.end + wanted]) if wanted else 0
        self.end += got
        self.count(got)
        if self.left is not None:
            self.left -= got
        self.finished = got < wanted or self.left == 0

    def _grow(self) -> None:
        if len(self.buffer) > LONGEST:
            raise UnreadableError(
                f"no end of an element within {LONGEST >> 20} MB",
                source=self.document.source.path,
                position=f"byte {self.offset + 1}",
                advice="The file is not a trace, or is damaged there.",
            )
        self.buffer.extend(bytes(len(self.buffer)))

    def _discard(self, until: int) -> None:
        """Drops the buffer before `until`; the rest moves to the byte after the bracket."""
        kept = self.buffer[until : self.end]
        self.buffer[1 : 1 + len(kept)] = kept
        self.offset += until - 1
        self.end = 1 + len(kept)

    def _header(self) -> bool:
        """Reads up to the array; False if the document has none."""
        opening = re.compile(rb"\"%s\"\s*:\s*\[" % self.format.key.encode())
        while True:
            self._fill(self.end - 1)  # as much again: long headers are searched only a few times
            start = 1 + (len(BOM) if self.buffer.startswith(BOM, 1) else 0)
            text = bytes(memoryview(self.buffer)[start : min(self.end, start + 256)]).lstrip()
            if text.startswith(b"["):
                self.bare = True
                self._discard(self.buffer.index(b"[", start) + 1)
                return True
            if match := opening.search(self.buffer, 1, self.end):
                self._read_header(bytes(self.buffer[start : match.start()]))
                self._discard(match.end())
                return True
            if self.finished:
                self._no_array(bytes(self.buffer[start : self.end]))
                return False

    def _read_header(self, text: bytes) -> None:
        try:
            self.document.header = parse_document(text.rstrip().rstrip(b",") + b"}")
        except ValueError as error:
            self.document.damage.append(Damage(0, f"the keys before {self.format.key!r}: {error}"))

    def _no_array(self, text: bytes) -> None:
        damage = self.stream.damage
        if not text.strip():
            problem = f"the file is empty ({damage})" if damage else "the file is empty"
            raise UnreadableError(problem, source=self.document.source.path, advice="Record it again.")
        try:
            header = parse_document(text)
        except ValueError:
            header = None
        if not isinstance(header, dict) or damage:
            raise UnreadableError(
                f"cut off before {self.format.key!r}" + (f" ({damage})" if damage else ""),
                source=self.document.source.path,
                position=f"byte {self.end - 1}",
                advice="Nothing can be read from it. Copy or record it again.",
            )
        self.document.header = header
        raise UnreadableError(
            f"it has no {self.format.key!r}",
            source=self.document.source.path,
            advice="Is this the file that the profiler wrote?",
        )

    def _last_boundary(self) -> tuple[int, int] | None:
        at = self.end
        for _ in range(64):
            at = self.buffer.rfind(b"},", 1, at)
            if at < 0:
                break
            if match := self.best_boundary.match(self.buffer, at, self.end):
                return match.start("comma"), match.start("element")
        last = None
        for pattern in (self.best_boundary, self.any_boundary):
            for match in pattern.finditer(self.buffer, 1, self.end):
                last = match
            if last:
                return last.start("comma"), last.start("element")
        return None

    def _fast(self, comma: int, element: int) -> Decoded | None:
        """Decodes the piece before `comma` in place; None if it is not valid."""
        skips = self.document.skips
        if skips and skips(self.offset + 1, self.offset + element):
            return self.format.convert([])
        if comma > 2 * PIECE and self.buffer.count(b",", 1, comma) > comma // FEWEST_BYTES:
            return None
        self.buffer[0:1] = b"["
        self.buffer[comma : comma + 1] = b"]"
        view = memoryview(self.buffer)
        try:
            return self.format.decode(view[: comma + 1])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        finally:
            view.release()
            self.buffer[comma : comma + 1] = b","

    def _lenient(self, until: int, *, final: bool) -> Iterator[tuple[int, Decoded]]:
        """Offset and elements of each part of the text before `until` that could be used."""
        text = bytes(self.buffer[1:until])
        base, used = self.offset + 1, 0
        for salvaged in parse_elements(text, self.text_boundary, final=final, sure=self.sure_boundary):
            self.document.damage += [
                Damage(base + damage.position, damage.problem, damage.repaired) for damage in salvaged.damage
            ]
            self.unfinished = salvaged.unfinished
            self.closed = salvaged.closed
            if salvaged.consumed > used:
                decoded = None if salvaged.damage else self._strict(text[used : salvaged.consumed])
                yield base + used, decoded or self.format.convert(salvaged.elements)
            used = salvaged.consumed
        self._discard(1 + used)

    def _strict(self, text: bytes) -> Decoded | None:
        """Decodes complete elements, with or without the closing bracket; None if they are not valid."""
        try:
            return self.format.decode(memoryview(b"[" + text.rstrip(b" \t\r\n,]") + b"]"))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

    def _tail(self) -> Iterator[tuple[int, Decoded]]:
        """Reads the last elements, the end of the array, and what follows it."""
        yield from self._lenient(self.end, final=True)
        if self.closed:
            self._trailer()
        elif self.document.part.stop is None:
            if self.unfinished:
                self.document.damage.pop()
            self.document.truncated_at = self.offset + self.end
            self.document.truncated_reason = self.stream.damage or "the text ends inside the array"

    def _trailer(self) -> None:
        while not self.finished:
            self._fill()
        text = bytes(self.buffer[1 : self.end]).strip()
        problem = self._after(text)
        if problem or self.stream.damage:
            self.document.truncated_at = self.offset + self.end
            self.document.truncated_reason = self.stream.damage or problem

    def _after(self, text: bytes) -> str:
        """Adds the keys after the array to the header; returns what is wrong with them, if anything."""
        if not text:
            return (
                "" if self.bare or self.document.part.stop is not None else "the text ends before the last }"
            )
        if text == b"}":
            return ""
        try:
            self.document.header = {
                **self.document.header,
                **parse_document(b"{" + text.lstrip(b", \t\r\n")),
            }
        except ValueError:
            return f"the keys after {self.format.key!r} do not parse"
        return ""


# Findings on text that did not parse, in the same words for every format


def damage_findings(
    path: str,
    damage: Sequence[Damage],
    truncated_at: tuple[int, str] | None,
    kept: int,
    what: str,
    aside: str = "",
) -> Iterator[Finding]:
    """Findings on a damaged file of which `kept` of `what` (such as `event`) are used.

    `aside` is appended to the sentence on what is used of a truncated file.
    """
    if truncated_at:
        offset, reason = truncated_at
        yield Truncated(path, reason, kept, what, offset, aside).finding()
    lost = [item for item in damage if not item.repaired]
    if lost:
        places = "1 place does" if len(lost) == 1 else f"{number(len(lost))} places do"
        text = f"{path}: {places} not parse, {_first(lost)}; {subject(kept, what, 'are')} used."
        yield _finding("damaged", text, path, lost)
    repaired = [item for item in damage if item.repaired]
    if repaired:
        text = (
            f"{path}: {subject(len(repaired), what, 'were')} not valid JSON, and mended, {_first(repaired)}."
        )
        yield _finding("repaired", text, path, repaired)


def _first(damage: Sequence[Damage]) -> str:
    return f"first at byte {damage[0].position} ({damage[0].problem})"


def _finding(reason: str, text: str, path: str, damage: Sequence[Damage]) -> Finding:
    return Finding(Severity.WARNING, reason, text, len(damage), path, f"byte {damage[0].position}")


# Arguments of events, read again from the source


FAR = 1 << 11
"""This many consecutive payloads that are not needed are skipped instead of decoded."""

LARGEST = sys.float_info.max
"""Larger numbers are returned as strings: few readers of JSON can represent them."""


class RereadPayloads(Struct, frozen=True):
    """The payloads of a long array, by the offsets of its pieces and the numbers of their elements."""

    source: Source
    format: ArrayFormat[list[Payload]]
    """Decodes a piece to the payload of each element."""
    offsets: Sequence[int]
    counts: Sequence[int]

    @property
    def before(self) -> list[int]:
        """For each piece, and for the end, the number of payloads before it."""
        return [0, *accumulate(self.counts)]

    @property
    def plain(self) -> bool:
        """True if the file can be read from the middle."""
        with self.source.open() as stream:
            return stream.plain

    def batches(self, first: int = 0, last: int | None = None) -> Iterator[tuple[int, Sequence[Payload]]]:
        """Yields runs of consecutive payloads, one for each piece."""
        before = self.before
        end = before[-1] if last is None else min(last, before[-1])
        if first >= end:
            return
        piece = min(bisect_right(before, first) - 1, len(self.counts) - 1)
        number = before[piece]
        document = ArrayDocument(self.source, self.format, Part(self.offsets[piece] if piece else 0))
        for _, texts in document.pieces(lambda _: None):
            if number + len(texts) > first:
                skipped = max(0, first - number)
                yield number + skipped, texts[skipped : end - number]
            number += len(texts)
            if number >= end:
                return

    def near(self, numbers: Int64s) -> Iterator[tuple[int, Sequence[Payload]]]:
        """Yields runs of consecutive payloads that contain these numbers; decodes few others."""
        if not len(numbers):
            return
        if not self.plain:
            yield from self._in_one_pass(numbers)
            return
        for run in np.split(numbers, np.flatnonzero(np.diff(numbers) > FAR) + 1):
            yield from self.batches(int(run[0]), int(run[-1]) + 1)

    def _in_one_pass(self, numbers: Int64s) -> Iterator[tuple[int, Sequence[Payload]]]:
        """The same for a compressed file, which cannot be read from the middle."""
        before = self.before
        numbered = dict(zip(self.offsets, before, strict=False))
        pieces = np.unique(np.searchsorted(before[1:-1], numbers, side="right"))
        wanted = {self.offsets[piece] for piece in pieces.tolist()}

        def skips(start: int, end: int) -> bool:
            return start not in wanted and end in numbered

        document = ArrayDocument(self.source, self.format, skips=skips)
        for offset, texts in document.pieces(lambda _: None):
            if offset in wanted:
                yield numbered[offset], texts
            if offset >= max(wanted):
                return


MOST_CURSORS, MOST_RUNS = 4, 12
"""Places at which a file is open, and pieces that are kept, twice as many of a compressed file: about 20 or 40 MB."""

SKIPPED_PER_DECODED = 3
"""Elements of a compressed file that are skipped in the time that it takes to decode one."""

_Run = tuple[int, Sequence[Payload]]


class _Cursor(Struct):
    """A place up to which payloads were read."""

    runs: Iterator[_Run]
    end: int


class PayloadCursors:
    """Payloads that are read at several places in turn, forward from each; pieces are rarely read twice for that."""

    def __init__(self, payloads: RereadPayloads, kept: int) -> None:
        self._payloads = payloads
        self._before = payloads.before
        self._plain = payloads.plain
        self._kept_runs = kept if self._plain else 2 * kept
        self._cursors: list[_Cursor] = []
        self._runs: list[_Run] = []
        """The last used ones are the last."""
        self._process = os.getpid()
        """The one that opened the files: children share the offset of an open file with their parent."""

    def batches(self, first: int = 0, last: int | None = None) -> Iterator[_Run]:
        """Yields runs of consecutive payloads, one for each piece."""
        end = self._before[-1] if last is None else min(last, self._before[-1])
        while first < end:
            run = self._kept(first) or self._read(first)
            if run is None:
                return
            start, texts = run
            if start != first or start + len(texts) > end:
                texts = texts[first - start : end - start]
            yield first, texts
            first += len(texts)

    def _kept(self, number: int) -> _Run | None:
        """The run that contains a payload, if it was read lately."""
        for run in self._runs:
            if run[0] <= number < run[0] + len(run[1]):
                self._runs.remove(run)
                self._runs.append(run)
                return run
        return None

    def _read(self, number: int) -> _Run | None:
        """The run that contains a payload, from the best cursor."""
        if self._process != os.getpid():
            self._cursors, self._process = [], os.getpid()
        piece = bisect_right(self._before, number) - 1
        usable = [cursor for cursor in self._cursors if cursor.end <= number]
        if self._plain:
            usable = [cursor for cursor in usable if cursor.end > self._before[max(piece - 1, 0)]]
        else:  # to decode what is between takes longer than to decompress all before it, unless that is far more
            usable = [cursor for cursor in usable if SKIPPED_PER_DECODED * (number - cursor.end) <= number]
        cursor = max(usable, key=lambda cursor: cursor.end, default=None)
        if cursor:
            self._cursors.remove(cursor)
        else:
            start = self._before[piece]
            cursor = _Cursor(self._payloads.batches(start), start)
        self._cursors = [*self._cursors, cursor][-MOST_CURSORS:]
        for run in cursor.runs:
            cursor.end = run[0] + len(run[1])
            self._runs = [*self._runs, run][-self._kept_runs :]
            if number < cursor.end:
                return run
        return None


def at_several_places(payloads: Payloads, kept: int = MOST_RUNS) -> Payloads:
    """The same payloads, for many requests that each go on where one of the last ones ended; holds `kept` pieces."""
    return PayloadCursors(payloads, kept) if isinstance(payloads, RereadPayloads) else payloads


def as_json(value: Any) -> bytes:
    """The JSON of a value that only the lenient parser could read."""
    return json.dumps(value, ensure_ascii=False, default=_number).encode("utf-8", "replace")


def _number(value: Decimal) -> int | float | str | None:
    if not value.is_finite():
        return None
    if value.copy_abs() > LARGEST:
        return str(value)
    return int(value) if value == value.to_integral_value() else float(value)
