"""Pickles of torch's flight recorder: each opcode is checked before anything is decoded.

A dump can neither run code nor take more memory than allowed. Of a truncated dump, the complete entries are decoded.
"""

from __future__ import annotations

import gc
import io
import pickle
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NoReturn

from msgspec import Struct

from tracelink._io.pickles import opcode_in_words
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
STOP = b"."

_STRING = ord("X")
_STRING_HEAD = 5
_CLOSER_OF = {ord("]"): ord("e"), ord("}"): ord("u")}
_BETWEEN_ENTRIES = (b"e", b"ue")
"""Open containers between two entries: a list (torch 2.2), or a dict and the list in it (later versions)."""

_SIZES = dict.fromkeys(b"]}(eu.N\x88\x89\x86", 1) | dict.fromkeys(b"Khq", 2) | dict.fromkeys(b"XJjr", 5)
_SIZES |= {ord("M"): 3, ord("G"): 9, 0x8A: 10}
"""Bytes of each opcode that torch writes, including arguments of fixed size."""

_BYTES_PER_LONG_PUT = 8
"""Bytes of the smallest object with a four-byte memo index: an empty container, and the PUT."""

COSTS = {b"](": 100, b"}(": 540, b"\x86": 64, b"\x8a\x08": 72, b"M": 72, b"J": 72, b"G": 64, b"X": 100}
COSTS |= {b"h": 40, b"j": 40, b"K": 40, b"N": 40, b"\x88": 40, b"\x89": 40}
"""Bytes of memory for each opcode, at most, including its slots on the stack and in a container; a dict includes
the row of columns that it may become."""

_NOT_FROM_TORCH = (
    "torch's flight recorder does not write this; no code in it was run. "
    "Take the dump again, or leave the file out."
)
TRUNCATED = "The file is truncated, or is still being written: copy it or take it again."

DECODER_ERRORS = (pickle.UnpicklingError, TypeError, ValueError, LookupError, AttributeError, EOFError)
"""Errors of the decoder for opcodes that are each allowed, but invalid together."""


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


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pauses Python's cycle collector: a dump has no cycles, and the search takes as long as decoding."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


# Decoding


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
    end, _ = _check(data, path)
    if data[end:] == STOP:
        return Loaded(_decode(data, path)[0])
    truncation = _truncation(data, end, path)
    complete = _closed_after_last_entry(data, end)
    if complete is None:
        raise UnreadableError(
            truncation.problem, source=path, position=f"byte {truncation.offset}", advice=TRUNCATED
        )
    return Loaded(_decode(complete, path)[0], truncation)


def load_with_stable_memo(data: bytes, path: str) -> Any:
    """Decodes a complete dump in which each memo index has one meaning, and no list is shared."""
    end, puts = _check(data, path)
    if data[end:] != STOP:
        raise UnreadableError("it is truncated", source=path)
    content, memo = _decode(data, path)
    if len(memo) != puts or list in set(map(type, memo.values())):
        raise UnreadableError("a memo index is used for several values", source=path)
    return content


class _Grammar(Struct, frozen=True):
    """What may follow: a PUT, and runs of other opcodes after zero, one, or several strings.

    A run ends before the PUT of a container, and before a new string. Its first group matches if it ends in a known
    string before a new one, its second if it ends in a container with a PUT. Every quantifier is possessive: the
    match never backtracks.
    """

    put: re.Pattern[bytes]
    runs: tuple[re.Pattern[bytes], ...]


_STRING_LAST, _CONTAINER_LAST = 1, 2


@lru_cache(maxsize=8)
def _grammar(memo_high: int) -> _Grammar:
    put = rb"(?:q.|r..[\x00-%b]\x00)?+" % re.escape(bytes([memo_high]))
    get = rb"(?:h.|j.{4})"
    known = rb"(?:%b(?!X))" % get
    run = (
        rb"(?:h.(?!X)(?:%b++\x86?+)?+|[\]}]\(|K.|[eu](?![qr])|[N\x88\x89]|j.{4}(?!X)(?:%b++\x86?+)?+"
        rb"|\x8a\x08.{8}|M..|J.{4}|G.{8})*+(?:(%b)(?=X)|([eu])(?=[qr]))?+" % (known, known, get)
    )
    after = (rb"", rb"(?:%b++\x86?+)?+" % known, rb"%b*+\x86?+" % known)
    return _Grammar(re.compile(put, re.DOTALL), tuple(re.compile(start + run, re.DOTALL) for start in after))


def _check(data: bytes, path: str) -> tuple[int, int]:
    """The offset where torch's opcodes end (STOP in a complete dump), and the number of PUTs before it."""
    grammar = _grammar(min(len(data) // _BYTES_PER_LONG_PUT >> 16, 255))
    offset, strings, puts = len(HEADER), 0, 0
    while run := grammar.runs[min(strings, 2)].match(data, offset):
        if run.end() > offset:
            strings = 1 if run.lastindex == _STRING_LAST else 0
        end = run.end()
        if run.lastindex != _CONTAINER_LAST:
            offset = end
            if data[offset : offset + 1] != b"X":
                break
            end = offset + _STRING_HEAD + int.from_bytes(data[offset + 1 : offset + _STRING_HEAD], "little")
            if end > len(data):
                break
            _check_string(data[offset + _STRING_HEAD : end], offset + _STRING_HEAD, path)
            strings += 1
        put = grammar.put.match(data, end)
        offset = put.end() if put else end
        puts += offset > end
    return offset, puts


def _check_string(string: bytes, offset: int, path: str) -> None:
    """Refuses lone surrogates too: the decoder would accept them, and no writer could encode them."""
    try:
        string.decode()
    except UnicodeDecodeError as error:
        raise UnreadableError(
            f"a string is not UTF-8 ({error.reason})",
            source=path,
            position=f"byte {offset + error.start}",
            advice="The dump is damaged: copy it or take it again.",
        ) from None


class PlainDecoder(pickle.Unpickler):
    """A decoder without classes: the second guard, as the grammar has no opcode that needs them."""

    def find_class(self, module: str, name: str, /) -> NoReturn:
        """Refuses every class."""
        raise pickle.UnpicklingError(f"it names {module}.{name}")

    def persistent_load(self, pid: Any, /) -> NoReturn:
        """Refuses every external object."""
        raise pickle.UnpicklingError("it names an object outside itself")


def _decode(data: bytes, path: str) -> tuple[Any, dict[int, Any]]:
    """The content of a pickle, and its memo at the end."""
    decoder = PlainDecoder(io.BufferedReader(io.BytesIO(data), 1 << 16))
    try:
        with collector_paused():
            return decoder.load(), decoder.memo.copy()
    except DECODER_ERRORS as error:
        raise UnreadableError(
            f"the pickle is invalid ({error})", source=path, advice=_NOT_FROM_TORCH
        ) from None


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
