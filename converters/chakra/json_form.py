""".et as JSON and back."""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, BinaryIO, Generic, TypeVar, cast

import msgspec
from google.protobuf import json_format
from google.protobuf.message import DecodeError

from tracelink.converters.chakra.chakra_pb2 import AttributeProto, GlobalMetadata, IOInfo, Node, NodeType
from tracelink.converters.chakra.decode import Frame, buffered, frames, truncated_at
from tracelink.engine import Engine
from tracelink.errors import Finding, Severity
from tracelink.io.framing import FramingError, framed
from tracelink.io.json_array import ArrayDocument, ArrayFormat, as_json, damage_findings
from tracelink.io.sources import Source
from tracelink.io.targets import GZIP_SUFFIX, Target
from tracelink.model.trace import Payload
from tracelink.plugins import Output

# One message as JSON and back: protobuf's own mapping, with names as in the .proto and 64-bit numbers as numbers.


Message = TypeVar("Message", GlobalMetadata, Node)
Form = dict[str, Any]

WIRE = "@wire"
NAN = b'"NaN"'
TYPE_NAMES = {value.number: value.name for value in NodeType.DESCRIPTOR.values}


@dataclass(frozen=True, slots=True)
class Said:
    """A message made from JSON, and what of the JSON could not be kept."""

    body: bytes
    reason: str = ""


@dataclass(frozen=True, slots=True)
class MessageForm(Generic[Message]):
    """The JSON of one kind of message."""

    kind: type[Message]
    to_form: Callable[[Message], Form]

    def text(self, body: bytes) -> bytes:
        """The JSON of a message."""
        try:
            message = self.kind.FromString(body)
        except DecodeError:
            return _with_wire({}, body)
        form = self.to_form(message)
        message.DiscardUnknownFields()
        if message.SerializeToString(deterministic=True) != body:
            return _with_wire(form, body)
        text = msgspec.json.encode(form)
        return text if NAN not in text or self._becomes(text, body) else _with_wire(form, body)

    def said(self, form: Any) -> Said | None:
        """The message that JSON stands for; None where it is none."""
        if not isinstance(form, dict):
            return None
        if WIRE not in form:
            return self._made(form)
        plain = {key: value for key, value in form.items() if key != WIRE}
        wire = _bytes_of(form[WIRE])
        if wire is not None and self._plain(wire) == plain:
            return Said(wire)
        made = self._made(plain)
        return made and Said(made.body, made.reason or f"{WIRE} says something else than the rest")

    def _plain(self, wire: bytes) -> Form:
        form: Form = msgspec.json.decode(self.text(wire))
        form.pop(WIRE, None)
        return form

    def _becomes(self, text: bytes, body: bytes) -> bool:
        """Whether the message comes back; there are many numbers that are none, and JSON has one word for them."""
        made = self._made(msgspec.json.decode(text))
        return made is not None and made.body == body

    def _made(self, form: Mapping[str, Any]) -> Said | None:
        try:
            return Said(self.kind(**form).SerializeToString(deterministic=True))
        except (TypeError, ValueError):
            return self._mapped(form)

    def _mapped(self, form: Mapping[str, Any]) -> Said | None:
        """The same by the library's own mapping, which takes more (numbers and bytes as texts) but is slow."""
        reason = ""
        for lenient in (False, True):
            try:
                message = json_format.ParseDict(dict(form), self.kind(), ignore_unknown_fields=lenient)
            except (json_format.ParseError, OverflowError) as error:
                reason = reason or str(error)
                continue
            return Said(message.SerializeToString(deterministic=True), reason)
        return None


def _node(node: Node) -> Form:
    form: Form = {"id": node.id, "name": node.name, "type": TYPE_NAMES.get(node.type, node.type)}
    if control := node.ctrl_deps:
        form["ctrl_deps"] = list(control)
    if data := node.data_deps:
        form["data_deps"] = list(data)
    if start := node.start_time_micros:
        form["start_time_micros"] = start
    if duration := node.duration_micros:
        form["duration_micros"] = duration
    if node.HasField("inputs"):
        form["inputs"] = _tensors(node.inputs)
    if node.HasField("outputs"):
        form["outputs"] = _tensors(node.outputs)
    if attributes := node.attr:
        form["attr"] = [_attribute(attribute) for attribute in attributes]
    return form


def _metadata(metadata: GlobalMetadata) -> Form:
    form: Form = {"version": metadata.version} if metadata.version else {}
    if metadata.attr:
        form["attr"] = [_attribute(attribute) for attribute in metadata.attr]
    return form


def _tensors(tensors: IOInfo) -> Form:
    said = {"values": tensors.values, "shapes": tensors.shapes, "types": tensors.types}
    return {name: text for name, text in said.items() if text}


def _attribute(attribute: AttributeProto) -> Form:
    form: Form = {"name": attribute.name}
    if text := attribute.doc_string:
        form["doc_string"] = text
    kind = attribute.WhichOneof("value")
    if kind is None:
        return form
    value = getattr(attribute, kind)
    convert = SPECIAL.get(kind.partition("_")[0], _same)
    if kind.endswith("_list"):
        form[kind] = {"values": [convert(one) for one in value.values]} if value.values else {}
    else:
        form[kind] = convert(value)
    return form


