"""Pickles of unknown origin: a machine for plain data, which never runs or imports anything.

The opcodes of a stream are executed one after the other, and bounded by its size: few bytes do not become many objects.
A format that turns parts of the content into columns while they are decoded overrides what happens to containers.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

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

_HEAD = 2
_PROTOCOLS = range(2, 6)
_FIRST_FRAMED = 4
_FRAME, _FRAME_HEAD = 0x95, 9


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
    framed = head[1] >= _FIRST_FRAMED
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
