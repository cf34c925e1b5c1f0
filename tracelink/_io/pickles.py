"""Pickles of unknown origin: plain data only, and no code in them is ever run.

Two ways to read one, both bounded by the size of the pickle before memory is taken:

- `scan` checks all opcodes with regular expressions, run by run; what passes may be decoded by Python's own decoder
  with `load_plain`. Dumps of the flight recorder are read so.
- `Machine` executes one opcode after the other. A format that turns parts of the content into columns while they are
  decoded overrides what happens to containers. Snapshots of memory are read so, and pickles that `scan` refuses.
"""

from __future__ import annotations

import gc
import io
import pickle
import pickletools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain
from typing import Any, NoReturn

from msgspec import Struct, field

from tracelink._model.errors import UnreadableError, encodable

_BLOCK = 4 << 20
AHEAD = 1 << 20
"""Bytes that are in memory after the position, if the stream has them."""
_LONGEST_TEXT = 32 << 20
_SLACK = 1 << 10
"""Memo indexes are at most so much larger than their number: writers count them."""
_MOST_MARKS = 1 << 10
"""Containers are not nested deeper."""
_MANY_VALUES = 1 << 18
_BYTES_OF_A_CONTAINER = 12
_BYTES_OF_A_VALUE = 4
"""Values take at least so many bytes, if there are many: only an empty dict takes one."""

STOP = b"."
_HEAD = 2
_PROTOCOLS = range(2, 6)
FIRST_FRAMED = 4
"""The first protocol with frames, and with MEMOIZE in place of PUT."""
_FRAME, _FRAME_HEAD = 0x95, 9


# Opcodes that occur in plain data, as regular expressions.

GET = rb"(?:h.|j.{4})"
LONG = rb"\x8a(?:\x08.{8}|\x05.{5}|\x06.{6}|\x07.{7}|\x09.{8}[\x00\xff])"
"""An integer of 64 bits that does not fit in four bytes; torch always writes eight."""

_PUT = rb"(?:q.|r..[\x00-%b]\x00)"
_TAKEN = re.compile(rb"h(.)|j(.{4})", re.DOTALL)
_MEMOIZED = re.compile(rb"(?:[hK].|M..|[jJ].{4}|G.{8}|%b|[^hKMjJG\x8a\x94])*+(\x94?)" % LONG, re.DOTALL)
"""Each MEMOIZE with the opcodes before it; its memo index is the number of earlier ones."""

_KEYS = frozenset({str, int})
_CONTAINERS = frozenset({dict, list, tuple})
_BYTES_PER_LOOK = 8
"""Items of shared containers are visited again if the visits are fewer than one for so many bytes of the pickle."""


class Truncated(Exception):  # noqa: N818  the end of a file, not a failure
    """The bytes end within the pickle."""


def opcode_in_words(code: int) -> str:
    """The name and the byte of an opcode."""
    name = next((opcode.name for opcode in pickletools.opcodes if opcode.code == chr(code)), "")
    return f"{name} (0x{code:02x})" if name else f"0x{code:02x}"


def unframed(read: Callable[[int], bytes]) -> Iterator[bytes]:
    """The opcodes of a pickle of protocol 2 to 5 in blocks, without the heads of frames."""
    head = read(_HEAD)
    if len(head) < _HEAD or head[0] != 0x80 or head[1] not in _PROTOCOLS:
        raise UnreadableError(f"it starts with {head.hex(' ')}; a pickle starts with 80 02 to 80 05")
    yield head
    framed = head[1] >= FIRST_FRAMED
    while framed:
        start = read(_FRAME_HEAD)
        framed = len(start) == _FRAME_HEAD and start[0] == _FRAME
        left = int.from_bytes(start[1:], "little") if framed else 0
        if not framed:
            yield start
        while left and (block := read(min(_BLOCK, left))):
            left -= len(block)
            yield block
    while block := read(_BLOCK):
        yield block


# Scan: all opcodes are checked, run by run, before anything is decoded.


class Grammar(Struct, frozen=True):
    """What a writer of plain data writes. Every quantifier is possessive: the match never backtracks."""

    run: re.Pattern[bytes]
    """Opcodes up to a new string or less: up to a `pair` of known strings and its `pair_put`, up to a `known` string
    before a new one, or up to the end of a container that gets a PUT, `closed`."""
    pair_after: tuple[re.Pattern[bytes], ...]
    """The end of a pair after one new string, or after two: a known string, if it has one, and the PUT of the pair."""
    put: re.Pattern[bytes]
    length_bytes: dict[bytes, int]
    """Bytes of the length of a string, by its opcode."""


