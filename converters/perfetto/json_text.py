"""JSON text that every version of Perfetto's engine loads as intended: numbers, strings, objects."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from tracelink._model.columns import Float64s, Int64s

Texts = npt.NDArray[np.object_]
"""One bytes object for each code or row."""


NUL_SIGN = "\N{SYMBOL FOR NULL}"
"""Replaces U+0000, at which the engine would truncate a name."""


ESCAPE = re.compile(
    rb"\\(?:[uU]([dD][89abAB][0-9a-fA-F]{2})(?:\\[uU]([dD][c-fC-F][0-9a-fA-F]{2}))?|[uU][dD]...|.)"
)
"""Any escape: an escaped backslash must not be taken for the start of another one."""


SURROGATE = re.compile("[\ud800-\udfff]")


NUL_ESCAPE = r"\u0000"


ESCAPED = re.compile(r"\\(?:u[0-9a-f]{4}|.)")


REPLACEMENT = "\N{REPLACEMENT CHARACTER}".encode()


EXACT_NS = 10**15
"""Below this many nanoseconds the shortest decimal of a double of microseconds is exact: 15 digits."""


def micros(nanoseconds: Int64s) -> list[bytes]:
    """Microseconds as exact decimals with at most three digits after the point."""
    if not len(nanoseconds):
        return []
    if int(np.abs(nanoseconds).max()) >= EXACT_NS:
        return [_micros(time) for time in nanoseconds.tolist()]
    return orjson.dumps(nanoseconds / 1000, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1].split(b",")


def _micros(time: int) -> bytes:
    whole, rest = divmod(abs(time), 1000)
    return b"%s%d.%03d" % (b"-" if time < 0 else b"", whole, rest)


def numbers(values: Int64s | Float64s) -> list[bytes]:
    """Finite numbers as text."""
    if not len(values):
        return []
    return orjson.dumps(np.ascontiguousarray(values), option=orjson.OPT_SERIALIZE_NUMPY)[1:-1].split(b",")


def quoted(text: str) -> bytes:
    """A JSON string without surrogates and without U+0000."""
    return orjson.dumps(clean_text(text))


def clean_text(text: str) -> str:
    """A string without single surrogates and without U+0000."""
    text = text.replace("\0", NUL_SIGN)
    return text if text.isascii() or not SURROGATE.search(text) else _paired(text)


def encoded(value: Any) -> bytes:
    """Any JSON value, with a space after colons: HTA needs it to find the rank."""
    text = json.dumps(value, ensure_ascii=False)
    if NUL_ESCAPE in text:
        text = ESCAPED.sub(lambda escape: NUL_SIGN if escape[0] == NUL_ESCAPE else escape[0], text)
    return _paired(text).encode()


def unclosed_object(values: Mapping[str, Any]) -> bytes:
    """A JSON object with one member on each line, left open for more members."""
    lines = [b"%s: %s" % (encoded(key), encoded(value)) for key, value in values.items()]
    return b"{\n" + b",\n".join(lines)


def _paired(text: str) -> str:
    """A string with pairs of surrogates joined, and single ones replaced."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def table(texts: Iterable[bytes], length: int) -> Texts:
    """A column of texts, from which many can be taken at once."""
    column = np.empty(length, object)
    column[:] = list(texts)
    return column


def loadable(text: bytes) -> bytes:
    """JSON text as UTF-8 without surrogate escapes: Perfetto rejects a whole file because of one such pair."""
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError:
            text = text.decode(errors="replace").encode()
    if b"\\" in text and (b"\\ud" in text or b"\\uD" in text):
        text = ESCAPE.sub(_unescaped, text)
    return text


def _unescaped(match: re.Match[bytes]) -> bytes:
    high, low = match.groups()
    whole = match.group()
    if high and low:
        pair = bytes.fromhex((high + low).decode())
        return pair.decode("utf-16-be").encode()
    if whole[1:3].lower() == b"ud" and int(whole[3:4], 16) >= 8:
        return REPLACEMENT
    return whole
