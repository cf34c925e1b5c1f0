"""What an entry says beyond its columns, out of its JSON: tensors, device time, and its stack as it stands there."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import msgspec

from tracelink.converters.flight_database.rows import LARGEST
from tracelink.converters.flight_recorder.schema import CURRENT
from tracelink.dtypes import item_bytes, type_named

LONGEST = 1 << 16
"""Bytes of one text that is kept; more is a trap, for many entries can refer to one list in the dump."""

REPEATED = 1 << 12
"""Texts up to here come again, and are looked at once."""

NOT_SAID = (b"", b"null")

Sizes = list[list[int]]


class Said(
    msgspec.Struct,
    gc=False,
    rename={
        "stack": CURRENT.frames,
        "input_sizes": CURRENT.input_sizes,
        "output_sizes": CURRENT.output_sizes,
        "input_types": CURRENT.input_types,
        "output_types": CURRENT.output_types,
        "duration": CURRENT.duration,
    },
):
    """The parts of an entry as the JSON that they are."""

    stack: msgspec.Raw = msgspec.Raw()
    input_sizes: msgspec.Raw = msgspec.Raw()
    output_sizes: msgspec.Raw = msgspec.Raw()
    input_types: msgspec.Raw = msgspec.Raw()
    output_types: msgspec.Raw = msgspec.Raw()
    duration: msgspec.Raw = msgspec.Raw()


NOTHING = Said()
said_by = msgspec.json.Decoder(Said).decode
sizes_in = msgspec.json.Decoder(Sizes).decode
types_in = msgspec.json.Decoder(list[str]).decode
number_in = msgspec.json.Decoder(float).decode


class Tensors(NamedTuple):
    """What goes in or comes out: as recorded, and how much it is."""

    sizes: str | None
    types: str | None
    elements: int | None
    bytes: int | None
    left_out: int = 0
    """How many of the texts are too long to be kept."""


def tensors_of(sizes: msgspec.Raw, types: msgspec.Raw) -> Tensors:
    """The tensors of one direction."""
    pair = bytes(sizes), bytes(types)
    return _known(*pair) if len(pair[0]) + len(pair[1]) <= REPEATED else _measured(*pair)


def duration_of(raw: msgspec.Raw) -> float | None:
    """A time in ms, or None if there is none."""
    text = bytes(raw)
    if text in NOT_SAID:
        return None
    try:
        return number_in(text)
    except msgspec.DecodeError:
        return None


def _measured(sizes: bytes, types: bytes) -> Tensors:
    elements = _elements(sizes)
    left_out = (len(sizes) > LONGEST) + (len(types) > LONGEST)
    return Tensors(_kept(sizes), _kept(types), _sum(elements), _sum(_bytes(elements, types)), left_out)


_known = lru_cache(maxsize=4096)(_measured)


def _kept(text: bytes) -> str | None:
    return None if text in NOT_SAID or len(text) > LONGEST else text.decode()


def _elements(sizes: bytes) -> list[int] | None:
    """Of each tensor."""
    try:
        return [_product(tensor) for tensor in sizes_in(sizes)]
    except (msgspec.DecodeError, OverflowError):
        return None


def _product(sizes: list[int]) -> int:
    product = 1
    for size in sizes:
        product *= size
        if size < 0 or product > LARGEST:
            raise OverflowError
    return product


def _bytes(elements: list[int] | None, types: bytes) -> list[int] | None:
    if elements is None:
        return None
    try:
        items = [item_bytes(type_named(name)) for name in types_in(types)] if elements else []
    except msgspec.DecodeError:
        return None
    if len(items) != len(elements) or None in items:
        return None
    return [count * (item or 0) for count, item in zip(elements, items, strict=True)]


def _sum(parts: list[int] | None) -> int | None:
    total = None if parts is None else sum(parts)
    return total if total is not None and total <= LARGEST else None
