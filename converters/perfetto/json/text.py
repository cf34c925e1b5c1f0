"""JSON text that every engine loads."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from tracelink.converters.perfetto.timeline.layout import EXACT_NS, OWN_HEADER, PRIVATE, REPLACED
from tracelink.model.columns import Float64s, Int64s
from tracelink.model.graph import Rank
from tracelink.model.job import Job
from tracelink.model.trace import SourceInfo

# JSON text that every version of Perfetto's engine loads as it was meant.


Texts = npt.NDArray[np.object_]
"""One bytes object for each code."""

ESCAPE = re.compile(
    rb"\\(?:[uU]([dD][89abAB][0-9a-fA-F]{2})(?:\\[uU]([dD][c-fC-F][0-9a-fA-F]{2}))?|[uU][dD]...|.)"
)
"""Any escape, so that an escaped backslash is never taken for the start of one."""

SURROGATE = re.compile("[\ud800-\udfff]")

NUL_SIGN = "\N{SYMBOL FOR NULL}"
"""Stands for U+0000, at which the engine would cut a name off."""

NUL_ESCAPE = r"\u0000"
ESCAPED = re.compile(r"\\(?:u[0-9a-f]{4}|.)")

REPLACEMENT = "\N{REPLACEMENT CHARACTER}".encode()


def micros(nanoseconds: Int64s) -> list[bytes]:
    """Microseconds as exact decimals with at most three places."""
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
    return orjson.dumps(whole_text(text))


def whole_text(text: str) -> str:
    """The text without single surrogates and without U+0000."""
    text = text.replace("\0", NUL_SIGN)
    return text if text.isascii() or not SURROGATE.search(text) else _paired(text)


def encoded(value: Any) -> bytes:
    """Any JSON value, with a space after colons: HTA finds the rank by that."""
    text = json.dumps(value, ensure_ascii=False)
    if NUL_ESCAPE in text:
        text = ESCAPED.sub(lambda escape: NUL_SIGN if escape[0] == NUL_ESCAPE else escape[0], text)
    return _paired(text).encode()


def _paired(text: str) -> str:
    """The text with pairs of surrogates made one character, and single ones replaced."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def table(texts: Iterable[bytes], length: int) -> Texts:
    """A table of `length` texts, for taking many of them at once."""
    column = np.empty(length, object)
    column[:] = list(texts)
    return column


def loadable(text: bytes) -> bytes:
    """JSON text as UTF-8 without surrogate escapes: Perfetto refuses a whole file for one such pair."""
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


# What stands around the events: the facts on the job, and each rank's header.


PROFILER_KEYS = frozenset({"deviceProperties", "distributedInfo"})
"""A header with one of these is a profiler's."""

EVENTS = b',\n"traceEvents": [\n'
END = b"\n]\n}\n"
LAST = b"}"
"""Closes the last event."""


def opening(job: Job, base: int) -> bytes:
    """Everything before the list of events."""
    values: dict[str, Any] = {"schemaVersion": 1}
    lone = _lone_header(job)
    if lone is not None:
        values |= lone
    values |= {
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": base,
        OWN_HEADER: {"ranks": [_rank(job, rank, brief=lone is not None) for rank in job.ranks]},
    }
    return unclosed_object(values)


def unclosed_object(values: Mapping[str, Any]) -> bytes:
    """The text of an object, a member on each line, left open for more of them."""
    lines = [b"%s: %s" % (encoded(key), encoded(value)) for key, value in values.items()]
    return b"{\n" + b",\n".join(lines)


def _lone_header(job: Job) -> dict[str, Any] | None:
    """The header of a single rank's profile, at the top level where other tools look for it."""
    if len(job.ranks) != 1:
        return None
    rank = job.ranks[0]
    header: dict[str, Any] = {"deviceProperties": [], "distributedInfo": {}}
    for source in job.sources:
        if PROFILER_KEYS & source.header.keys():
            header |= _public(source.header)
            break
    known = {} if rank.world_size is None else {"world_size": rank.world_size}
    header["distributedInfo"] = known | dict(header["distributedInfo"] or {}) | {"rank": rank.rank}
    return header


def _rank(job: Job, rank: Rank, *, brief: bool) -> dict[str, Any]:
    facts: dict[str, Any] = {"rank": rank.rank, "clock_offset_ns": rank.clock_offset_ns}
    clock = {
        "clock_drift_ppm": rank.clock_drift_ppm or None,
        "clock_low_ns": rank.clock_low_ns,
        "clock_high_ns": rank.clock_high_ns,
        "clock_uncertainty_ns": rank.clock_uncertainty_ns,
    }
    facts |= {name: value for name, value in clock.items() if value is not None}
    if rank.world_size is not None:
        facts["world_size"] = rank.world_size
    facts["sources"] = [
        _source(source, brief=brief) for source in job.sources if source.rank in (rank.rank, None)
    ]
    return facts


def _source(source: SourceInfo, *, brief: bool) -> dict[str, Any]:
    facts: dict[str, Any] = {"format": source.format}
    if source.version:
        facts["version"] = source.version
    if not brief:
        facts |= _public(source.header)
    return facts


def _public(header: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in header.items() if key not in PRIVATE | REPLACED}


def unclosed(events: Iterator[dict[str, Any]]) -> bytes:
    """The text of events, the last of them left open for the next event to close."""
    return b"},\n".join(encoded(event).removesuffix(b"}") for event in events)
