"""Dumps that Python pickled again: plain data only.

`load_fast` checks runs of opcodes, then decodes all at once; `replay` interprets any other pickle opcode by opcode.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from typing import Any

from msgspec import Struct, field

from tracelink._io.pickles import Machine, Truncated
from tracelink._model.errors import UnreadableError
from tracelink.converters.flight_recorder.pickles import (
    DECODER_ERRORS,
    MEMORY,
    PlainDecoder,
    TooLargeError,
    collector_paused,
    refuse_if_too_large,
)

_HEAD = 2
_FRAMED = 4
"""The first protocol with frames, and with MEMOIZE in place of PUT."""

_PROTO = 0x80
_FRAME = 0x95
_FRAME_HEAD = 9
_SHORTEST_FRAME = 64 << 10
"""Of all frames but the last."""

_BYTES_PER_LONG_PUT = 6
"""Bytes of the smallest object with a four-byte memo index: an empty container, and the PUT."""

_LENGTH_BYTES = {b"X": 4, b"\x8c": 1}
_TAKEN = re.compile(rb"h(.)|j(.{4})", re.DOTALL)
_MEMOIZED = re.compile(
    rb"(?:[hK].|M..|[jJ].{4}|G.{8}"
    rb"|\x8a(?:\x08.{8}|\x05.{5}|\x06.{6}|\x07.{7}|\x09.{9})|[^hKMjJG\x8a\x94])*+(\x94?)",
    re.DOTALL,
)
"""Each MEMOIZE with the opcodes before it; its memo index is the number of earlier ones."""

_DEEPEST = 16
_BYTES_PER_LOOK = 8
_KEYS = frozenset({str, int})
_CONTAINERS = frozenset({dict, list, tuple})

_CONTAINER_COSTS = {b"]": 260, b"}": 640, b"\x86": 260}
"""Bytes of memory, including slots in memo, stack and container, and in the check of the result."""

_COSTS = _CONTAINER_COSTS | {b"\x8a": 72, b"M": 72, b"J": 72, b"G": 64, b"X": 100, b"\x8c": 100, b"(": 24}
_COSTS |= {b"h": 40, b"j": 40, b"K": 40, b"N": 40, b"\x88": 40, b"\x89": 40}

_PAIR, _PAIR_PUT, _KNOWN_TEXT = 1, 2, 3

_BYTES_PER_OPCODE = 240
"""Bytes of memory for one opcode, at most: a dict with one item, and its slots in the memo and on the stack."""

_DEEPEST_REPLAY = 64
"""Dumps have about five levels."""


# Fast: checked in runs of opcodes, then decoded at once


class Content(Struct, frozen=True):
    """The content of a pickle."""

    value: Any


def load_fast(data: bytes) -> Content | None:
    """The plain data in a pickle that Python wrote; None if only the replay can decide."""
    if len(data) <= _HEAD or data[0] != _PROTO or not 2 <= data[1] <= 5:
        return None
    framed = data[1] >= _FRAMED
    unframed = b"".join((data[:_HEAD], *_frames(data))) if framed else data
    memo_high = min(len(data) // _BYTES_PER_LONG_PUT >> 16, 255)
    if not _fits(unframed) or not _Check(unframed, _grammar(framed, memo_high)).passes():
        return None
    try:
        with collector_paused():
            value = _only_value(unframed)
            return Content(value) if _is_shallow(value, len(unframed)) else None
    except DECODER_ERRORS:
        return None


def _frames(data: bytes) -> Iterator[bytes]:
    """The bytes in the frames, and those after them."""
    at = _HEAD
    while data[at : at + 1] == bytes([_FRAME]):
        end = at + _FRAME_HEAD + int.from_bytes(data[at + 1 : at + _FRAME_HEAD], "little")
        is_complete = end <= len(data) and (
            end - at >= _SHORTEST_FRAME or data[end : end + 1] != bytes([_FRAME])
        )
        if not is_complete:
            break
        yield data[at + _FRAME_HEAD : end]
        at = end
    yield data[at:]


def _fits(data: bytes) -> bool:
    try:
        refuse_if_too_large(data, _COSTS, "")
    except TooLargeError:
        return False
    return sum(data.count(token) * cost for token, cost in _CONTAINER_COSTS.items()) <= MEMORY


class _Grammar(Struct, frozen=True):
    """Every quantifier is possessive: the match never backtracks."""

    run: re.Pattern[bytes]
    """Opcodes before a new string, or up to a pair of known strings. Its groups are that pair and its PUT, or else
    a known string before a new one."""
    pair_after: tuple[re.Pattern[bytes], ...]
    """The end of a pair after one new string, or after two."""
    put: re.Pattern[bytes]


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


class _Check(Struct):
    """A check of the opcodes of a pickle.

    Hashing deeply nested tuples overflows the stack or takes exponential time, so no pair may take another pair from
    the memo.
    """

    data: bytes
    grammar: _Grammar
    taken: set[bytes] = field(default_factory=set)
    """GETs of the memo in pairs."""
    steps: list[tuple[int, int, bytes | None]] = field(default_factory=list)
    """Start and end of each run of opcodes without strings, and the PUT of the pair at its end."""

    def passes(self) -> bool:
        """Whether Python writes all of the opcodes, and the only STOP is the last byte."""
        data, grammar, taken, steps = self.data, self.grammar, self.taken, self.steps
        at, texts = _HEAD, 0
        while run := grammar.run.match(data, at):
            if (last := run.lastindex) == _PAIR_PUT or last == _PAIR:
                pair, put = run.group(_PAIR, _PAIR_PUT)
                taken.add(pair)
                steps.append((at, run.end(), put))
                at, texts = run.end(), 0
                continue
            if run.end() > at:
                steps.append((at, run.end(), None))
                at, texts = run.end(), 1 if last else 0
            end = self._string_end(at)
            if not at < end < len(data):
                break
            put_end = grammar.put.match(data, end).end()  # type: ignore[union-attr]  # it may be empty
            steps.append((end, put_end, None))
            at = end = put_end
            texts = min(texts + 1, 2)
            if ended := grammar.pair_after[texts - 1].match(data, end):
                taken.add((run[_KNOWN_TEXT] or b"") + (ended[1] or b""))
                steps.append((end, ended.end(), ended[2]))
                at, texts = ended.end(), 0
        return at == len(data) - 1 and data[at:] == b"." and self._pairs_are_flat()

    def _pairs_are_flat(self) -> bool:
        gets = _TAKEN.findall(b"".join(self.taken))
        taken = {int.from_bytes(short or long, "little") for short, long in gets}
        return taken.isdisjoint(self._pair_indexes(max(taken, default=-1)))

    def _pair_indexes(self, most: int) -> Iterator[int]:
        """Memo indexes of the pairs; those above `most` may be missing."""
        memoized = 0
        for start, end, put in self.steps:
            if put and len(put) > 1:
                yield int.from_bytes(put[1:], "little")
            elif self.data[1] >= _FRAMED:
                memoized += len(b"".join(_MEMOIZED.findall(self.data, start, end)))
                if put:
                    yield memoized - 1
                if memoized > most:
                    return

    def _string_end(self, at: int) -> int:
        """The end of the string at this offset; -1 without a string, or if it is not UTF-8."""
        length_bytes = _LENGTH_BYTES.get(self.data[at : at + 1])
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
    """The only value on the stack, collected in a list: STOP alone would return the last of several values."""
    collecting = b"".join((data[:_HEAD], b"](", data[_HEAD:-1], b"e."))
    (value,) = PlainDecoder(io.BufferedReader(io.BytesIO(collecting), 1 << 16)).load()
    return value


def _is_shallow(value: Any, size: int, deepest: int = _DEEPEST) -> bool:
    """Whether the value has few levels, so does not contain itself, and all keys are strings or integers.

    Shared containers are visited once per level if more visits would take long for a pickle of this size.
    """
    level = [value] if type(value) in _CONTAINERS else []
    for _ in range(deepest):
        dicts = [container for container in level if type(container) is dict]
        if not _KEYS.issuperset(map(type, chain.from_iterable(dicts))):
            return False
        lists = [container for container in level if type(container) is not dict]
        inner = chain(chain.from_iterable(map(dict.values, dicts)), chain.from_iterable(lists))
        level = [value for value in inner if type(value) in _CONTAINERS]
        if not level:
            return True
        if sum(map(len, level)) * _BYTES_PER_LOOK > size:
            level = list({id(container): container for container in level}.values())
    return False


# Replay, opcode by opcode


def replay(data: bytes) -> Any:
    """The plain data in a pickle of any protocol; an error if it has anything else, or is truncated."""
    machine = Machine(iter([data]), "a dump")
    try:
        opcodes = 0
        while machine.step():
            opcodes += 1
            if opcodes * _BYTES_PER_OPCODE > MEMORY:
                machine.refuse(f"there are {opcodes} opcodes")
    except Truncated:
        raise UnreadableError("it is truncated") from None
    value = machine.result()
    if not _is_shallow(value, len(data), _DEEPEST_REPLAY):
        machine.refuse("a structure contains itself, or is nested too deeply")
    return value
