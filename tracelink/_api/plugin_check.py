"""The contract of readers, for their authors: `tracelink.plugins.check`."""

from __future__ import annotations

import gzip
import os
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from msgspec import Struct

import tracelink.plugins as plugins
from tracelink._io.sources import Request, Source, discover
from tracelink._io.spool import packed, unpacked
from tracelink._link.rank import link_rank
from tracelink._model.columns import Table
from tracelink._model.errors import UnreadableError
from tracelink._model.findings import Finding
from tracelink._model.trace import RankTrace
from tracelink._run.processes import Processes
from tracelink.plugins import Content, Format, ReaderMethods
from tracelink.plugins.traces import trace_problems

METHODS = {
    Content.RECORDS: "read_records",
    Content.COMPILATIONS: "read_log",
    Content.METRICS: "read_metrics",
    Content.JOB: "read_job",
}
"""How the files of a content are read, besides `read`."""

STRANGE = {
    "an empty file": b"",
    "an empty JSON object": b"{}",
    "an empty JSON list": b"[]",
    "a text": b"Lorem ipsum dolor sit amet\n" * 20,
    "binary zeros": bytes(4096),
    "a profile of kineto": b'{"schemaVersion": 1, "distributedInfo": {"rank": 0}, "traceEvents": [{"ph": "X", "cat": '
    b'"cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 1, "dur": 1}]}',
    "an SQLite database": b"SQLite format 3\0" + bytes(1000),
    "a pickle": b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01a\x94K\x01u.",
}
"""First bytes of files that are of no invented format."""

ENGINE = Processes(1)
CUTS = (0.0, 0.1, 0.37, 0.5, 0.73, 0.999)
"""Where a file is cut off, as parts of its length."""
COPIES = 20
"""Copies of a file of which some bytes are others."""


def problems_of(declared: Format, files: Sequence[str | os.PathLike[str]]) -> list[str]:
    """What is wrong with a declaration, and with what its reader makes of these files and of damaged copies."""
    if not declared.reader:
        return [f"the format {declared.name!r} declares no reader"]
    try:
        reader = _reader(declared)
    except Exception as error:  # noqa: BLE001  whatever is wrong with the plugin is what is asked
        return [f"{declared.reader.implementation} cannot be made: {_in_words(error)}"]
    found = [*_declaration_problems(declared, reader), *_claims(declared)]
    for file in files:
        found += [
            f"{os.fspath(file)}: {problem}" for problem in _FileCheck(declared, reader).problems(Path(file))
        ]
    return found


def _reader(declared: Format) -> Any:
    assert declared.reader
    module, _, name = declared.reader.implementation.partition(":")
    return getattr(__import__(module, fromlist=[name]), name)()


def _declaration_problems(declared: Format, reader: ReaderMethods) -> Iterator[str]:
    spec = declared.reader
    assert spec
    if getattr(reader, "name", None) != declared.name:
        yield f"the `name` of the reader is {getattr(reader, 'name', None)!r}, not {declared.name!r}"
    wanted = {"unpacked": spec.unpacks, "inspect": spec.inspects}
    wanted |= {method: spec.content is content for content, method in METHODS.items()}
    for method, is_declared in {"read": True, **wanted}.items():
        if is_declared and not callable(getattr(reader, method, None)):
            yield f"the reader has no method {method!r}, which its `ReaderSpec` declares"
        elif method != "read" and not is_declared and hasattr(reader, method):
            yield f"the reader has the method {method!r}, which its `ReaderSpec` does not declare: it is never called"


def _claims(declared: Format) -> Iterator[str]:
    """Files of other formats that it recognises."""
    for what, head in STRANGE.items():
        if declared.name in what:
            continue
        yield from _recognition(declared, head, "job/trace.json", of_it=False, what=what)


def _recognition(declared: Format, head: bytes, name: str, *, of_it: bool, what: str) -> Iterator[str]:
    assert declared.reader
    try:
        recognised = declared.reader.recognises(head, name)
    except Exception as error:  # noqa: BLE001  whatever is wrong with the plugin is what is asked
        yield f"recognition of {what} raises {_in_words(error)}: return False"
        return
    if bool(recognised) != of_it:
        yield f"{what} is not recognised" if of_it else f"{what} is recognised, and is of another format"


