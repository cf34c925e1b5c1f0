"""Pickles of dumps: all opcodes are checked before anything is decoded.

A dump can neither run code nor take more memory than allowed. Of a truncated dump of torch, the complete entries are
decoded. A dump that Python pickled again, in any protocol, is decoded if it has plain data only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from msgspec import Struct

from tracelink._io.pickles import (
    FIRST_FRAMED,
    STOP,
    Machine,
    Scan,
    grammar_of_python,
    grammar_of_torch,
    is_shallow,
    load_plain,
    opcode_in_words,
    scan,
)
from tracelink._io.pickles import Truncated as TruncatedPickle
from tracelink._model.errors import UnreadableError

MAX_FILE_BYTES = 32 << 20
"""A larger file is not read. One string that fills such a file, and its copies, stay within the memory limit."""

MEMORY = 192 << 20
"""Bytes that a decoded dump may take: about 50,000 collectives with stacks; torch keeps 2,000 by default.

Of dumps with more, similar entries are not decoded (see `scan`)."""

_MAX_GROWTH = 64
"""Bytes of memory for each byte of a dump, at most."""

_MAX_CHARACTER_BYTES = 4
"""A string of ASCII and one emoji takes four bytes for each character."""

HEADER = b"\x80\x02"

_STRING = ord("X")
_STRING_HEAD = 5
_CLOSER_OF = {ord("]"): ord("e"), ord("}"): ord("u")}
_BETWEEN_ENTRIES = (b"e", b"ue")
"""Open containers between two entries: a list (torch 2.2), or a dict and the list in it (later versions)."""

_SIZES = dict.fromkeys(b"]}(eu.N\x88\x89\x86", 1) | dict.fromkeys(b"Khq", 2) | dict.fromkeys(b"XJjr", 5)
_SIZES |= {ord("M"): 3, ord("G"): 9, 0x8A: 10}
"""Bytes of each opcode that torch writes, including arguments of fixed size."""

_VALUE_COSTS = dict.fromkeys((b"h", b"j", b"K", b"N", b"\x88", b"\x89"), 40) | {b"G": 64, b"X": 100}
_VALUE_COSTS |= {b"M": 72, b"J": 72}
COSTS = _VALUE_COSTS | {b"](": 100, b"}(": 540, b"\x86": 64, b"\x8a\x08": 72}
"""Bytes of memory for each opcode, at most, including its slots on the stack and in a container; a dict includes
the row of columns that it may become."""

_NOT_FROM_TORCH = (
    "torch's flight recorder does not write this; no code in it was run. "
    "Take the dump again, or leave the file out."
)
TRUNCATED = "The file is truncated, or is still being written: copy it or take it again."

_PYTHON_CONTAINER_COSTS = {b"]": 260, b"}": 640, b"\x86": 260}
"""Bytes of memory, including slots in memo, stack and container, and in the check of the result."""

_PYTHON_COSTS = _VALUE_COSTS | _PYTHON_CONTAINER_COSTS | {b"\x8a": 72, b"\x8c": 100, b"(": 24}

_DEEPEST, _DEEPEST_REPLAYED = 16, 64
"""Levels of what Python pickled; dumps have about five."""

_BYTES_PER_OPCODE = 240
"""Bytes of memory for one opcode, at most: a dict with one item, and its slots in the memo and on the stack."""

_FRAME, _FRAME_HEAD = b"\x95", 9
_SHORTEST_FRAME = 64 << 10
"""Of all frames but the last."""


# Memory


class TooLargeError(UnreadableError):
    """A dump that could take too much memory."""


def refuse_if_too_large(data: bytes, costs: Mapping[bytes, int], path: str) -> None:
    """Refuses a dump that could take more memory than allowed; `costs` are bytes of memory for each token."""
    if len(data) * _MAX_GROWTH <= MEMORY:
        return
    needed = len(data) * _MAX_CHARACTER_BYTES + sum(data.count(token) * cost for token, cost in costs.items())
    if needed > MEMORY:
        raise TooLargeError(
            f"decoding could take {needed >> 20} MB of memory, more than the {MEMORY >> 20} MB allowed",
            source=path,
            advice="Take the dump with a smaller TORCH_FR_BUFFER_SIZE, or without stacks.",
        )


# Dumps as torch writes them


class Truncation(Struct, frozen=True):
    """Where a dump is truncated."""

    offset: int
    problem: str


class Loaded(Struct, frozen=True):
    """The content of a pickle, and where it is truncated, if it is."""

    content: Any
    truncation: Truncation | None = None


def load(data: bytes, path: str) -> Loaded:
    """Decodes a dump; of a truncated dump, the complete entries."""
    if not data.startswith(HEADER):
        _refuse_start(data, path)
    refuse_if_too_large(data, COSTS, path)
    scanned = _scan(data, path)
    if scanned.is_complete:
        return Loaded(_decode(data, path)[0])
    truncation = _truncation(data, scanned.end, path)
    complete = _closed_after_last_entry(data, scanned.end)
    if complete is None:
        raise UnreadableError(
            truncation.problem, source=path, position=f"byte {truncation.offset}", advice=TRUNCATED
        )
    return Loaded(_decode(complete, path)[0], truncation)


def load_with_stable_memo(data: bytes, path: str) -> Any:
    """Decodes a complete dump in which each memo index has one meaning, and no list is shared."""
    scanned = _scan(data, path)
    if not scanned.is_complete:
        raise UnreadableError("it is truncated", source=path)
    content, memo = _decode(data, path)
    if len(memo) != scanned.puts or list in set(map(type, memo.values())):
        raise UnreadableError("a memo index is used for several values", source=path)
    return content


def _scan(data: bytes, path: str) -> Scan:
    scanned = scan(data, grammar_of_torch(len(data)))
    if scanned.damage:
        raise UnreadableError(
            f"a string is not UTF-8 ({scanned.damage.reason})",
            source=path,
            position=f"byte {scanned.end + _STRING_HEAD + scanned.damage.start}",
            advice="The dump is damaged: copy it or take it again.",
        )
    return scanned


def _decode(data: bytes, path: str) -> tuple[Any, dict[int, Any]]:
    try:
        return load_plain(data)
    except UnreadableError as error:
        error.source, error.advice = path, _NOT_FROM_TORCH
        raise


def _refuse_start(data: bytes, path: str) -> NoReturn:
    if HEADER.startswith(data):
        raise UnreadableError(
            f"it ends after {len(data)} bytes; a dump starts with 80 02", source=path, advice=TRUNCATED
        )
    raise UnreadableError(
        f"it starts with {data[:2].hex(' ')}; a dump starts with 80 02 (pickle protocol 2)",
        source=path,
        position="byte 0",
        advice=_NOT_FROM_TORCH,
    )


def _truncation(data: bytes, end: int, path: str) -> Truncation:
    """The truncation at `end`; an error if there is an invalid opcode instead."""
    if end == len(data):
        return Truncation(end, f"it ends after {end} bytes in the middle of the dump; STOP was expected")
    opcode = data[end]
    if opcode == _STRING and len(data) >= end + _STRING_HEAD:
        length = int.from_bytes(data[end + 1 : end + _STRING_HEAD], "little")
        return Truncation(
            end, f"a string of {length} bytes starts here, but the file ends after {len(data)} bytes"
        )
    if end + _SIZES.get(opcode, 0) > len(data):
        return Truncation(end, f"it ends after {len(data)} bytes in the middle of an opcode")
    raise UnreadableError(
        _invalid_opcode(data, end), source=path, position=f"byte {end}", advice=_NOT_FROM_TORCH
    )


def _invalid_opcode(data: bytes, offset: int) -> str:
    opcode = data[offset]
    if data[offset : offset + 1] == STOP:
        return f"the pickle ends here, but {len(data) - offset - 1} more bytes follow"
    shown = opcode_in_words(opcode)
    if opcode in _SIZES:
        return f"opcode {shown} has an argument or a position that does not occur in a dump"
    return f"opcode {shown} does not occur in a dump"


def _closed_after_last_entry(data: bytes, end: int) -> bytes | None:
    """A complete pickle of the entries that end before `end`; None without such an entry."""
    open_containers = bytearray()
    kept_end, closers = 0, b""
    offset = len(HEADER)
    while offset < end:
        opcode = data[offset]
        if opcode in _CLOSER_OF:
            open_containers.append(_CLOSER_OF[opcode])
            offset += 1
        elif opcode in b"eu":
            if not open_containers:
                return None
            open_containers.pop()
            if open_containers in _BETWEEN_ENTRIES:
                kept_end, closers = offset + 1, bytes(reversed(open_containers))
        elif opcode == _STRING:
            offset += int.from_bytes(data[offset + 1 : offset + _STRING_HEAD], "little")
        offset += _SIZES[opcode]
    return data[:kept_end] + closers + STOP if kept_end else None


# Dumps that Python pickled again


class Content(Struct, frozen=True):
    """The content of a pickle."""

    value: Any


def load_fast(data: bytes) -> Content | None:
    """The plain data in a pickle that Python wrote; None if only `replay` can decide."""
    if len(data) <= len(HEADER) or data[0] != HEADER[0] or not 2 <= data[1] <= 5:
        return None
    unframed = b"".join((data[: len(HEADER)], *_frames(data))) if data[1] >= FIRST_FRAMED else data
    if not _fits(unframed):
        return None
    scanned = scan(unframed, grammar_of_python(data[1], len(data)))
    if not scanned.is_complete or not scanned.has_flat_pairs():
        return None
    # In a list, because STOP alone would return the last of several values.
    listed = b"".join((unframed[: len(HEADER)], b"](", unframed[len(HEADER) : -1], b"e."))
    try:
        values, _ = load_plain(listed)
    except (UnreadableError, ValueError):
        return None
    if not isinstance(values, list) or len(values) != 1:  # a MARK without an end closes the list too early
        return None
    (value,) = values
    return Content(value) if is_shallow(value, len(unframed), _DEEPEST) else None


def replay(data: bytes) -> Any:
    """The plain data in a pickle of any protocol; an error if it has anything else, or is truncated."""
    machine = Machine(iter([data]), "a dump")
    try:
        opcodes = 0
        while machine.step():
            opcodes += 1
            if opcodes * _BYTES_PER_OPCODE > MEMORY:
                machine.refuse(f"there are {opcodes} opcodes")
    except TruncatedPickle:
        raise UnreadableError("it is truncated") from None
    value = machine.result()
    if not is_shallow(value, len(data), _DEEPEST_REPLAYED):
        machine.refuse("a structure contains itself, or is nested too deeply")
    return value


def _frames(data: bytes) -> Iterator[bytes]:
    """The bytes in the frames, and those after them."""
    at = len(HEADER)
    while data[at : at + 1] == _FRAME:
        end = at + _FRAME_HEAD + int.from_bytes(data[at + 1 : at + _FRAME_HEAD], "little")
        is_complete = end <= len(data) and (end - at >= _SHORTEST_FRAME or data[end : end + 1] != _FRAME)
        if not is_complete:
            break
        yield data[at + _FRAME_HEAD : end]
        at = end
    yield data[at:]


def _fits(data: bytes) -> bool:
    try:
        refuse_if_too_large(data, _PYTHON_COSTS, "")
    except TooLargeError:
        return False
    return sum(data.count(token) * cost for token, cost in _PYTHON_CONTAINER_COSTS.items()) <= MEMORY
