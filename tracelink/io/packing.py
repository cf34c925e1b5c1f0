"""Values between processes: pickled, with what both sides have by its number, and large arrays apart."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Sequence
from typing import Any

PROTOCOL = 5

BufferTaker = Callable[[pickle.PickleBuffer], object]


class _Pickler(pickle.Pickler):
    def __init__(self, stream: io.BytesIO, shared: Sequence[object], take: BufferTaker | None) -> None:
        super().__init__(stream, protocol=PROTOCOL, buffer_callback=take)
        self._numbers = {id(thing): number for number, thing in enumerate(shared)}

    def persistent_id(self, thing: object) -> int | None:
        return self._numbers.get(id(thing))


class _Unpickler(pickle.Unpickler):
    """Reads what this program wrote; never an input."""

    def __init__(self, stream: io.BytesIO, shared: Sequence[object], buffers: Iterable[Any] | None) -> None:
        super().__init__(stream, buffers=buffers)
        self._shared = shared

    def persistent_load(self, number: int) -> object:
        return self._shared[number]


def packed(thing: object, shared: Sequence[object] = (), take: BufferTaker | None = None) -> bytes:
    """The bytes of a value; `take` gets large arrays in place of a copy of them in the bytes."""
    stream = io.BytesIO()
    _Pickler(stream, shared, take).dump(thing)
    return stream.getvalue()


def unpacked(text: bytes, shared: Sequence[object] = (), buffers: Iterable[Any] | None = None) -> Any:
    """The value of such bytes."""
    return _Unpickler(io.BytesIO(text), shared, buffers).load()
