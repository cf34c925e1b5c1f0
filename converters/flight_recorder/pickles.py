"""What torch pickles, checked before it is read."""

from __future__ import annotations

import gc
import io
import pickle
import pickletools
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NoReturn

import orjson

from tracelink.model.errors import UnreadableError

# How much memory a dump may take, decided before it is taken.


class TooLargeError(UnreadableError):
    """A dump that is refused for what it could grow to."""


MEMORY = 192 << 20
"""Bytes that a decoded dump may take: about 50,000 collectives with stacks; torch keeps 2,000 by default."""

WORST_GROWTH = 64
"""Nothing in a dump takes more memory than this for each of its bytes."""

WIDEST_CHARACTER = 4
"""A string of ASCII and one emoji takes four bytes for each character."""

FILE = 32 << 20
"""A larger file is not even read; one string that fills it, and its copies, stay in the bounds."""


def refuse_if_too_large(data: bytes, costs: Mapping[bytes, int], path: str) -> None:
    """Refuses what could take more memory than allowed; `costs` are bytes of memory for each token."""
    if len(data) * WORST_GROWTH <= MEMORY:
        return
    needed = len(data) * WIDEST_CHARACTER + sum(data.count(token) * cost for token, cost in costs.items())
    if needed > MEMORY:
        raise TooLargeError(
            f"decoding could take {needed >> 20} MB of memory, more than the {MEMORY >> 20} MB allowed",
            source=path,
            advice="Take the dump with a smaller TORCH_FR_BUFFER_SIZE, or without stacks.",
        )


# Python's cycle collector, while it has nothing to find.


