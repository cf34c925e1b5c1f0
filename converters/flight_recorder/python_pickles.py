"""What Python pickled again."""

from __future__ import annotations

import io
import pickletools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import Any

from tracelink.converters.flight_recorder.pickles import (
    DECODER_ERRORS,
    MEMORY,
    PlainDecoder,
    TooLargeError,
    collector_paused,
    refuse_if_too_large,
)

# Dumps that were pickled again by Python: checked in runs of opcodes, then decoded at once.


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


def load_fast(data: bytes) -> Content | None:
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
    except DECODER_ERRORS:
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
    (value,) = PlainDecoder(io.BufferedReader(io.BytesIO(gathering), 1 << 16)).load()
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


# Dumps that were pickled again by Python: replayed opcode by opcode, plain data only.


BYTES_PER_OPCODE = 240
"""What one opcode leads to in memory, at most: a dict with one item, and its places in the memo and the stack."""

LONGEST_INTEGER = 1 << 64
DEEPEST_REPLAY = 64
"""A dump nests a handful deep."""

_MARK = object()

TEXTS = frozenset({"BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE"})
NUMBERS = frozenset({"BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "BINFLOAT", "FLOAT"})
VALUES = TEXTS | NUMBERS
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
CONTAINERS_REPLAY: dict[str, Callable[[], Any]] = {
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
}
PUTS, GETS = frozenset({"PUT", "BINPUT", "LONG_BINPUT"}), frozenset({"GET", "BINGET", "LONG_BINGET"})
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
IGNORED = frozenset({"PROTO", "FRAME"})


class NotPlain(ValueError):  # noqa: N818  says what the data is not
    """The pickle is not plain data."""


def replay(data: bytes) -> Any:
    """The plain data in a pickle of any protocol; raises `NotPlain`."""
    machine = _Machine()
    try:
        for number, (opcode, argument, _) in enumerate(pickletools.genops(io.BytesIO(data))):
            if number * BYTES_PER_OPCODE > MEMORY:
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
        """One opcode; those that are not plain data are refused."""
        if name in VALUES:
            if isinstance(argument, int) and abs(argument) > LONGEST_INTEGER:
                raise NotPlain("an integer of more than 64 bits")
            self.stack.append(argument)
        elif name in CONSTANTS:
            self.stack.append(CONSTANTS[name])
        elif name in CONTAINERS_REPLAY:
            self.stack.append(CONTAINERS_REPLAY[name]())
        elif name in PUTS:
            self.memo[int(argument)] = self.stack[-1]
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = self.stack[-1]
        elif name in GETS:
            self.stack.append(self.memo[int(argument)])
        elif name == "MARK":
            self.stack.append(_MARK)
        elif name in TUPLES:
            self.stack[-TUPLES[name] :] = [tuple(self.stack[-TUPLES[name] :])]
        elif name not in IGNORED:
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
            raise NotPlain("a key that is neither text nor number")
        target.update(zip(keys, items, strict=True))

    def result(self) -> Any:
        """What is left on the stack, once it is known to have no cycle and no great depth."""
        if len(self.stack) != 1 or self.stack[0] is _MARK:
            raise NotPlain("more than one value")
        _check_depth(self.stack[0])
        return self.stack[0]


def _check_depth(root: Any) -> None:
    """Walks each container once, level by level from the leaves: a cycle never gets a depth."""
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
        if len(waiting) > MEMORY // BYTES_PER_OPCODE or max(depth.get(id(node), 0), 0) > DEEPEST_REPLAY:
            raise NotPlain("a structure that holds itself, or is nested too deep")