def _same(value: Any) -> Any:
    return value


def _real(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


SPECIAL: dict[str, Callable[[Any], Any]] = {"double": _real, "float": _real, "bytes": _base64}
"""Kinds of which JSON has no values of its own."""


def _with_wire(form: Form, body: bytes) -> bytes:
    return msgspec.json.encode({**form, WIRE: _base64(body)})


def _bytes_of(text: Any) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True) if isinstance(text, str) else None
    except (binascii.Error, ValueError):
        return None


NODES = cast("MessageForm[Node]", MessageForm(Node, _node))
METADATA = cast("MessageForm[GlobalMetadata]", MessageForm(GlobalMetadata, _metadata))


# The JSON form read piece by piece: nodes back to messages.


Decoded = TypeVar("Decoded")

METADATA_KEY, NODES_KEY = "metadata", "nodes"
FIRST_KEY = re.compile(rb'"nodes"\s*:\s*\[\s*\{\s*"([\w@]+)"')
USUAL_FIRST_KEYS = ("id", "@wire")
SORTED_FIRST_KEYS = ("attr", "@wire", "ctrl_deps", "data_deps", "duration_micros", "id")
"""Those of nodes whose keys a tool has put in order."""
VALUES = msgspec.json.Decoder(list[Any])
TEXTS = msgspec.json.Decoder(list[msgspec.Raw])


def messages_format(head: bytes) -> ArrayFormat[list[Said | None]]:
    """How pieces of a document that begins with `head` become messages; None for what is no node."""
    return _format(
        head, lambda text: _messages(VALUES.decode(text)), lambda values: _messages(_floats(values))
    )


def texts_format(head: bytes) -> ArrayFormat[list[Payload]]:
    """How pieces of it become the texts of nodes; that of what is no object is empty."""
    return _format(head, _texts, _converted)


def _format(
    head: bytes, decode: Callable[[memoryview], Decoded], convert: Callable[[list[Any]], Decoded]
) -> ArrayFormat[Decoded]:
    first = FIRST_KEY.search(head)
    usual = first is None or first[1].decode() in USUAL_FIRST_KEYS
    return ArrayFormat(NODES_KEY, USUAL_FIRST_KEYS if usual else SORTED_FIRST_KEYS, decode, convert)


def _messages(values: list[Any]) -> list[Said | None]:
    return [NODES.said(value) for value in values]


def _texts(text: memoryview) -> list[Payload]:
    kept = [bytes(raw) for raw in TEXTS.decode(text)]
    return [raw if raw.startswith(b"{") else b"" for raw in kept]


def _converted(values: list[Any]) -> list[Payload]:
    return [as_json(value) if isinstance(value, dict) else b"" for value in values]


def _floats(value: Any) -> Any:
    """Numbers that only a lenient parser could read, as numbers."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, list):
        return [_floats(one) for one in value]
    if isinstance(value, dict):
        return {key: _floats(one) for key, one in value.items()}
    return value


# How files of both forms are called.


JSON_SUFFIXES = (".json", ".json.gz")
ET_SUFFIXES = (".et", ".et.gz")


def renamed(name: str, suffix: str) -> str:
    """The name of a file in the other form."""
    stem = name.removesuffix(GZIP_SUFFIX)
    for known in (*JSON_SUFFIXES, *ET_SUFFIXES):
        stem = stem.removesuffix(known)
    return stem + suffix


# `.et` to JSON: one object of metadata and nodes, a node on each line, written as they are read.


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
            self.findings.append(truncated_at(self.path, str(error), self.nodes, error.offset))


class NodesAsJson:
    """Everything in an `.et` file as one JSON document."""

    name = "chakra-nodes"

    def convert(self, source: Source, target: Target, engine: Engine) -> list[Output]:
        """Writes one JSON document."""
        name = renamed(source.name, JSON_SUFFIXES[0])
        written = _Written(source.path)
        with buffered(source, engine.meter.add) as (stream, opened), target.file(name) as out:
            messages = frames(stream)
            first = next(messages, None)
            out.write(OPENING + METADATA.text(first.body if first else b"") + BETWEEN)
            _write_lines(out, written.texts(messages))
            out.write(CLOSING)
            if opened.damage and not written.findings:
                written.findings.append(truncated_at(source.path, opened.damage, written.nodes, source.bytes))
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


# JSON back to `.et`: the messages that the JSON came from.


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
        cut = None if document.truncated_at is None else (document.truncated_at, document.truncated_reason)
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

    def convert(self, source: Source, target: Target, engine: Engine) -> list[Output]:
        """Writes one `.et` file."""
        name = renamed(source.name, ET_SUFFIXES[0])
        rebuilt = Rebuilt(source, engine)
        with target.file(name) as out:
            for piece in rebuilt.pieces():
                out.write(piece)
        findings = tuple(rebuilt.findings)
        return [Output(target.path(name), self.name, None, target.size(name), rebuilt.nodes, findings)]
