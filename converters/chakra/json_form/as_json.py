"""`.et` to JSON: one object of metadata and nodes, a node on each line, written as they are read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from tracelink.converters.chakra.framing import Frame, FramingError, frames
from tracelink.converters.chakra.json_form.messages import METADATA, NODES, WIRE
from tracelink.converters.chakra.json_form.suffixes import JSON_SUFFIXES, renamed
from tracelink.converters.chakra.streaming import buffered, cut_off
from tracelink.engine import Engine
from tracelink.findings import Finding, Severity
from tracelink.plugins import Output, Target
from tracelink.sources import Source

OPENING, BETWEEN, CLOSING = b'{"metadata":', b',"nodes":[\n', b"\n]}\n"
WIRE_MARK = b'"%s":"' % WIRE.encode()
TOGETHER = 1024
"""Nodes that are written at a time."""


@dataclass(slots=True)
class _Written:
    """What was written so far, and what did not fit."""

    path: str
    nodes: int = 0
    raw: int = 0
    """Messages that JSON says in base64 only, or too."""
    findings: list[Finding] = field(default_factory=list)

    def texts(self, messages: Iterator[Frame]) -> Iterator[bytes]:
        """The nodes, until the messages end."""
        try:
            for frame in messages:
                text = NODES.text(frame.body)
                self.raw += WIRE_MARK in text
                self.nodes += 1
                yield text
        except FramingError as error:
            self.findings.append(cut_off(self.path, str(error), self.nodes, error.offset))


class NodesAsJson:
    """Everything in an `.et` file as one JSON document."""

    name = "chakra-nodes"
    summary = "every node of an .et file as JSON, without loss"
    reads = ("chakra",)
    suffixes = JSON_SUFFIXES

    def convert(self, source: Source, target: Target, engine: Engine) -> list[Output]:
        """Writes one JSON document."""
        name = renamed(source.name, self.suffixes[0])
        written = _Written(source.path)
        with buffered(source, engine.meter.add) as (stream, opened), target.file(name) as out:
            messages = frames(stream)
            first = next(messages, None)
            out.write(OPENING + METADATA.text(first.body if first else b"") + BETWEEN)
            _write_lines(out, written.texts(messages))
            out.write(CLOSING)
            if opened.damage and not written.findings:
                written.findings.append(cut_off(source.path, opened.damage, written.nodes, source.bytes))
        findings = (*written.findings, *_wire_findings(written))
        return [Output(target.path(name), self.name, None, target.size(name), written.nodes, findings)]


def _write_lines(out: BinaryIO, texts: Iterator[bytes]) -> None:
    lines: list[bytes] = []
    before = b""
    for text in texts:
        lines.append(text)
        if len(lines) == TOGETHER:
            out.write(before + b",\n".join(lines))
            before = b",\n"
            lines.clear()
    if lines:
        out.write(before + b",\n".join(lines))


def _wire_findings(written: _Written) -> Iterator[Finding]:
    if written.raw:
        text = (
            f"{written.path}: {written.raw:,} messages say more than JSON can, such as fields of a newer format; "
            f"their bytes stand under {WIRE!r}."
        )
        yield Finding(Severity.INFO, "kept_as_bytes", text, written.raw, written.path)