_NEVER = rb"(?!)"
_BYTES_PER_PUT_OF_TORCH, _BYTES_PER_PUT_OF_PYTHON = 8, 6
"""Bytes of the smallest object with a four-byte memo index, an empty container and the PUT: no index is larger."""


def grammar_of_torch(size: int) -> Grammar:
    """The grammar of `size` bytes that the pickler of torch's C++ code wrote.

    Containers get their PUT at their end, and pairs of strings none: nothing can contain itself or nested tuples.
    """
    return _grammar_of_torch(_memo_high(size // _BYTES_PER_PUT_OF_TORCH))


def grammar_of_python(protocol: int, size: int) -> Grammar:
    """The grammar of `size` bytes that Python wrote, without the heads of frames."""
    return _grammar_of_python(protocol >= FIRST_FRAMED, _memo_high(size // _BYTES_PER_PUT_OF_PYTHON))


def _memo_high(most: int) -> bytes:
    """The largest third byte of a memo index that is at most `most`; the fourth is zero."""
    return re.escape(bytes([min(most >> 16, 255)]))


@lru_cache(maxsize=8)
def _grammar_of_torch(memo_high: bytes) -> Grammar:
    in_run = rb"(?!X)(?:(?:%(get)b(?!X))++\x86?+)?+" % {b"get": GET}
    run = (
        rb"(?:h.%(in_run)b|[\]}]\(|K.|[eu](?![qr])|[N\x88\x89]|j.{4}%(in_run)b"
        rb"|\x8a\x08.{8}|M..|J.{4}|G.{8})*+(?:(?P<known>%(get)b)(?=X)|(?P<closed>[eu])(?=[qr]))?+"
    )
    return _grammar(run % {b"in_run": in_run, b"get": GET}, _PUT % memo_high, _NEVER, {b"X": 4})


@lru_cache(maxsize=8)
def _grammar_of_python(framed: bool, memo_high: bytes) -> Grammar:
    put, text = (rb"\x94", rb"[X\x8c]") if framed else (_PUT % memo_high, rb"X")
    in_run = rb"(?!\x86|%b\x86|%b)" % (GET, text)
    run = (
        rb"(?:h.%(in_run)b|[\]}](?:%(put)b)?+|[(eusaN\x88\x89]|K.|M..|j.{4}%(in_run)b|J.{4}|G.{8}|%(long)b)*+"
        rb"(?:(?P<pair>%(get)b%(get)b)\x86(?P<pair_put>%(put)b)?+|(?P<known>%(get)b)(?=%(text)b))?+"
    )
    parts = {b"in_run": in_run, b"put": put, b"get": GET, b"text": text, b"long": LONG}
    return _grammar(run % parts, put, put, {b"X": 4, b"\x8c": 1})


def _grammar(run: bytes, put: bytes, pair_put: bytes, length_bytes: dict[bytes, int]) -> Grammar:
    ends = (rb"(%b)\x86(%b)?+" % (GET, pair_put), rb"(%b)?+\x86(%b)?+" % (GET, pair_put))
    patterns = (re.compile(pattern, re.DOTALL) for pattern in (run, *ends, rb"(?:%b)?+" % put))
    of_run, *of_ends, of_put = patterns
    return Grammar(of_run, tuple(of_ends), of_put, length_bytes)


class Scan(Struct):
    """The opcodes of a pickle from its head up to `end`, which all fit a grammar."""

    data: bytes
    end: int = _HEAD
    puts: int = 0
    """The number of PUTs of strings and of closed containers."""
    damage: UnicodeDecodeError | None = None
    """Why the string at `end` is not UTF-8. Python's decoder accepts lone surrogates, which no writer can encode."""
    taken: set[bytes] = field(default_factory=set)
    """GETs of the memo in pairs."""
    steps: list[tuple[int, int, bytes | None]] = field(default_factory=list)
    """Start and end of each run of opcodes without strings, and the PUT of the pair at its end."""

    @property
    def is_complete(self) -> bool:
        """True if STOP follows, as the last byte."""
        return self.end == len(self.data) - 1 and self.data.endswith(STOP)

    def has_flat_pairs(self) -> bool:
        """True if no pair takes another one from the memo.

        Python's decoder would hash a deeply nested tuple for ever, or until the stack overflows.
        """
        gets = _TAKEN.findall(b"".join(self.taken))
        taken = {int.from_bytes(short or long, "little") for short, long in gets}
        return taken.isdisjoint(self._pair_indexes(max(taken, default=-1)))

    def _pair_indexes(self, most: int) -> Iterator[int]:
        """Memo indexes of the pairs; those above `most` may be missing."""
        memoized = 0
        for start, end, put in self.steps:
            if put and len(put) > 1:
                yield int.from_bytes(put[1:], "little")
            elif self.data[1] >= FIRST_FRAMED:
                memoized += len(b"".join(_MEMOIZED.findall(self.data, start, end)))
                if put:
                    yield memoized - 1
                if memoized > most:
                    return

    def string_end(self, at: int, length_bytes: int | None) -> int:
        """The end of the string at this offset; 0 without a whole string in UTF-8."""
        if length_bytes is None:
            return 0
        start = at + 1 + length_bytes
        end = start + int.from_bytes(self.data[at + 1 : start], "little")
        if end > len(self.data):
            return 0
        try:
            self.data[start:end].decode()
        except UnicodeDecodeError as damage:
            self.damage = damage
            return 0
        return end


def scan(data: bytes, grammar: Grammar) -> Scan:
    """Checks the opcodes of a pickle as far as they fit the grammar."""
    found = Scan(data)
    taken, steps, put_at = found.taken, found.steps, grammar.put.match
    at, texts = _HEAD, 0
    while run := grammar.run.match(data, at):
        end, last = run.end(), run.lastgroup
        if last == "pair" or last == "pair_put":
            pair, put = run.group("pair", "pair_put")
            taken.add(pair)
            steps.append((at, end, put))
            at, texts = end, 0
            continue
        if end > at:
            steps.append((at, end, None))
            at, texts = end, 1 if last == "known" else 0
        if last != "closed":
            end = found.string_end(at, grammar.length_bytes.get(data[at : at + 1]))
            if not end:
                break
            texts = min(texts + 1, 2)
        put_end = put_at(data, end).end()  # type: ignore[union-attr]  # it may be empty
        found.puts += put_end > end
        steps.append((end, put_end, None))
        at = put_end
        if texts and (ended := grammar.pair_after[texts - 1].match(data, at)):
            taken.add((run["known"] or b"") + (ended[1] or b""))
            steps.append((at, ended.end(), ended[2]))
            at, texts = ended.end(), 0
    found.end = at
    return found


# Decoding of what was scanned, by Python's own decoder.


class _PlainDecoder(pickle.Unpickler):
    """A decoder without classes: the second guard, as no grammar has an opcode that needs them."""

    def find_class(self, module: str, name: str, /) -> NoReturn:
        """Refuses every class."""
        raise pickle.UnpicklingError(f"it names {module}.{name}")

    def persistent_load(self, pid: Any, /) -> NoReturn:
        """Refuses every external object."""
        raise pickle.UnpicklingError("it names an object outside itself")


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pauses Python's cycle collector: plain data has no cycles, and the search takes as long as decoding."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def load_plain(data: bytes) -> tuple[Any, dict[int, Any]]:
    """The content of a pickle that was scanned as a whole, and its memo; UnreadableError if it makes no sense."""
    decoder = _PlainDecoder(io.BufferedReader(io.BytesIO(data), 1 << 16))
    try:
        with collector_paused():
            return decoder.load(), decoder.memo.copy()
    except (pickle.UnpicklingError, TypeError, ValueError, LookupError, AttributeError, EOFError) as error:
        # Opcodes that are each allowed can be invalid together.
        raise UnreadableError(f"the pickle is invalid ({error})") from None


def is_shallow(value: Any, size: int, deepest: int) -> bool:
    """True if a value has few levels, so does not contain itself, and all keys are strings or integers.

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


# The machine: one opcode after the other.


class _Mark:
    """Begins the items of a container."""


_MARK, _MISSING = _Mark(), object()


class Machine:
    """A stack, a memo, and one opcode after the other; `what` a pickle is of is named in errors."""

    list_type: type[list[Any]] = list
    dict_type: type[dict[Any, Any]] = dict

    def __init__(self, blocks: Iterator[bytes], what: str) -> None:
        self.blocks, self.what = blocks, what
        self.data, self.at, self.before, self.ended = b"", 0, 0, False
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: list[Any] = []
        self.containers = 0

    @property
    def offset(self) -> int:
        """The number of bytes before the position, without the heads of frames."""
        return self.before + self.at

    def step(self) -> bool:
        """Executes one opcode; False for STOP."""
        code = self.read(1)
        if code == b".":
            return False
        if code not in _OPCODES:
            self.at -= 1
            self.refuse(f"opcode {opcode_in_words(code[0])} does not occur in {self.what}")
        argument, execute = _OPCODES[code]
        try:
            execute(self, argument(self) if argument else None)
        except UnicodeDecodeError:
            self.refuse("a string is not UTF-8")
        except ValueError as error:
            self.refuse(str(error))
        return True

    def result(self) -> Any:
        """The only value, after STOP."""
        if len(self.stack) != 1 or self.marks:
            self.refuse("the pickle ends with more than one value")
        return self.stack[0]

    def refuse(self, problem: str) -> NoReturn:
        """Raises an error about the bytes before the position."""
        raise UnreadableError(
            problem,
            position=f"byte {self.offset}",
            advice=f"torch does not write this in {self.what}; no code in it was run. "
            "Take it again, or leave the file out.",
        )

    # Bytes, as the readers of arguments in `pickletools` want them.

    def fill(self, count: int) -> None:
        """Makes `count` bytes available after the position, as far as the stream has them."""
        while not self.ended and len(self.data) - self.at < count:
            block = next(self.blocks, None)
            if block is None:
                self.ended = True
                return
            self.before += self.at
            self.data, self.at = self.data[self.at :] + block, 0
            if len(self.stack) > _MANY_VALUES and len(self.stack) * _BYTES_OF_A_VALUE > self.before:
                self.refuse(f"{self.before:,} bytes have {len(self.stack):,} values that nothing contains")

    def read(self, count: int) -> bytes:
        """The next bytes."""
        end = self.at + count
        if end > len(self.data):
            if count > _LONGEST_TEXT:
                self.refuse(f"a string has {count} bytes")
            self.fill(max(count, AHEAD))
            end = self.at + count
            if end > len(self.data):
                raise Truncated
        self.at, start = end, self.at
        return self.data[start:end]

    def readline(self) -> bytes:
        """The next line, of the opcodes of protocol 0."""
        self.fill(AHEAD)
        return self.read(self.data.find(b"\n", self.at, self.at + AHEAD) + 1 - self.at or 1)

    # Values.

    def literal(self, value: Any) -> Any:
        """A text or number as it is kept."""
        if type(value) is int and abs(value) > 1 << 64:
            self.refuse("an integer has more than 64 bits")
        return encodable(value) if type(value) is str else value

    def pop(self) -> Any:
        """Takes the last value."""
        if not self.stack or self.stack[-1] is _MARK:
            self.refuse("a value is missing")
        return self.stack.pop()

    def marked(self) -> list[Any]:
        """Takes the values after the last mark."""
        if not self.marks:
            self.refuse("there is no mark")
        start = self.marks.pop()
        items = self.stack[start + 1 :]
        del self.stack[start:]
        return items

    def mark(self) -> None:
        """Begins the items of a container."""
        if len(self.marks) >= _MOST_MARKS:
            self.refuse(f"{_MOST_MARKS} containers are inside of each other")
        self.marks.append(len(self.stack))
        self.stack.append(_MARK)

    def recall(self, index: int) -> Any:
        """The value with this index of the memo."""
        if not 0 <= index < len(self.memo) or self.memo[index] is _MISSING:
            self.refuse(f"memo index {index} is unknown")
        return self.memo[index]

    def memorize(self, index: int) -> None:
        """Notes the last value."""
        if not self.stack or self.stack[-1] is _MARK:
            self.refuse("a value is missing")
        self.put(index, self.stack[-1])

    def put(self, index: int, value: Any) -> None:
        """Notes a value."""
        if not 0 <= index <= len(self.memo) + _SLACK:
            self.refuse(f"memo index {index} is too large")
        while len(self.memo) <= index:
            self.memo.append(_MISSING)
        self.memo[index] = value

    # Containers.

    def open(self, container: Any) -> None:
        """Begins a container; refuses more of them than bytes of this number can have."""
        self.containers += 1
        self.stack.append(container)
        if (
            self.containers > _MANY_VALUES
            and not self.containers % _MOST_MARKS
            and self.containers * _BYTES_OF_A_CONTAINER > self.offset
        ):
            self.refuse(f"{self.offset:,} bytes have {self.containers:,} lists and dicts")

    def contained(self, items: list[Any], owner: Any = None) -> list[Any]:
        """Items as a container has them; `owner` is it, if it is a list."""
        return items

    def extend(self, items: list[Any]) -> None:
        """Adds items to the list on the stack."""
        if not self.stack or type(self.stack[-1]) is not self.list_type:
            self.refuse("there is no list to fill")
        self.stack[-1].extend(self.contained(items, self.stack[-1]))

    def update(self, pairs: list[Any]) -> None:
        """Adds keys and values to the dict on the stack. Other keys could take for ever to be hashed."""
        if not self.stack or type(self.stack[-1]) is not self.dict_type or len(pairs) % 2:
            self.refuse("there is no dict to fill")
        keys = pairs[::2]
        if not all(type(key) in (str, int) for key in keys):
            self.refuse("a key is neither a string nor an integer")
        self.stack[-1].update(zip(keys, self.contained(pairs)[1::2], strict=True))

    def append_tuple(self, items: list[Any]) -> None:
        """A tuple of these items."""
        self.stack.append(tuple(self.contained(items)))


_Execute = Callable[[Machine, Any], None]


def _pop_tuple(count: int) -> _Execute:
    return lambda machine, _: machine.append_tuple([machine.pop() for _ in range(count)][::-1])


def _constant(value: Any) -> _Execute:
    return lambda machine, _: machine.stack.append(value)


def _set_item(machine: Machine, _: Any) -> None:
    value, key = machine.pop(), machine.pop()
    machine.update([key, value])


def _append_list(machine: Machine, _: Any) -> None:
    items = machine.marked()
    machine.open(machine.list_type())
    machine.extend(items)


def _append_dict(machine: Machine, _: Any) -> None:
    pairs = machine.marked()
    machine.open(machine.dict_type())
    machine.update(pairs)


def _append_literal(machine: Machine, value: Any) -> None:
    machine.stack.append(machine.literal(value))


def _get(machine: Machine, index: Any) -> None:
    machine.stack.append(machine.recall(int(index)))


def _put(machine: Machine, index: Any) -> None:
    machine.memorize(int(index))


_LITERALS = (
    "BININT BININT1 BININT2 INT LONG LONG1 BINFLOAT FLOAT BINUNICODE SHORT_BINUNICODE BINUNICODE8 UNICODE"
)
_EXECUTE: dict[str, _Execute] = {
    **dict.fromkeys(_LITERALS.split(), _append_literal),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), _put),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _get),
    **dict.fromkeys(("PROTO", "FRAME"), lambda machine, _: None),
    "NONE": _constant(None),
    "NEWTRUE": _constant(True),
    "NEWFALSE": _constant(False),
    "EMPTY_TUPLE": _constant(()),
    "EMPTY_LIST": lambda machine, _: machine.open(machine.list_type()),
    "EMPTY_DICT": lambda machine, _: machine.open(machine.dict_type()),
    "MEMOIZE": lambda machine, _: machine.memorize(len(machine.memo)),
    "MARK": lambda machine, _: machine.mark(),
    "APPEND": lambda machine, _: machine.extend([machine.pop()]),
    "APPENDS": lambda machine, _: machine.extend(machine.marked()),
    "SETITEM": _set_item,
    "SETITEMS": lambda machine, _: machine.update(machine.marked()),
    "TUPLE": lambda machine, _: machine.append_tuple(machine.marked()),
    "TUPLE1": _pop_tuple(1),
    "TUPLE2": _pop_tuple(2),
    "TUPLE3": _pop_tuple(3),
    "LIST": _append_list,
    "DICT": _append_dict,
}
_OPCODES: dict[bytes, tuple[Callable[[Any], Any] | None, _Execute]] = {
    opcode.code.encode("latin-1"): (opcode.arg.reader if opcode.arg else None, _EXECUTE[opcode.name])
    for opcode in pickletools.opcodes
    if opcode.name in _EXECUTE
}
"""How the argument of each opcode is read, and what it does."""
