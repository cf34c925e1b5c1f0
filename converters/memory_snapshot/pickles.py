"""Pickles of snapshots, decoded as a stream: entries become columns as they end.

A snapshot can have millions of entries. Those with the keys of earlier ones are matched as a whole; all others are
decoded opcode by opcode.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct, field

from tracelink._io.pickles import AHEAD, GET, LONG, Machine, Truncated, unframed
from tracelink._io.sources import Opened
from tracelink._model.columns import UNKNOWN, StringTable
from tracelink._model.communications import text_in
from tracelink._model.errors import UnreadableError
from tracelink._model.records import Frame
from tracelink.converters.memory_snapshot import schema

# Entries as columns.


def _integers() -> array[int]:
    return array("q")


def _codes() -> array[int]:
    return array("i")


class Entries(Struct):
    """Blocks of segments and entries of traces, one row for each."""

    action: array[int] = field(default_factory=_codes)
    """Code of an action, or of the state of a block, in `actions`."""
    address: array[int] = field(default_factory=_integers)
    """Of an entry without one the free memory of the device."""
    size: array[int] = field(default_factory=_integers)
    """As requested, of blocks too."""
    time: array[int] = field(default_factory=_integers)
    """In microseconds since 1970; UNKNOWN for blocks."""
    stack: array[int] = field(default_factory=_codes)
    """Index of `stacks`, or UNKNOWN."""
    actions: StringTable = field(default_factory=StringTable)
    stacks: dict[tuple[int, ...], int] = field(default_factory=dict)
    """Stacks as indexes of `frames`, innermost first."""
    frames: dict[Frame, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.action)

    def taken(self) -> Entries:
        """The rows without texts; here are none any more."""
        rows = Entries(self.action, self.address, self.size, self.time, self.stack)
        self.action, self.stack = _codes(), _codes()
        self.address, self.size, self.time = _integers(), _integers(), _integers()
        return rows

    def add(self, action: int, address: int, size: int, time: int, stack: int) -> None:
        """One more row."""
        self.action.append(action)
        self.address.append(address)
        self.size.append(size)
        self.time.append(time)
        self.stack.append(stack)


class Owned(Struct):
    """Rows of entries that are items of one list."""

    owner: List
    rows: array[int]


class List(list[Any]):
    """A list; a stack if `stack` is its index."""

    __slots__ = ("stack",)

    def __init__(self) -> None:
        super().__init__()
        self.stack: int | None = None


class _Dict(dict[Any, Any]):
    """A dict; the frame of a stack if `frame` is its index."""

    __slots__ = ("frame",)

    def __init__(self) -> None:
        super().__init__()
        self.frame = UNKNOWN


class _Entry:
    """Stands for entries that are rows of a table by now."""


ENTRY = _Entry()


class Decoded(Struct):
    """The content of a snapshot: its root without entries, the entries, and the lists that they are in."""

    root: Any
    entries: Entries
    owned: list[Owned]
    truncated: str = ""
    """Where and how it ends early."""


def decode(stream: Opened, advanced: Callable[[int], None]) -> Decoded:
    """Decodes a snapshot; of a truncated one, the entries before the end."""

    def read(count: int) -> bytes:
        block = stream.read(count)
        advanced(len(block))
        return block

    return _Machine(unframed(read), "a snapshot").run()


class _Machine(Machine):
    list_type, dict_type = List, _Dict

    def __init__(self, blocks: Iterator[bytes], what: str) -> None:
        super().__init__(blocks, what)
        self.entries = Entries()
        self.owned: list[Owned] = []
        self.pending = array("q")
        """Rows of the entries that are on the stack."""
        self.shapes: list[_Shape] = []
        self.tried: set[tuple[bytes, ...]] = set()
        self.stacks_by_text: dict[bytes, int] = {}
        self.lists_of_stacks: dict[int, List] = {}

    def run(self) -> Decoded:
        """Decodes until STOP."""
        try:
            while self._entry() or self.step():
                pass
        except Truncated:
            position = f"it ends after {self.before + len(self.data)} bytes, within the snapshot"
            self._close()
            if not self.stack:
                raise UnreadableError(position, advice="Take the snapshot again, or copy it again.") from None
            return Decoded(self.stack[0], self.entries, self.owned, position)
        return Decoded(self.result(), self.entries, self.owned)

    def _entry(self) -> bool:
        """Adds an entry of a known or new shape; False if there is none here."""
        if len(self.data) - self.at < AHEAD:
            self.fill(AHEAD)
        return self.data[self.at : self.at + 1] == b"}" and (self._known_entry() or self._learned_entry())

    # Values and containers.

    def literal(self, value: Any) -> Any:
        """A number that fits a column, or a text."""
        return _clipped(value) if type(value) is int else super().literal(value)

    def recall(self, index: int) -> Any:
        """The value with this index of the memo; no entry is referred to."""
        value = super().recall(index)
        return None if value is ENTRY else value

    def contained(self, items: list[Any], owner: Any = None) -> list[Any]:
        """The items without entries, whose rows get the list as their owner."""
        count = sum(item is ENTRY for item in items)
        if not count:
            return items
        rows = self.pending[len(self.pending) - count :]
        del self.pending[len(self.pending) - count :]
        if owner is None:
            return [None if item is ENTRY else item for item in items]
        self.owned.append(Owned(owner, rows))
        return [item for item in items if item is not ENTRY]

    def update(self, pairs: list[Any]) -> None:
        """Fills the dict on the stack; an entry becomes a row."""
        super().update(pairs)
        self._classify(self.stack[-1])

    def _classify(self, content: _Dict) -> None:
        """Makes a row of an entry, and notes the frames of stacks."""
        if schema.FILE in content and schema.LINE in content:
            frame = Frame(
                text_in(content.get(schema.NAME)),
                text_in(content[schema.FILE]),
                _clipped(content[schema.LINE]),
            )
            content.frame = self.entries.frames.setdefault(frame, len(self.entries.frames))
        elif schema.SIZE in content and (schema.ACTION in content or schema.STATE in content):
            self._add_entry(content)
            content.clear()
            self.stack[-1] = ENTRY
            self.pending.append(len(self.entries) - 1)

    def _add_entry(self, content: _Dict) -> None:
        action = content.get(schema.ACTION, content.get(schema.STATE))
        address = content.get(schema.AT, content.get(schema.ADDRESS, content.get(schema.DEVICE_FREE)))
        size, frames = content.get(schema.REQUESTED, content[schema.SIZE]), content.get(schema.FRAMES)
        history = content.get(schema.HISTORY)
        if frames is None and type(history) is List and history and type(history[0]) is _Dict:
            frames = history[0].get(schema.FRAMES)
            size = history[0].get(schema.REAL_SIZE, size)
        if type(action) is not str:
            action = ""
        self.entries.add(
            self.entries.actions[text_in(action)],
            _clipped(address),
            _clipped(size),
            _clipped(content.get(schema.TIME)),
            self._stack_of(frames),
        )

    def _stack_of(self, frames: Any) -> int:
        """The index of a stack; its items are not needed any more."""
        if type(frames) is not List:
            return UNKNOWN
        if frames.stack is None:
            found = tuple(one.frame for one in frames if type(one) is _Dict and one.frame != UNKNOWN)
            frames.clear()
            frames.stack = (
                self.entries.stacks.setdefault(found, len(self.entries.stacks)) if found else UNKNOWN
            )
        return frames.stack

    # Entries with known keys.

    def _known_entry(self) -> bool:
        """Adds an entry of a known shape; False if there is none here."""
        for index, shape in enumerate(self.shapes):
            match = shape.pattern.match(self.data, self.at)
            if match and match.end() < len(self.data) and self._add_match(shape, match):
                if index > 2:
                    self.shapes.insert(0, self.shapes.pop(index))
                return True
        return False

    def _learned_entry(self) -> bool:
        """Learns the shape of an entry of which only the keys are known; True if it was added."""
        if len(self.shapes) >= _MOST_SHAPES:
            return False
        for pattern in _KEYS_OF_ENTRY.values():
            match = pattern.match(self.data, self.at)
            if not match:
                continue
            keys = list(match.groups()[::2])
            if tuple(keys) in self.tried:
                return False
            self.tried.add(tuple(keys))
            names = [self.recall(int.from_bytes(key[1:], "little")) for key in keys]
            shape = _shape_of(keys, names) if all(type(name) is str for name in names) else None
            if shape is None:
                return False
            self.shapes.insert(0, shape)
            return self._known_entry()
        return False

    def _add_match(self, shape: _Shape, match: re.Match[bytes]) -> bool:
        action = self.recall(int.from_bytes(match[shape.action][1:], "little"))
        stack = self._stack_in(match[shape.stack], match[shape.stack + 2]) if shape.stack else UNKNOWN
        if type(action) is not str or stack is None:
            return False
        self.entries.add(
            self.entries.actions[action],
            _number_of(match[shape.address]) if shape.address else UNKNOWN,
            _number_of(match[shape.size]),
            _number_of(match[shape.time]) if shape.time else UNKNOWN,
            stack,
        )
        for group, is_stack in shape.puts:
            if put := match[group]:
                index = len(self.memo) if put == b"\x94" else int.from_bytes(put[1:], "little")
                self.put(index, self._list_of(stack) if is_stack else ENTRY)
        self.stack.append(ENTRY)
        self.pending.append(len(self.entries) - 1)
        self.at = match.end()
        return True

    def _stack_in(self, text: bytes, frames_text: bytes | None) -> int | None:
        """The stack that is in these opcodes, a GET or a list of known frames; None if they are no stack."""
        if frames_text is None:
            frames = self.recall(int.from_bytes(text[1:], "little"))
            return self._stack_of(frames) if type(frames) is List else None
        if frames_text in self.stacks_by_text:
            return self.stacks_by_text[frames_text]
        found = []
        for get in re.finditer(GET, frames_text.removeprefix(b"("), re.DOTALL):
            frame = self.recall(int.from_bytes(get[0][1:], "little"))
            if type(frame) is not _Dict or frame.frame == UNKNOWN:
                return None
            found.append(frame.frame)
        stack = self.entries.stacks.setdefault(tuple(found), len(self.entries.stacks)) if found else UNKNOWN
        self.stacks_by_text[frames_text] = stack
        return stack

    def _list_of(self, stack: int) -> List:
        """The list that stands for all lists with the frames of a stack."""
        if stack not in self.lists_of_stacks:
            self.lists_of_stacks[stack] = frames = List()
            frames.stack = stack
        return self.lists_of_stacks[stack]

    # The end of a truncated file.

    def _close(self) -> None:
        """Ends all open containers, without what is incomplete in them."""
        while self.marks:
            items = self.marked()
            if self.stack and type(self.stack[-1]) is List:
                self.extend(items)
            elif self.stack and type(self.stack[-1]) is _Dict:
                self._close_pairs(self.stack[-1], items)

    def _close_pairs(self, target: _Dict, items: list[Any]) -> None:
        """Adds whole pairs; what follows a list in place of a key is an item that was not added to the list yet."""
        key: str | None = None
        value: Any = None
        for item in items:
            if key is None and type(item) is str:
                key = item
            elif key is not None and key not in target:
                target[key] = value = item
            elif type(item) is str:
                key = item
            elif type(value) is List:
                self.stack.append(value)
                self.extend([item])
                self.stack.pop()


# Shapes of entries: patterns that match a whole entry with known keys in one order.

_MOST_SHAPES = 64
_MOST_PAIRS = 16

_PUT = rb"(?:q.|r.{4}|\x94)?+"
_NUMBER = rb"(?:K.|M..|J.{4}|%b)" % LONG
_STACK = rb"\](%b)((?:\(%b*+e|%ba)?+)(%b)" % (_PUT, GET, GET, _PUT)
_OTHER = rb"%b|%b|[N\x88\x89]|G.{8}|%b%b\x86(%b)" % (GET, _NUMBER, _NUMBER, _NUMBER, _PUT)
_VALUE = rb"(%b|%b|%b|[N\x88\x89]|G.{8}|%b%b\x86%b)" % (
    GET,
    _NUMBER,
    rb"\]%b(?:\(%b*+e|%ba)?+%b" % (_PUT, GET, GET, _PUT),
    _NUMBER,
    _NUMBER,
    _PUT,
)
_KEYS_OF_ENTRY = {
    count: re.compile(rb"\}%b\(" % _PUT + rb"(%b)%b" % (GET, _VALUE) * count + rb"u", re.DOTALL)
    for count in range(3, _MOST_PAIRS)
}
"""Entries with so many pairs, each of whose keys is known."""


class _Shape(Struct, frozen=True):
    """A pattern of entries with the same keys, and which of its groups hold what."""

    pattern: re.Pattern[bytes]
    action: int
    address: int
    size: int
    time: int
    stack: int
    """0 for what such entries do not have."""
    puts: tuple[tuple[int, bool], ...]
    """Groups with the PUTs of containers, in order, and whether each is of the stack."""


_Value = tuple[bytes, int, bool, tuple[tuple[int, bool], ...]]
"""A pattern, its groups, whether the first of them is the value, and which are PUTs, also of a stack."""

_STACK_VALUE: _Value = (rb"(%b|%b)" % (GET, _STACK), 4, True, ((2, True), (4, True)))
_TEXT_VALUE: _Value = (rb"(%b)" % GET, 1, True, ())
_NUMBER_VALUE: _Value = (rb"(%b)" % _NUMBER, 1, True, ())
_OTHER_VALUE: _Value = (rb"(?:%b)" % _OTHER, 1, False, ((1, False),))
_NUMBERS = (schema.AT, schema.ADDRESS, schema.DEVICE_FREE, schema.SIZE, schema.REQUESTED, schema.TIME)
_VALUES = dict.fromkeys(_NUMBERS, _NUMBER_VALUE)
_VALUES |= {schema.ACTION: _TEXT_VALUE, schema.STATE: _TEXT_VALUE, schema.FRAMES: _STACK_VALUE}


def _shape_of(keys: list[bytes], names: list[str]) -> _Shape | None:
    """The shape of entries with these keys; None if they are no entries."""
    needed = {schema.ACTION, schema.SIZE} if schema.ACTION in names else {schema.STATE, schema.SIZE}
    if not needed <= set(names) or len(set(names)) < len(names):
        return None
    parts, groups, puts = [rb"\}(%b)\(" % _PUT], 1, [(1, False)]
    found: dict[str, int] = {}
    for key, name in zip(keys, names, strict=True):
        value, count, captured, puts_of_value = _VALUES.get(name, _OTHER_VALUE)
        parts += [re.escape(key), value]
        puts += [(groups + group, is_stack) for group, is_stack in puts_of_value]
        if captured:
            found[name] = groups + 1
        groups += count
    parts.append(rb"u(%b)" % _PUT)
    puts.append((groups + 1, False))
    return _Shape(
        re.compile(b"".join(parts), re.DOTALL),
        found.get(schema.ACTION) or found[schema.STATE],
        found.get(schema.AT) or found.get(schema.ADDRESS) or found.get(schema.DEVICE_FREE, 0),
        found.get(schema.REQUESTED) or found[schema.SIZE],
        found.get(schema.TIME, 0),
        found.get(schema.FRAMES, 0),
        tuple(puts),
    )


def _number_of(token: bytes) -> int:
    """The value of an integer opcode."""
    if token[:1] == b"\x8a":
        return _clipped(int.from_bytes(token[2:], "little", signed=True))
    return int.from_bytes(token[1:], "little", signed=token[:1] == b"J")


def _clipped(value: Any) -> int:
    """A number that fits a column; UNKNOWN for all other values."""
    return value if type(value) is int and -(1 << 63) <= value < 1 << 63 else UNKNOWN
