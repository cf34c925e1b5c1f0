"""The bytes of a source to a dump, whichever of the two forms it has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tracelink.converters.flight_recorder import budget, documents, pickles, python_pickles, schema
from tracelink.converters.flight_recorder.abridging import abridged
from tracelink.converters.flight_recorder.repeats import Entries
from tracelink.converters.flight_recorder.replay import NotPlain, replay
from tracelink.errors import UnreadableError
from tracelink.findings import Finding, Severity
from tracelink.sources import Source

JSON_START = b"{"
SPACE = b" \t\r\n"


@dataclass(frozen=True, slots=True)
class Decoded:
    """A dump, and what was found on the way."""

    dump: schema.Dump
    entries: Entries
    findings: list[Finding]
    cut_short: bool


def decode(source: Source) -> Decoded:
    """Reads and decodes a whole dump."""
    return _decoded(source, *_bytes(source))


def decodings(source: Source) -> Iterator[Decoded]:
    """First, if that is possible, with as few entries as tell of all; then with all, should that not do."""
    data, damage = _bytes(source)
    if data.startswith(pickles.HEADER):
        budget.refuse_if_too_large(data, pickles.COSTS, source.path)
        if brief := abridged(data, source.path):
            yield Decoded(*brief, [], cut_short=False)
    yield _decoded(source, data, damage)


def _decoded(source: Source, data: bytes, damage: str) -> Decoded:
    if data.lstrip(SPACE).startswith(JSON_START):
        content, cut = documents.load(data, source.path), None
    else:
        loaded = _unpickled(data, source.path)
        content, cut = loaded.content, loaded.cut
    dump = schema.dump_of(content)
    if dump is None:
        raise UnreadableError(
            "a dict with version and entries, or a list of entries, was expected: it is not a dump",
            source=source.path,
            advice="Say what it is with --kineto or --et, or leave it out.",
        )
    findings = [_truncated(source, dump, cut, damage)] if cut else []
    return Decoded(dump, Entries.all_decoded(dump.entries), findings, cut is not None)


def _unpickled(data: bytes, path: str) -> pickles.Loaded:
    """As torch wrote it, else as Python may have written the same data again."""
    try:
        return pickles.load(data, path)
    except budget.TooLargeError:
        raise
    except UnreadableError:
        try:
            known = python_pickles.loaded(data)
            return pickles.Loaded(known.value if known else replay(data))
        except NotPlain:
            pass
        raise


def _bytes(source: Source) -> tuple[bytes, str]:
    try:
        with source.open() as opened:
            return opened.read_all(budget.FILE), opened.damage
    except UnreadableError as error:
        raise UnreadableError(error.problem, source=source.path, advice=error.advice) from None
    except OSError as error:
        raise UnreadableError(
            error.strerror or str(error), source=source.path, advice="Check that the file can be read."
        ) from error


def _truncated(source: Source, dump: schema.Dump, cut: pickles.Cut, damage: str) -> Finding:
    because = f" ({damage})" if damage else ""
    message = (
        f"{source.path}, byte {cut.at}: {cut.problem}{because}. "
        f"The {len(dump.entries)} entries before it are used. {pickles.CUT_SHORT}"
    )
    return Finding(Severity.ERROR, "truncated", message, source=source.path)
