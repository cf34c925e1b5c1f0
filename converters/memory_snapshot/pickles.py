"""Pickles of snapshots, decoded as a stream: plain data only, and entries become columns as they end.

A snapshot can have millions of entries. Those with the keys of earlier ones are matched as a whole; all others are
decoded opcode by opcode. Python's own decoder is never used: nothing in a file can be run or imported.
"""

from __future__ import annotations

import pickletools
import re
import struct
from array import array
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from msgspec import Struct, field

import tracelink.converters.memory_snapshot.schema as schema
from tracelink.converters.memory_snapshot.shapes import (
    GET,
    KEYS_OF_ENTRY,
    Shape,
    clipped,
    number_of,
    shape_of,
)
from tracelink.io.sources import Opened
from tracelink.model.columns import UNKNOWN, StringTable
from tracelink.model.communications import text_in
from tracelink.model.errors import UnreadableError
from tracelink.model.records import Frame

BLOCK = 4 << 20
AHEAD = 1 << 20
"""Bytes that are in memory after the position: an entry is matched only if it is among them."""
LONGEST_TEXT = 16 << 20
MOST_SHAPES = 64
SLACK = 1 << 10
"""Memo indexes are at most so much larger than their number: writers count them."""
MOST_MARKS = 1 << 10
"""Containers are not nested deeper."""
MANY_VALUES = 1 << 18
BYTES_OF_A_CONTAINER = 12
BYTES_OF_A_VALUE = 4
"""Values that torch writes take at least so many bytes, if there are many: an empty dict takes one."""
HEADER = re.compile(rb"\x80[\x02-\x05]")
FRAMED = 4
FRAME, FRAME_HEAD = 0x95, 9

NOT_FROM_TORCH = (
    "torch does not write this in a snapshot; no code in it was run. "
    "Take the snapshot again, or leave the file out."
)


class Truncated(Exception):  # noqa: N818  the end of a file, not a failure
    """The bytes end within the pickle."""


# Bytes: without the frames around them.


def unframed(stream: Opened, advanced: Callable[[int], None]) -> Iterator[bytes]:
    """The opcodes of a pickle in blocks, without the heads of frames."""
    head = stream.read(2)
    advanced(len(head))
    if not HEADER.match(head):
        raise UnreadableError(f"it starts with {head.hex(' ')}; a snapshot starts with 80 02 to 80 05")
    left = 0
    framed = head[1] >= FRAMED
    while True:
        if framed and not left:
            start = stream.read(FRAME_HEAD)
            advanced(len(start))
            framed = len(start) == FRAME_HEAD and start[0] == FRAME
            if not framed:
                yield start
                continue
            left = int.from_bytes(start[1:], "little")
            continue
        block = stream.read(min(BLOCK, left) if framed else BLOCK)
        advanced(len(block))
        if not block:
            return
        left -= len(block) if framed else 0
        yield block


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


class _Mark:
    """Begins the items of a container."""


ENTRY, MARK = _Entry(), _Mark()


class Decoded(Struct):
    """The content of a snapshot: its root without entries, the entries, and the lists that they are in."""

    root: Any
    entries: Entries
    owned: list[Owned]
    truncated: str = ""
    """Where and how it ends early."""


def decode(stream: Opened, advanced: Callable[[int], None]) -> Decoded:
    """Decodes a snapshot; of a truncated one, the entries before the end."""
    return _Machine(unframed(stream, advanced)).run()


_SIZES = {b"K": 1, b"M": 2, b"J": 4}
"""Bytes of the arguments of integer opcodes."""


# The machine: a stack, a memo, and one opcode after the other.


