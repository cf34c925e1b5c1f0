"""Decoding a dump: from the bytes of a source, pickle or JSON, to its entries and findings."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from tracelink.converters.flight_recorder import pickles, schema
from tracelink.converters.flight_recorder.scan import Entries, abridged, selected
from tracelink.io.sources import Source
from tracelink.model.errors import Finding, Severity, UnreadableError

_JSON_COSTS = {b"{": 540, b"[": 120, b",": 96}
"""Bytes of memory for each value, at most; an object includes the row of columns that it may become."""

_JSON_START = b"{"
_SPACE = b" \t\r\n"


@dataclass(frozen=True, slots=True)
class Decoded:
    """A dump with its entries, and the findings of decoding it."""

    dump: schema.Dump
    entries: Entries
    findings: list[Finding]
    truncated: bool


def decode(source: Source) -> Decoded:
    """Reads and decodes a complete dump."""
    return _decoded(source, *_bytes(source))


def decodings(source: Source) -> Iterator[Decoded]:
    """First the dump without its repeated entries, if possible; then, if the caller cannot use that, all of it."""
    data, damage = _bytes(source)
    if data.startswith(pickles.HEADER) and (abridgement := abridged(data, source.path)):
        yield Decoded(*abridgement, [], truncated=False)
    yield _decoded(source, data, damage)


def entry_count(source: Source) -> int:
    """The number of entries of a dump."""
    return next(decodings(source)).entries.count


def decode_rows(source: Source, rows: Collection[int]) -> tuple[schema.Dump, Mapping[int, Any]]:
    """The dump, and its entries by row, at least those in `rows`, even if all of them would be too large."""
    try:
        dump = decode(source).dump
    except pickles.TooLargeError:
        data, _ = _bytes(source)
        found = selected(data, source.path, rows) if data.startswith(pickles.HEADER) else None
        if found is None:
            raise
        return found
    return dump, {row: dump.entries[row] for row in rows if 0 <= row < len(dump.entries)}


def _bytes(source: Source) -> tuple[bytes, str]:
    """The bytes of the source, and the damage of its compression, if any."""
    try:
        with source.open() as opened:
            return opened.read_all(pickles.MAX_FILE_BYTES), opened.damage
    except UnreadableError as error:
        error.source = error.source or source.path
        raise
    except OSError as error:
        raise UnreadableError(
            error.strerror or str(error), source=source.path, advice="Check that the file can be read."
        ) from error


def _decoded(source: Source, data: bytes, damage: str) -> Decoded:
    if data.lstrip(_SPACE).startswith(_JSON_START):
        content, truncation = _from_json(data, source.path), None
    else:
        loaded = _from_pickle(data, source.path)
        content, truncation = loaded.content, loaded.truncation
    dump = schema.dump_of(content)
    if dump is None:
        raise UnreadableError(
            "it is not a dump: expected a dict with version and entries, or a list of entries",
            source=source.path,
            advice="Is this the file that the flight recorder wrote? Otherwise leave it out.",
        )
    findings = [_truncated(source, dump, truncation, damage)] if truncation else []
    return Decoded(dump, Entries.all_decoded(dump.entries), findings, truncation is not None)


def _from_json(data: bytes, path: str) -> Any:
    """The content of a JSON dump, as torch's control plane serves it."""
    pickles.refuse_if_too_large(data, _JSON_COSTS, path)
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise UnreadableError(
            f"it is not valid JSON: {error.msg}",
            source=path,
            position=f"line {error.lineno}, column {error.colno}",
            advice="Copy or take the dump again.",
        ) from None


def _from_pickle(data: bytes, path: str) -> pickles.Loaded:
    """The content of a pickle as torch writes it, or as Python may have written the same data again."""
    try:
        return pickles.load(data, path)
    except pickles.TooLargeError:
        raise
    except UnreadableError:
        from tracelink.converters.flight_recorder import python_pickles

        try:
            content = python_pickles.load_fast(data)
            return pickles.Loaded(content.value if content else python_pickles.replay(data))
        except python_pickles.NotPlain:
            pass
        raise


def _truncated(source: Source, dump: schema.Dump, truncation: pickles.Truncation, damage: str) -> Finding:
    cause = f" ({damage})" if damage else ""
    message = (
        f"{source.path}, byte {truncation.offset}: {truncation.problem}{cause}. "
        f"The {len(dump.entries)} entries before it are used. {pickles.TRUNCATED}"
    )
    return Finding(Severity.ERROR, "truncated", message, source=source.path)