@contextmanager
def collector_paused() -> Iterator[None]:
    """A dump has no cycles to collect, and looking for them takes as long as decoding it."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


# Pickles: checked opcode by opcode before they are decoded, so that a dump can neither run code nor swell.


HEADER = b"\x80\x02"
STRING = ord("X")
STRING_HEAD = 5
STOP = b"."
CLOSER_OF = {ord("]"): ord("e"), ord("}"): ord("u")}
BETWEEN_ENTRIES = (b"e", b"ue")
"""What is open between two entries: the list of torch 2.2; the dict and the list in it of all since."""

SIZES = dict.fromkeys(b"]}(eu.N\x88\x89\x86", 1) | dict.fromkeys(b"Khq", 2) | dict.fromkeys(b"XJjr", 5)
SIZES |= {ord("M"): 3, ord("G"): 9, 0x8A: 10}
"""Bytes of each opcode that torch writes, with its arguments of fixed size."""

BYTES_PER_LONG_PUT = 8
"""The smallest thing that can enter the memo under a four-byte index: an empty container, and the index."""

COSTS = {b"](": 100, b"}(": 540, b"\x86": 64, b"\x8a\x08": 72, b"M": 72, b"J": 72, b"G": 64, b"X": 100}
COSTS |= {b"h": 40, b"j": 40, b"K": 40, b"N": 40, b"\x88": 40, b"\x89": 40}
"""Bytes of memory that an opcode leads to at most, with its places on the stack and in a container; a dict
is counted with the row of columns that it may become."""

FOREIGN = "torch's recorder does not write this; nothing of it was run. Take the dump again, or leave it out."
CUT_SHORT = "It was cut short, or is still being written: copy it or take it again."

REFUSALS = (pickle.UnpicklingError, TypeError, ValueError, LookupError, AttributeError, EOFError)
"""What the decoder says to opcodes that are each allowed but make no sense together."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a dump broke off."""

    at: int
    problem: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a pickle holds, and where it was cut, if it was."""

    content: Any
    cut: Cut | None = None


def load(data: bytes, path: str) -> Loaded:
    """Decodes a dump; of one that was cut short, the entries that are complete."""
    if not data.startswith(HEADER):
        _refuse_start(data, path)
    refuse_if_too_large(data, COSTS, path)
    end, _ = _passed(data, path)
    if data[end:] == STOP:
        return Loaded(_decoded(data, path)[0])
    cut = _cut_or_refusal(data, end, path)
    whole = _closed_after_last_entry(data, end)
    if whole is None:
        raise UnreadableError(cut.problem, source=path, position=f"byte {cut.at}", advice=CUT_SHORT)
    return Loaded(_decoded(whole, path)[0], cut)


def load_settled(data: bytes, path: str) -> Any:
    """Decodes a whole dump in which a reference means the same wherever it stands, and no list is shared."""
    end, puts = _passed(data, path)
    if data[end:] != STOP:
        raise UnreadableError("it is not whole", source=path)
    content, memo = _decoded(data, path)
    if len(memo) != puts or list in set(map(type, memo.values())):
        raise UnreadableError("what its references mean changes", source=path)
    return content


@dataclass(frozen=True, slots=True)
class _Grammar:
    """What may follow: a PUT, and runs of other opcodes after no text, one text, or several.

    A run ends before a PUT of a container, and before a string; its first group is set if it ends in a text before
    a string, its second if it ends in such a container. Every quantifier is possessive: nothing is tried twice.
    """

    put: re.Pattern[bytes]
    runs: tuple[re.Pattern[bytes], ...]


TEXT_FIRST, CONTAINER_LAST = 1, 2


@lru_cache(maxsize=8)
def _grammar(memo_high: int) -> _Grammar:
    put = rb"(?:q.|r..[\x00-%b]\x00)?+" % re.escape(bytes([memo_high]))
    get = rb"(?:h.|j.{4})"
    text = rb"(?:%b(?!X))" % get
    run = (
        rb"(?:h.(?!X)(?:%b++\x86?+)?+|[\]}]\(|K.|[eu](?![qr])|[N\x88\x89]|j.{4}(?!X)(?:%b++\x86?+)?+"
        rb"|\x8a\x08.{8}|M..|J.{4}|G.{8})*+(?:(%b)(?=X)|([eu])(?=[qr]))?+" % (text, text, get)
    )
    after = (rb"", rb"(?:%b++\x86?+)?+" % text, rb"%b*+\x86?+" % text)
    return _Grammar(re.compile(put, re.DOTALL), tuple(re.compile(start + run, re.DOTALL) for start in after))


def _passed(data: bytes, path: str) -> tuple[int, int]:
    """Passes over all that torch writes: where that ends, before STOP in a whole dump, and the number of PUTs."""
    grammar = _grammar(min(len(data) // BYTES_PER_LONG_PUT >> 16, 255))
    at, texts, puts = len(HEADER), 0, 0
    while run := grammar.runs[min(texts, 2)].match(data, at):
        if run.end() > at:
            texts = 1 if run.lastindex == TEXT_FIRST else 0
        end = run.end()
        if run.lastindex != CONTAINER_LAST:
            at = end
            if data[at : at + 1] != b"X":
                break
            end = at + STRING_HEAD + int.from_bytes(data[at + 1 : at + STRING_HEAD], "little")
            if end > len(data):
                break
            _check_text(data[at + STRING_HEAD : end], at + STRING_HEAD, path)
            texts += 1
        put = grammar.put.match(data, end)
        at = put.end() if put else end
        puts += at > end
    return at, puts


def _check_text(text: bytes, at: int, path: str) -> None:
    """Refuses lone surrogates too, which the decoder would let through and no writer could write."""
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise UnreadableError(
            f"a string is not UTF-8 ({error.reason})",
            source=path,
            position=f"byte {at + error.start}",
            advice="The dump is damaged: copy it or take it again.",
        ) from None


class _Decoder(pickle.Unpickler):
    """The second lock behind the grammar, which has no opcode that leads here."""

    def find_class(self, module: str, name: str, /) -> NoReturn:
        raise pickle.UnpicklingError(f"it names {module}.{name}")

    def persistent_load(self, pid: Any, /) -> NoReturn:
        raise pickle.UnpicklingError("it names an object outside itself")


def _decoded(data: bytes, path: str) -> tuple[Any, dict[int, Any]]:
    """What a pickle holds, and what its references mean in the end."""
    decoder = _Decoder(io.BufferedReader(io.BytesIO(data), 1 << 16))
    try:
        with collector_paused():
            return decoder.load(), decoder.memo.copy()
    except REFUSALS as error:
        raise UnreadableError(
            f"the pickle contradicts itself ({error})", source=path, advice=FOREIGN
        ) from None


def _refuse_start(data: bytes, path: str) -> NoReturn:
    if HEADER.startswith(data):
        raise UnreadableError(
            f"it ends after {len(data)} bytes, where a dump begins with 80 02", source=path, advice=CUT_SHORT
        )
    raise UnreadableError(
        f"it begins with {data[:2].hex(' ')}, where a dump begins with 80 02 (pickle protocol 2)",
        source=path,
        position="byte 0",
        advice=FOREIGN,
    )


def _cut_or_refusal(data: bytes, end: int, path: str) -> Cut:
    """How the dump broke off at `end`; if it did not break off but goes wrong there, an error."""
    if end == len(data):
        return Cut(end, f"it ends after {end} bytes in the middle of the dump; STOP was expected")
    opcode = data[end]
    if opcode == STRING and len(data) >= end + STRING_HEAD:
        length = int.from_bytes(data[end + 1 : end + STRING_HEAD], "little")
        return Cut(end, f"a string of {length} bytes begins here, and the file ends after {len(data)} bytes")
    if end + SIZES.get(opcode, 0) > len(data):
        return Cut(end, f"it ends after {len(data)} bytes in the middle of an opcode")
    raise UnreadableError(_what_is_wrong(data, end), source=path, position=f"byte {end}", advice=FOREIGN)


def _what_is_wrong(data: bytes, at: int) -> str:
    opcode = data[at]
    if data[at : at + 1] == STOP:
        return f"the pickle ends here, and {len(data) - at - 1} more bytes follow"
    name = next((known.name for known in pickletools.opcodes if known.code == chr(opcode)), "")
    shown = f"{name} (0x{opcode:02x})" if name else f"0x{opcode:02x}"
    if opcode in SIZES:
        return f"opcode {shown} stands here with an argument or in a place that a dump does not have"
    return f"opcode {shown} is not one that a dump is made of"


def _closed_after_last_entry(data: bytes, end: int) -> bytes | None:
    """A whole pickle with the entries that are complete before `end`; None if there are none."""
    opened = bytearray()
    kept, closers = 0, b""
    at = len(HEADER)
    while at < end:
        opcode = data[at]
        if opcode in CLOSER_OF:
            opened.append(CLOSER_OF[opcode])
            at += 1
        elif opcode in b"eu":
            if not opened:
                return None
            opened.pop()
            if opened in BETWEEN_ENTRIES:
                kept, closers = at + 1, bytes(reversed(opened))
        elif opcode == STRING:
            at += int.from_bytes(data[at + 1 : at + STRING_HEAD], "little")
        at += SIZES[opcode]
    return data[:kept] + closers + STOP if kept else None


# Decoded values as JSON: exact numbers, tuples as lists, NaN as null, and never larger than is sensible.


LARGEST_TEXT = 4 << 20
"""Of one entry, or of one fact about the whole dump, as JSON."""

TOO_LARGE = LARGEST_TEXT + 1
DEEPEST = 16
PUNCTUATION = 4
ESCAPED = 6
"""The longest escape of one character."""

NUMBER = 24
"""The longest number, with its comma."""


class Sizes:
    """How long values become as JSON, each object measured once however often others refer to it.

    Measures objects that stay alive: an object is told by its identity.
    """

    def __init__(self) -> None:
        self._known: dict[int, int] = {}

    def fits(self, value: Any) -> bool:
        """Whether `value` may be written out as JSON."""
        return self._sum((value,), 0) <= LARGEST_TEXT

    def _sum(self, values: Iterable[Any], depth: int) -> int:
        size = 0
        for value in values:
            kind = type(value)
            if kind is str:
                size += ESCAPED * len(value) + PUNCTUATION
            elif kind is list or kind is dict or kind is tuple:
                size += self._known.get(id(value)) or self._measured(value, depth + 1)
            else:
                size += NUMBER
        return size

    def _measured(self, value: Any, depth: int) -> int:
        if depth > DEEPEST:
            return TOO_LARGE
        if type(value) is dict:
            size = PUNCTUATION + _keys_size(value) + self._sum(value.values(), depth)
        else:
            size = PUNCTUATION + self._sum(value, depth)
        self._known[id(value)] = size
        return size


def _keys_size(value: dict[Any, Any]) -> int:
    try:
        return ESCAPED * len("".join(value)) + PUNCTUATION * len(value)
    except TypeError:
        numbered = all(type(key) is str or type(key) is int for key in value)
        return sum(ESCAPED * len(str(key)) + PUNCTUATION for key in value) if numbered else TOO_LARGE


def json_text(value: Any) -> bytes:
    """`value` as JSON; it must fit."""
    try:
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
    except orjson.JSONEncodeError:
        return orjson.dumps(_in_whole_characters(value), option=orjson.OPT_NON_STR_KEYS)


def _in_whole_characters(value: Any) -> Any:
    """The same with a question mark for each half of a character, which pickles can hold and JSON cannot."""
    kind = type(value)
    if kind is str:
        return value.encode("utf-8", "replace").decode("utf-8")
    if kind is list or kind is tuple:
        return [_in_whole_characters(one) for one in value]
    if kind is dict:
        return {_in_whole_characters(key): _in_whole_characters(one) for key, one in value.items()}
    return value


def plain(value: Any) -> Any:
    """A copy of `value` made of what JSON knows, in which nothing is shared; it must fit."""
    return orjson.loads(json_text(value))