class _Machine:
    def __init__(self, blocks: Iterator[bytes]) -> None:
        self.blocks = blocks
        self.data, self.at, self.before, self.ended = b"", 0, 2, False
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo = array("i")
        """For each memo index the index of its value."""
        self.values: list[Any] = [ENTRY]
        self.entries = Entries()
        self.owned: list[Owned] = []
        self.pending = array("q")
        """Rows of the entries that are on the stack."""
        self.shapes: list[Shape] = []
        self.tried: set[tuple[bytes, ...]] = set()
        self.stacks_by_text: dict[bytes, int] = {}
        self.lists_of_stacks: dict[int, int] = {}
        self.containers = 0

    def run(self) -> Decoded:
        """Decodes until STOP."""
        try:
            while self._step():
                pass
        except Truncated:
            position = f"it ends after {self.before + len(self.data)} bytes, within the snapshot"
            self._close()
            if not self.stack:
                raise UnreadableError(position, advice="Take the snapshot again, or copy it again.") from None
            return Decoded(self.stack[0], self.entries, self.owned, position)
        if len(self.stack) != 1:
            self._refuse("the pickle ends with more than one value")
        return Decoded(self.stack[0], self.entries, self.owned)

    # Bytes.

    def _fill(self, count: int) -> None:
        """Makes `count` bytes available after the position, as far as the file has them."""
        while not self.ended and len(self.data) - self.at < count:
            block = next(self.blocks, None)
            if block is None:
                self.ended = True
                return
            self.before += self.at
            self.data, self.at = self.data[self.at :] + block, 0
            if len(self.stack) > MANY_VALUES and len(self.stack) * BYTES_OF_A_VALUE > self.before:
                self._refuse(f"{self.before:,} bytes have {len(self.stack):,} values that nothing contains")

    def _take(self, count: int) -> bytes:
        """The next bytes."""
        if len(self.data) - self.at < count:
            self._fill(max(count, AHEAD))
            if len(self.data) - self.at < count:
                raise Truncated
        self.at += count
        return self.data[self.at - count : self.at]

    def _refuse(self, problem: str) -> NoReturn:
        raise UnreadableError(problem, position=f"byte {self.before + self.at}", advice=NOT_FROM_TORCH)

    # Opcodes.

    def _step(self) -> bool:
        """Executes one opcode, or a whole entry; False for STOP."""
        if len(self.data) - self.at < AHEAD:
            self._fill(AHEAD)
        opcode = self._take(1)
        if opcode == b"}":
            self.at -= 1
            if not (self._known_entry() or self._learned_entry()):
                self.at += 1
                self._open(_Dict())
        elif opcode == b".":
            return False
        else:
            self._execute(opcode)
        return True

    def _execute(self, opcode: bytes) -> None:
        stack = self.stack
        match opcode:
            case b"h":
                stack.append(self._recalled(self._take(1)[0]))
            case b"j":
                stack.append(self._recalled(int.from_bytes(self._take(4), "little")))
            case b"\x94":
                self._memorize(len(self.memo))
            case b"q":
                self._memorize(self._take(1)[0])
            case b"r":
                self._memorize(int.from_bytes(self._take(4), "little"))
            case b"K" | b"M" | b"J":
                stack.append(number_of(opcode + self._take(_SIZES[opcode])))
            case b"\x8a":
                size = self._take(1)
                stack.append(number_of(opcode + size + self._take(size[0])))
            case b"X" | b"\x8c" | b"\x8d":
                stack.append(self._text(opcode))
            case b"N" | b"\x88" | b"\x89":
                stack.append({b"N": None, b"\x88": True, b"\x89": False}[opcode])
            case b"G":
                stack.append(struct.unpack(">d", self._take(8))[0])
            case b"]":
                self._open(List())
            case b")":
                stack.append(())
            case b"(":
                if len(self.marks) >= MOST_MARKS:
                    self._refuse(f"{MOST_MARKS} containers are inside of each other")
                self.marks.append(len(stack))
                stack.append(MARK)
            case b"\x80" | b"\x95":
                self._take(1 if opcode == b"\x80" else 8)
            case _:
                self._build(opcode)

    def _build(self, opcode: bytes) -> None:
        match opcode:
            case b"a":
                item = self._pop()
                self._extend([item])
            case b"e":
                self._extend(self._marked())
            case b"s":
                value, key = self._pop(), self._pop()
                self._set([key, value])
            case b"u":
                self._set(self._marked())
            case b"t":
                self._tuple(self._marked())
            case b"\x85" | b"\x86" | b"\x87":
                self._tuple([self._pop() for _ in range(opcode[0] - 0x84)][::-1])
            case _:
                self.at -= 1
                known = {code.code: code.name for code in pickletools.opcodes}
                name = known.get(opcode.decode("latin-1"), "")
                self._refuse(
                    f"opcode {f'{name} ' if name else ''}(0x{opcode[0]:02x}) does not occur in a snapshot"
                )

    def _text(self, opcode: bytes) -> str:
        size = int.from_bytes(self._take({b"X": 4, b"\x8c": 1, b"\x8d": 8}[opcode]), "little")
        if size > LONGEST_TEXT:
            self._refuse(f"a string has {size} bytes")
        try:
            return self._take(size).decode()
        except UnicodeDecodeError:
            self._refuse("a string is not UTF-8")

    def _pop(self) -> Any:
        if not self.stack or self.stack[-1] is MARK:
            self._refuse("a value is missing")
        return self.stack.pop()

    def _marked(self) -> list[Any]:
        """The values after the last mark, which are taken from the stack."""
        if not self.marks:
            self._refuse("there is no mark")
        start = self.marks.pop()
        items = self.stack[start + 1 :]
        del self.stack[start:]
        return items

    # Memo.

    def _recalled(self, index: int) -> Any:
        if not 0 <= index < len(self.memo) or self.memo[index] < 0:
            self._refuse(f"memo index {index} is unknown")
        return self.values[self.memo[index]] if self.memo[index] else None

    def _memorize(self, index: int) -> None:
        if not self.stack or self.stack[-1] is MARK:
            self._refuse("a value is missing")
        value = self.stack[-1]
        if value is ENTRY:
            self._put(index, 0)
            return
        self._put(index, len(self.values))
        self.values.append(value)

    def _put(self, index: int, value: int) -> None:
        if index > len(self.memo) + SLACK:
            self._refuse(f"memo index {index} is too large")
        while len(self.memo) <= index:
            self.memo.append(-1)
        self.memo[index] = value

    # Containers.

    def _open(self, container: Any) -> None:
        """Begins a container; refuses more values than a snapshot of this size can have."""
        self.containers += 1
        self.stack.append(container)
        if self.containers > MANY_VALUES and not self.containers % MOST_MARKS:
            size = self.before + self.at
            if self.containers * BYTES_OF_A_CONTAINER > size:
                self._refuse(f"{size:,} bytes have {self.containers:,} lists and dicts")

    def _extend(self, items: list[Any]) -> None:
        """Adds items to the list on the stack; rows of entries get it as their owner."""
        if not self.stack or type(self.stack[-1]) is not List:
            self._refuse("there is no list to fill")
        target: List = self.stack[-1]
        if rows := self._rows_among(items):
            self.owned.append(Owned(target, rows))
            items = [item for item in items if item is not ENTRY]
        target.extend(items)

    def _rows_among(self, items: list[Any]) -> array[int]:
        """The rows of the entries among values that leave the stack."""
        count = sum(item is ENTRY for item in items)
        rows = self.pending[len(self.pending) - count :]
        del self.pending[len(self.pending) - count :]
        return rows

    def _tuple(self, items: list[Any]) -> None:
        self._rows_among(items)
        self.stack.append(tuple(items))

    def _set(self, pairs: list[Any]) -> None:
        if not self.stack or type(self.stack[-1]) is not _Dict or len(pairs) % 2:
            self._refuse("there is no dict to fill")
        target: _Dict = self.stack[-1]
        keys = pairs[::2]
        if not all(type(key) in (str, int) for key in keys):
            self._refuse("a key is neither a string nor an integer")
        self._rows_among(pairs)
        target.update(zip(keys, pairs[1::2], strict=True))
        self._classify(target)

    def _classify(self, content: _Dict) -> None:
        """Makes a row of an entry, and notes the frames of stacks."""
        if schema.FILE in content and schema.LINE in content:
            frame = Frame(
                text_in(content.get(schema.NAME)),
                text_in(content[schema.FILE]),
                clipped(content[schema.LINE]),
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
            clipped(address),
            clipped(size),
            clipped(content.get(schema.TIME)),
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
        if len(self.shapes) >= MOST_SHAPES:
            return False
        for pattern in KEYS_OF_ENTRY.values():
            match = pattern.match(self.data, self.at)
            if not match:
                continue
            keys = list(match.groups()[::2])
            if tuple(keys) in self.tried:
                return False
            self.tried.add(tuple(keys))
            names = [self._recalled(int.from_bytes(key[1:], "little")) for key in keys]
            shape = shape_of(keys, names) if all(type(name) is str for name in names) else None
            if shape is None:
                return False
            self.shapes.insert(0, shape)
            return self._known_entry()
        return False

    def _add_match(self, shape: Shape, match: re.Match[bytes]) -> bool:
        action = self._recalled(int.from_bytes(match[shape.action][1:], "little"))
        stack = self._stack_in(match[shape.stack], match[shape.stack + 2]) if shape.stack else UNKNOWN
        if type(action) is not str or stack is None:
            return False
        self.entries.add(
            self.entries.actions[action],
            number_of(match[shape.address]) if shape.address else UNKNOWN,
            number_of(match[shape.size]),
            number_of(match[shape.time]) if shape.time else UNKNOWN,
            stack,
        )
        for group, is_stack in shape.puts:
            if put := match[group]:
                index = len(self.memo) if put == b"\x94" else int.from_bytes(put[1:], "little")
                self._put(index, self._list_of(stack) if is_stack else 0)
        self.stack.append(ENTRY)
        self.pending.append(len(self.entries) - 1)
        self.at = match.end()
        return True

    def _stack_in(self, text: bytes, frames_text: bytes | None) -> int | None:
        """The stack that is in these opcodes, a GET or a list of known frames; None if they are no stack."""
        if frames_text is None:
            frames = self._recalled(int.from_bytes(text[1:], "little"))
            return self._stack_of(frames) if type(frames) is List else None
        if frames_text in self.stacks_by_text:
            return self.stacks_by_text[frames_text]
        found = []
        for get in re.finditer(GET, frames_text.removeprefix(b"("), re.DOTALL):
            frame = self._recalled(int.from_bytes(get[0][1:], "little"))
            if type(frame) is not _Dict or frame.frame == UNKNOWN:
                return None
            found.append(frame.frame)
        stack = self.entries.stacks.setdefault(tuple(found), len(self.entries.stacks)) if found else UNKNOWN
        self.stacks_by_text[frames_text] = stack
        return stack

    def _list_of(self, stack: int) -> int:
        """The index of the value that stands for all lists with the frames of a stack."""
        if stack not in self.lists_of_stacks:
            frames = List()
            frames.stack = stack
            self.lists_of_stacks[stack] = len(self.values)
            self.values.append(frames)
        return self.lists_of_stacks[stack]

    # The end of a truncated file.

    def _close(self) -> None:
        """Ends all open containers, without what is incomplete in them."""
        while self.marks:
            items = self._marked()
            if self.stack and type(self.stack[-1]) is List:
                self._extend(items)
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
                self._extend([item])
                self.stack.pop()
