"""Dumps that were pickled again by Python: replayed opcode by opcode, plain data only.

Slower than what torch writes itself, and as safe: nothing here can name, import or call anything.
"""

from __future__ import annotations

import io
import pickletools
from collections.abc import Callable
from typing import Any

from tracelink.converters.flight_recorder.budget import MEMORY

BYTES_PER_OPCODE = 240
"""What one opcode leads to in memory, at most: a dict with one item, and its places in the memo and the stack."""

LONGEST_INTEGER = 1 << 64
DEEPEST = 64
"""A dump nests a handful deep."""

_MARK = object()

TEXTS = frozenset({"BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE"})
NUMBERS = frozenset({"BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "BINFLOAT", "FLOAT"})
VALUES = TEXTS | NUMBERS
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
CONTAINERS: dict[str, Callable[[], Any]] = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
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
        elif name in CONTAINERS:
            self.stack.append(CONTAINERS[name]())
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
        if len(waiting) > MEMORY // BYTES_PER_OPCODE or max(depth.get(id(node), 0), 0) > DEEPEST:
            raise NotPlain("a structure that holds itself, or is nested too deep")
