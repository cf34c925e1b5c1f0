"""JSON back to `.et`: the messages that the JSON came from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tracelink.converters.chakra.framing import framed
from tracelink.converters.chakra.json_form.array import METADATA_KEY, NODES_KEY, messages_format
from tracelink.converters.chakra.json_form.messages import METADATA, Said
from tracelink.converters.chakra.json_form.suffixes import ET_SUFFIXES, renamed
from tracelink.damage import damage_findings
from tracelink.elements import ArrayDocument
from tracelink.engine import Engine
from tracelink.findings import Finding, Severity
from tracelink.plugins import Output, Target
from tracelink.sources import Source


@dataclass(slots=True)
class Rebuilt:
    """The messages of a JSON document; iterate `pieces` to the end, then look at the rest."""

    source: Source
    engine: Engine
    not_nodes: int = 0
    changed: Counter[str] = field(default_factory=Counter)
    """What could not be kept, and in how many messages."""
    offsets: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    """Where each piece of the array begins in the document, and how many elements it holds."""
    elements: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    """Of each node which element it is, and where its message begins."""
    findings: list[Finding] = field(default_factory=list)

    def pieces(self) -> Iterator[bytes]:
        """The bytes of an `.et` file."""
        document = ArrayDocument(self.source, messages_format(self.source.head()))
        written = 0
        for offset, piece in document.pieces(self.engine.meter.add):
            if not self.offsets:
                metadata = self._metadata(document.header)
                written += len(metadata)
                yield metadata
            body = b"".join(self._placed(piece, written))
            self.offsets.append(offset)
            self.counts.append(len(piece))
            written += len(body)
            yield body
        self.findings += self._misfits(document)

    def _metadata(self, header: Mapping[str, Any]) -> bytes:
        said = METADATA.said(header.get(METADATA_KEY, {}))
        if said is None:
            self.changed["the metadata are no metadata"] += 1
            return framed(b"")
        return self._framed(said)

    def _placed(self, piece: Sequence[Said | None], position: int) -> Iterator[bytes]:
        """The messages of a piece, the first at `position`."""
        first = sum(self.counts)
        for element, said in enumerate(piece, first):
            if said is None:
                self.not_nodes += 1
                continue
            self.elements.append(element)
            self.positions.append(position)
            message = self._framed(said)
            position += len(message)
            yield message

    def _framed(self, said: Said) -> bytes:
        if said.reason:
            self.changed[said.reason] += 1
        return framed(said.body)

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return len(self.elements)

    def _misfits(self, document: ArrayDocument[list[Said | None]]) -> Iterator[Finding]:
        path = self.source.path
        cut = None if document.cut_off is None else (document.cut_off, document.cut_off_reason)
        yield from damage_findings(path, document.damage, cut, self.nodes, "nodes")
        if self.not_nodes:
            text = f"{path}: {self.not_nodes:,} elements of {NODES_KEY!r} are no nodes and are left out."
            yield Finding(Severity.WARNING, "not_a_node", text, self.not_nodes, path)
        if self.changed:
            reason, count = self.changed.most_common(1)[0]
            text = f"{path}: {self.changed.total():,} messages could not be kept as they stand, most because: {reason}."
            yield Finding(Severity.WARNING, "not_kept", text, count, path, reason)
        if strange := sorted(document.header.keys() - {METADATA_KEY, NODES_KEY}):
            text = f"{path}: an .et file has no place for {', '.join(strange)}, which is left out."
            yield Finding(Severity.WARNING, "not_kept", text, len(strange), path)


class JsonAsNodes:
    """The `.et` file that a JSON document was made from."""

    name = "chakra"
    summary = "an .et file from its JSON, without loss"
    reads = ("chakra-nodes",)
    suffixes = ET_SUFFIXES

    def convert(self, source: Source, target: Target, engine: Engine) -> list[Output]:
        """Writes one `.et` file."""
        name = renamed(source.name, self.suffixes[0])
        rebuilt = Rebuilt(source, engine)
        with target.file(name) as out:
            for piece in rebuilt.pieces():
                out.write(piece)
        findings = tuple(rebuilt.findings)
        return [Output(target.path(name), self.name, None, target.size(name), rebuilt.nodes, findings)]
