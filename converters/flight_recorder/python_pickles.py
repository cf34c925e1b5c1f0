"""Dumps that were pickled again by Python: checked in runs of opcodes, then decoded at once.

Only what Python's own pickler writes for a dump is let through; whatever else it may be is left to the replay.
What is accepted is what the replay accepts, except where no pickler writes it and plain data comes out all the same:

- of two keys that are equal (1 and 1.0) the first stays, so only the type of that one is looked at;
- an item may be set in a list by its number;
- a MARK may be left open, and the last value then counts;
- a frame may end within an opcode: frames are taken out before anything is looked at.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import Any

from tracelink.converters.flight_recorder.budget import MEMORY, TooLargeError, refuse_if_too_large
from tracelink.converters.flight_recorder.collector import collector_paused
from tracelink.converters.flight_recorder.pickles import REFUSALS, _Decoder

HEAD = 2
FRAMED = 4
"""The first protocol with frames, and with MEMOIZE in place of PUT."""

PROTO = 0x80
FRAME = 0x95
FRAME_HEAD = 9
SHORTEST_FRAME = 64 << 10
"""Of the frames before the last one."""

BYTES_PER_LONG_PUT = 6
"""The smallest thing that can enter the memo under a four-byte index: an empty container, and the index."""

LENGTH_BYTES = {b"X": 4, b"\x8c": 1}
TAKEN = re.compile(rb"h(.)|j(.{4})", re.DOTALL)
MEMOIZED = re.compile(
    rb"(?:[hK].|M..|[jJ].{4}|G.{8}"
    rb"|\x8a(?:\x08.{8}|\x05.{5}|\x06.{6}|\x07.{7}|\x09.{9})|[^hKMjJG\x8a\x94])*+(\x94?)",
    re.DOTALL,
)
"""Each MEMOIZE, with the opcodes before it, and the rest; its index is the number of those before."""

DEEPEST = 16
BYTES_PER_LOOK = 8
KEYS = frozenset({str, int})
CONTAINERS = frozenset({dict, list, tuple})

CONTAINER_COSTS = {b"]": 260, b"}": 640, b"\x86": 260}
"""Bytes of memory, with the places in memo, stack and container, and in the look at what came out."""

COSTS = CONTAINER_COSTS | {b"\x8a": 72, b"M": 72, b"J": 72, b"G": 64, b"X": 100, b"\x8c": 100, b"(": 24}
COSTS |= {b"h": 40, b"j": 40, b"K": 40, b"N": 40, b"\x88": 40, b"\x89": 40}


@dataclass(frozen=True, slots=True)
class Content:
    """What a pickle holds."""

    value: Any


def loaded(data: bytes) -> Content | None:
    """The plain data in what Python pickled; None where only the replay can tell."""
    if len(data) <= HEAD or data[0] != PROTO or not 2 <= data[1] <= 5:
        return None
    framed = data[1] >= FRAMED
    unframed = b"".join((data[:HEAD], *_frames(data))) if framed else data
    memo_high = min(len(data) // BYTES_PER_LONG_PUT >> 16, 255)
    if not _fits(unframed) or not _Check(unframed, _grammar(framed, memo_high)).passes():
        return None
    try:
        with collector_paused():
            value = _only_value(unframed)
            return Content(value) if _is_shallow(value, len(unframed)) else None
    except REFUSALS:
        return None


def _frames(data: bytes) -> Iterator[bytes]:
    """What the frames hold, and what follows them."""
    at = HEAD
    while data[at : at + 1] == bytes([FRAME]):
        end = at + FRAME_HEAD + int.from_bytes(data[at + 1 : at + FRAME_HEAD], "little")
        is_whole = end <= len(data) and (end - at >= SHORTEST_FRAME or data[end : end + 1] != bytes([FRAME]))
        if not is_whole:
            break
        yield data[at + FRAME_HEAD : end]
        at = end
    yield data[at:]


def _fits(data: bytes) -> bool:
    try:
        refuse_if_too_large(data, COSTS, "")
    except TooLargeError:
        return False
    return sum(data.count(token) * cost for token, cost in CONTAINER_COSTS.items()) <= MEMORY


@dataclass(frozen=True, slots=True)
class _Grammar:
    """Every quantifier is possessive: nothing is tried twice."""

    run: re.Pattern[bytes]
    """Opcodes before a text, or up to a pair of known texts; its groups are that pair and its PUT, and else a
    known text that stands before a text."""
    pair_after: tuple[re.Pattern[bytes], ...]
    """The end of a pair that begins with one text, or with two."""
    put: re.Pattern[bytes]


PAIR, PAIR_PUT, KNOWN_TEXT = 1, 2, 3


@lru_cache(maxsize=8)
def _grammar(framed: bool, memo_high: int) -> _Grammar:
    put = rb"\x94" if framed else rb"(?:q.|r..[\x00-%b]\x00)" % re.escape(bytes([memo_high]))
    text = rb"[X\x8c]" if framed else rb"X"
    get = rb"(?:h.|j.{4})"
    in_pair = rb"(?!\x86|%b\x86|%b)" % (get, text)
    run = (
        rb"(?:h.%(alone)b|[\]}](?:%(put)b)?+|[(eusaN\x88\x89]|K.|M..|j.{4}%(alone)b|J.{4}|G.{8}"
        rb"|\x8a(?:\x08.{8}|\x05.{5}|\x06.{6}|\x07.{7}|\x09.{8}[\x00\xff]))*+"
        rb"(?:(%(get)b%(get)b)\x86(%(put)b)?+|(%(get)b)(?=%(text)b))?+"
    ) % {b"alone": in_pair, b"put": put, b"get": get, b"text": text}
    ends = (rb"(%b)\x86(%b)?+" % (get, put), rb"(%b)?+\x86(%b)?+" % (get, put))
    return _Grammar(
        re.compile(run, re.DOTALL),
        tuple(re.compile(end, re.DOTALL) for end in ends),
        re.compile(rb"(?:%b)?+" % put, re.DOTALL),
    )


@dataclass(slots=True)
class _Check:
    """Passes over the opcodes of a pickle.

    Hashing a tuple in a tuple in a tuple ... overflows the stack or takes for ever, so no pair may take from the
    memo what is a pair.
    """

    data: bytes
    grammar: _Grammar
    taken: set[bytes] = field(default_factory=set)
    """What pairs take from the memo."""
    steps: list[tuple[int, int, bytes | None]] = field(default_factory=list)
    """From where to where there are opcodes and no text, and the PUT of a pair at the end."""

    def passes(self) -> bool:
        """Whether there is nothing but what Python writes, up to a STOP at the very end."""
        data, grammar, taken, steps = self.data, self.grammar, self.taken, self.steps
        at, texts = HEAD, 0
        while run := grammar.run.match(data, at):
            if (last := run.lastindex) == PAIR_PUT or last == PAIR:
                pair, put = run.group(PAIR, PAIR_PUT)
                taken.add(pair)
                steps.append((at, run.end(), put))
                at, texts = run.end(), 0
                continue
            if run.end() > at:
                steps.append((at, run.end(), None))
                at, texts = run.end(), 1 if last else 0
            end = self._text_end(at)
            if not at < end < len(data):
                break
            put_end = grammar.put.match(data, end).end()  # type: ignore[union-attr]  # it may be empty
            steps.append((end, put_end, None))
            at = end = put_end
            texts = min(texts + 1, 2)
            if ended := grammar.pair_after[texts - 1].match(data, end):
                taken.add((run[KNOWN_TEXT] or b"") + (ended[1] or b""))
                steps.append((end, ended.end(), ended[2]))
                at, texts = ended.end(), 0
        return at == len(data) - 1 and data[at:] == b"." and self._pairs_are_flat()

    def _pairs_are_flat(self) -> bool:
        gets = TAKEN.findall(b"".join(self.taken))
        taken = {int.from_bytes(short or long, "little") for short, long in gets}
        return taken.isdisjoint(self._pair_indexes(max(taken, default=-1)))

    def _pair_indexes(self, most: int) -> Iterator[int]:
        """Where in the memo the pairs are; those beyond `most` may be missing."""
        memoized = 0
        for start, end, put in self.steps:
            if put and len(put) > 1:
                yield int.from_bytes(put[1:], "little")
            elif self.data[1] >= FRAMED:
                memoized += len(b"".join(MEMOIZED.findall(self.data, start, end)))
                if put:
                    yield memoized - 1
                if memoized > most:
                    return

    def _text_end(self, at: int) -> int:
        """Where the text that begins here ends; -1 if there is none, or not in UTF-8."""
        length_bytes = LENGTH_BYTES.get(self.data[at : at + 1])
        if length_bytes is None:
            return -1
        start = at + 1 + length_bytes
        end = start + int.from_bytes(self.data[at + 1 : start], "little")
        try:
            self.data[start:end].decode()
        except UnicodeDecodeError:
            return -1
        return end


def _only_value(data: bytes) -> Any:
    """Gathers in a list what the opcodes leave on the stack: STOP would take the last value and drop the others."""
    gathering = b"".join((data[:HEAD], b"](", data[HEAD:-1], b"e."))
    (value,) = _Decoder(io.BufferedReader(io.BytesIO(gathering), 1 << 16)).load()
    return value


def _is_shallow(value: Any, size: int) -> bool:
    """Whether it ends after a few levels, so holds itself nowhere, and only texts and whole numbers are keys.

    What is shared is looked at once if looking at it each time would take long for a pickle of this size.
    """
    level = [value] if type(value) in CONTAINERS else []
    for _ in range(DEEPEST):
        dicts = [one for one in level if type(one) is dict]
        if not KEYS.issuperset(map(type, chain.from_iterable(dicts))):
            return False
        lists = [one for one in level if type(one) is not dict]
        inner = chain(chain.from_iterable(map(dict.values, dicts)), chain.from_iterable(lists))
        level = [one for one in inner if type(one) in CONTAINERS]
        if not level:
            return True
        if sum(map(len, level)) * BYTES_PER_LOOK > size:
            level = list({id(one): one for one in level}.values())
    return False
