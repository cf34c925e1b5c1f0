"""Dumps that Python pickled again: plain data only.

`load_fast` checks runs of opcodes, then decodes all at once; `replay` interprets any other pickle opcode by opcode.
"""

from __future__ import annotations

import io
import pickletools
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import chain
from typing import Any

from msgspec import Struct, field

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

_LONGEST_INTEGER = 1 << 64
_DEEPEST_REPLAY = 64
"""Dumps have about five levels."""

_MARK = object()

_TEXTS = frozenset({"BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE"})
_NUMBERS = frozenset({"BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "BINFLOAT", "FLOAT"})
_VALUES = _TEXTS | _NUMBERS
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_CONTAINERS_REPLAY: dict[str, Callable[[], Any]] = {
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
}
_PUTS, _GETS = frozenset({"PUT", "BINPUT", "LONG_BINPUT"}), frozenset({"GET", "BINGET", "LONG_BINGET"})
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_IGNORED = frozenset({"PROTO", "FRAME"})


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


def _is_shallow(value: Any, size: int) -> bool:
    """Whether the value has few levels, so does not contain itself, and all keys are strings or integers.

    Shared containers are visited once per level if more visits would take long for a pickle of this size.
    """
    level = [value] if type(value) in _CONTAINERS else []
    for _ in range(_DEEPEST):
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


class NotPlain(ValueError):  # noqa: N818  a result of the check, not a failure
    """The pickle is not plain data."""


def replay(data: bytes) -> Any:
    """The plain data in a pickle of any protocol; raises `NotPlain`."""
    machine = _Machine()
    try:
        for number, (opcode, argument, _) in enumerate(pickletools.genops(io.BytesIO(data))):
            if number * _BYTES_PER_OPCODE > MEMORY:
                raise NotPlain("too many opcodes")
            if opcode.name == "STOP":
                return machine.result()
            machine.do(opcode.name, argument)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise NotPlain(str(error)) from error
    raise NotPlain("no STOP")


class _Machine:
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def do(self, name: str, argument: Any) -> None:
        """Executes one opcode; opcodes that are not plain data are refused."""
        if name in _VALUES:
            if isinstance(argument, int) and abs(argument) > _LONGEST_INTEGER:
                raise NotPlain("an integer of more than 64 bits")
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _CONTAINERS_REPLAY:
            self.stack.append(_CONTAINERS_REPLAY[name]())
        elif name in _PUTS:
            self.memo[int(argument)] = self.stack[-1]
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = self.stack[-1]
        elif name in _GETS:
            self.stack.append(self.memo[int(argument)])
        elif name == "MARK":
            self.stack.append(_MARK)
        elif name in _TUPLES:
            self.stack[-_TUPLES[name] :] = [tuple(self.stack[-_TUPLES[name] :])]
        elif name not in _IGNORED:
            self._fill(name)

    def _fill(self, name: str) -> None:
        match name:
            case "APPEND":
                value = self.stack.pop()
                self._top(list).append(value)
            case "APPENDS":
                values = self._marked()
                self._top(list).extend(values)
            case "SETITEM":
                pair = [self.stack.pop(-2), self.stack.pop(-1)]
                self._set(self._top(dict), pair)
            case "SETITEMS":
                values = self._marked()
                self._set(self._top(dict), values)
            case "TUPLE":
                self.stack.append(tuple(self._marked()))
            case "LIST":
                self.stack.append(self._marked())
            case "DICT":
                values = self._marked()
                self.stack.append({})
                self._set(self.stack[-1], values)
            case _:
                raise NotPlain(f"opcode {name}")

    def _top(self, kind: type) -> Any:
        if type(self.stack[-1]) is not kind:
            raise NotPlain(f"no {kind.__name__} to fill")
        return self.stack[-1]

    def _marked(self) -> list[Any]:
        at = len(self.stack) - 1
        while self.stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise NotPlain("no MARK")
        values = self.stack[at + 1 :]
        del self.stack[at:]
        return values

    def _set(self, target: dict[Any, Any], values: list[Any]) -> None:
        keys, items = values[::2], values[1::2]
        if len(keys) != len(items) or not all(type(key) in (str, int) for key in keys):
            raise NotPlain("a key that is neither a string nor an integer")
        target.update(zip(keys, items, strict=True))

    def result(self) -> Any:
        """The value on the stack, checked for cycles and depth."""
        if len(self.stack) != 1 or self.stack[0] is _MARK:
            raise NotPlain("more than one value")
        _check_depth(self.stack[0])
        return self.stack[0]


def _check_depth(root: Any) -> None:
    """Visits each container once, from the leaves up: a cycle never gets a depth."""
    depth: dict[int, int] = {}
    waiting = [root]
    while waiting:
        node = waiting[-1]
        children = node.values() if isinstance(node, dict) else node if isinstance(node, list | tuple) else ()
        if id(node) in depth:
            waiting.pop()
            continue
        inner = [child for child in children if isinstance(child, dict | list | tuple)]
        unknown = [child for child in inner if id(child) not in depth]
        if not unknown:
            depth[id(node)] = 1 + max((depth[id(child)] for child in inner), default=0)
            waiting.pop()
        else:
            waiting += unknown
        if len(waiting) > MEMORY // _BYTES_PER_OPCODE or max(depth.get(id(node), 0), 0) > _DEEPEST_REPLAY:
            raise NotPlain("a structure that contains itself, or is nested too deeply")