class _FileCheck(Struct, frozen=True):
    """What a reader makes of a file and of damaged copies of it."""

    declared: Format
    reader: ReaderMethods

    def problems(self, path: Path) -> Iterator[str]:
        """What is wrong, the most basic first."""
        source = self._source(path)
        head = source.head()
        yield from _recognition(self.declared, head, source.name, of_it=True, what="the file")
        others = [one.name for one in plugins.recognised(head, source.name) if one.name < self.declared.name]
        if others:
            yield f"{' and '.join(others)} recognises it, too, and the first format by name reads a file"
        try:
            parts, _ = self._parts(source)
            traces = [self.reader.read(part, ENGINE) for part in parts]
        except Exception as error:  # noqa: BLE001  whatever is wrong with the plugin is what is asked
            yield f"it cannot be read: {_in_words(error)}"
            return
        found = [
            problem
            for part, trace in zip(parts, traces, strict=True)
            for problem in trace_problems(trace, part.path, self.declared.name)
        ]
        yield from found
        if found:
            return
        if not any(len(trace.events) + len(trace.counters) + len(trace.round_trips) for trace in traces):
            yield "there are no events and no samples in it"
        for part, trace in zip(parts, traces, strict=True):
            yield from self._differences(trace, part)
            yield from _payload_problems(trace)
            yield from _linking_problems(trace)
        yield from self._damage_problems(path, sum(len(trace.events) for trace in traces))

    def _source(self, path: Path) -> Source:
        (source,) = discover(Request([(str(path), self.declared.name)])).sources
        return source

    def _parts(self, source: Source) -> tuple[list[Source], list[Finding]]:
        """The source of each rank of a file of several, else the file; and what did not fit."""
        assert self.declared.reader
        return self.reader.unpacked(source, ENGINE) if self.declared.reader.unpacks else ([source], [])

    def _differences(self, trace: RankTrace, source: Source) -> Iterator[str]:
        """What is different when it is read again, and after a way to another process."""
        if different := _different(trace, self.reader.read(source, ENGINE)):
            yield f"read twice, {different} differ: results must depend on the file only"
        try:
            moved = unpacked(packed(trace, [source]), [source])
        except Exception as error:  # noqa: BLE001  what cannot be pickled raises errors of many types
            yield f"the trace cannot be pickled, so that no other process can read it: {error}"
            return
        if different := _different(trace, moved):
            yield f"after a way to another process, {different} differ"

    def _damage_problems(self, path: Path, events: int) -> Iterator[str]:
        """What damaged copies do other than costing themselves."""
        with TemporaryDirectory() as folder:
            copy = Path(folder, path.name)
            for what, text in _damaged(path.read_bytes()):
                copy.write_bytes(text)
                if problem := self._damaged_read(copy, events):
                    yield f"{what}, {problem}"

    def _damaged_read(self, copy: Path, events: int) -> str:
        source = self._source(copy)
        try:
            with source.open() as stream:
                while stream.read(1 << 20):
                    pass
                ends_early = stream.damage
            parts, findings = self._parts(source)
            traces = [self.reader.read(part, ENGINE) for part in parts]
        except UnreadableError:
            return ""
        except Exception as error:  # noqa: BLE001  whatever is wrong with the plugin is what is asked
            return f"it raises {_in_words(error)}: report a finding, or raise UnreadableError if nothing is readable"
        for trace in traces:
            if wrong := next(trace_problems(trace, trace.source.path, self.declared.name), ""):
                return wrong
        lost = events - sum(len(trace.events) for trace in traces)
        if ends_early and lost > 0 and not findings and not any(trace.findings for trace in traces):
            return (
                f"{lost} of {events} events are lost without a finding: say `trace.truncated(stream.damage)`"
            )
        return ""


def _damaged(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Damaged copies of a file, and what is wrong with each."""
    random = Random(0)
    stored = gzip.compress(content)
    for part in CUTS:
        yield f"cut after {int(len(content) * part)} bytes", content[: int(len(content) * part)]
        yield f"packed with gzip and cut after {part:.0%}", stored[: int(len(stored) * part)]
    for number in range(COPIES if content else 0):
        damaged = bytearray(content)
        for _ in range(1 + number % 3):
            damaged[random.randrange(len(content))] = random.randrange(256)
        yield f"with other bytes (copy {number})", bytes(damaged)


def _payload_problems(trace: RankTrace) -> Iterator[str]:
    for first, texts in trace.payloads[0].batches():
        for number, text in enumerate(texts, first):
            if (arguments := bytes(text)) and not arguments.lstrip().startswith(b"{"):
                yield f"the arguments of event {number} are no JSON object: {arguments[:40]!r}"
                return


def _linking_problems(trace: RankTrace) -> Iterator[str]:
    try:
        link_rank(trace.with_rank(trace.source.rank or 0))
    except Exception as error:  # noqa: BLE001  whatever is wrong with the trace is what is asked
        yield f"its events cannot be linked: {_in_words(error)}"


def _different(one: RankTrace, other: RankTrace) -> str:
    """The parts in which two traces differ; empty if in none."""
    parts: Mapping[str, Callable[[RankTrace], Any]] = {
        "sources": lambda trace: trace.sources,
        "names": lambda trace: trace.strings.texts(),
        "tracks": lambda trace: trace.tracks,
        "groups": lambda trace: trace.groups,
        "findings": lambda trace: trace.findings,
        "events": lambda trace: _columns(trace.events),
        "samples": lambda trace: _columns(trace.counters),
        "edges": lambda trace: _columns(trace.edges),
        "communications": lambda trace: _columns(trace.communications),
        "arguments": lambda trace: [
            list(map(bytes, texts)) for one in trace.payloads for _, texts in one.batches()
        ],
    }
    return " and ".join(name for name, part in parts.items() if part(one) != part(other))


def _columns(table: Table) -> list[bytes]:
    return [np.ascontiguousarray(column).tobytes() for column in table.columns().values()]


def _in_words(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} (line {frame.lineno} of {Path(frame.filename).name}, in {frame.name})"
