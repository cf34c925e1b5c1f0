"""The JSON form of `.et` files: one object of metadata and nodes, without loss in either direction."""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, BinaryIO, Generic, TypeVar, cast

import msgspec
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from msgspec import Struct, field

from tracelink._io.engine import Engine
from tracelink._io.framing import FramingError, framed
from tracelink._io.json_array import ArrayDocument, ArrayFormat, as_json, damage_findings
from tracelink._io.sources import Source
from tracelink._io.targets import Target
from tracelink._io.temporary import GZIP_SUFFIX
from tracelink._model.findings import Finding, Severity, Truncated
from tracelink._model.text import counted
from tracelink._model.trace import Payload
from tracelink.converters.chakra.chakra_pb2 import AttributeProto, GlobalMetadata, IOInfo, Node, NodeType
from tracelink.converters.chakra.decode import Frame, buffered, frames
from tracelink.converters.chakra.schema import CONTROL_DEPS, DATA_DEPS
from tracelink.plugins import Output

Message = TypeVar("Message", GlobalMetadata, Node)
Form = dict[str, Any]

WIRE = "@wire"
"""The key of a message's bytes in base64, if its JSON alone would lose something."""
_NAN = b'"NaN"'
_TYPE_NAMES = {value.number: value.name for value in NodeType.DESCRIPTOR.values}


class EncodedMessage(Struct, frozen=True):
    """A message made from JSON."""

    body: bytes
    reason: str = ""
    """The reason why the JSON could not be kept completely."""


class MessageForm(Struct, Generic[Message], frozen=True):
    """The mapping between one kind of message and JSON: names as in the .proto, 64-bit integers as numbers."""

    kind: type[Message]
    to_form: Callable[[Message], Form]

    def json(self, body: bytes) -> bytes:
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
        return text if _NAN not in text or self._is_lossless(text, body) else _with_wire(form, body)

    def encoded(self, form: Any) -> EncodedMessage | None:
        """The message of a JSON value; None if it is invalid."""
        if not isinstance(form, dict):
            return None
        if WIRE not in form:
            return self._made(form)
        plain = {key: value for key, value in form.items() if key != WIRE}
        wire = _bytes_of(form[WIRE])
        if wire is not None and self._plain(wire) == plain:
            return EncodedMessage(wire)
        made = self._made(plain)
        return made and EncodedMessage(made.body, made.reason or f"{WIRE} contradicts the other keys")

    def _plain(self, wire: bytes) -> Form:
        form: Form = msgspec.json.decode(self.json(wire))
        form.pop(WIRE, None)
        return form

    def _is_lossless(self, text: bytes, body: bytes) -> bool:
        """True if the JSON becomes the same message: floats have many NaN values, and JSON has one name for them."""
        made = self._made(msgspec.json.decode(text))
        return made is not None and made.body == body

    def _made(self, form: Mapping[str, Any]) -> EncodedMessage | None:
        try:
            return EncodedMessage(self.kind(**form).SerializeToString(deterministic=True))
        except (TypeError, ValueError):
            return self._mapped(form)

    def _mapped(self, form: Mapping[str, Any]) -> EncodedMessage | None:
        """The same by protobuf's own mapping, which is slow but accepts more, such as numbers and bytes as strings."""
        reason = ""
        for lenient in (False, True):
            try:
                message = json_format.ParseDict(dict(form), self.kind(), ignore_unknown_fields=lenient)
            # protobuf raises SystemError for the name of an enumeration with a lone surrogate
            except (json_format.ParseError, OverflowError, SystemError) as error:
                reason = reason or str(error)
                continue
            return EncodedMessage(message.SerializeToString(deterministic=True), reason)
        return None


def _node(node: Node) -> Form:
    form: Form = {"id": node.id, "name": node.name, "type": _TYPE_NAMES.get(node.type, node.type)}
    if control := node.ctrl_deps:
        form[CONTROL_DEPS] = list(control)
    if data := node.data_deps:
        form[DATA_DEPS] = list(data)
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
    form = {"values": tensors.values, "shapes": tensors.shapes, "types": tensors.types}
    return {name: text for name, text in form.items() if text}


def _attribute(attribute: AttributeProto) -> Form:
    form: Form = {"name": attribute.name}
    if text := attribute.doc_string:
        form["doc_string"] = text
    kind = attribute.WhichOneof("value")
    if kind is None:
        return form
    value = getattr(attribute, kind)
    convert = _CONVERSIONS.get(kind.partition("_")[0], _same)
    if kind.endswith("_list"):
        form[kind] = {"values": [convert(item) for item in value.values]} if value.values else {}
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


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {"double": _real, "float": _real, "bytes": _base64}
"""For kinds whose values are not JSON values."""


def _with_wire(form: Form, body: bytes) -> bytes:
    return msgspec.json.encode({**form, WIRE: _base64(body)})


def _bytes_of(text: Any) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True) if isinstance(text, str) else None
    except (binascii.Error, ValueError):
        return None


NODES = cast("MessageForm[Node]", MessageForm(Node, _node))
METADATA = cast("MessageForm[GlobalMetadata]", MessageForm(GlobalMetadata, _metadata))


# The array of nodes, read in chunks.

Decoded = TypeVar("Decoded")

METADATA_KEY, NODES_KEY = "metadata", "nodes"
_FIRST_KEY = re.compile(rb'"nodes"\s*:\s*\[\s*\{\s*"([\w@]+)"')
_FIRST_KEYS = ("id", WIRE)
_SORTED_FIRST_KEYS = ("attr", WIRE, CONTROL_DEPS, DATA_DEPS, "duration_micros", "id")
"""Of nodes whose keys were sorted by a tool."""
_VALUES = msgspec.json.Decoder(list[Any])
_TEXTS = msgspec.json.Decoder(list[msgspec.Raw])


def messages_format(head: bytes) -> ArrayFormat[list[EncodedMessage | None]]:
    """Makes messages of the chunks of a document that starts with `head`; None of elements that are not nodes."""
    return _format(
        head, lambda text: _messages(_VALUES.decode(text)), lambda values: _messages(_floats(values))
    )


def texts_format(head: bytes) -> ArrayFormat[list[Payload]]:
    """Makes the JSON of nodes of chunks; empty for elements that are not objects."""
    return _format(head, _texts, _converted)


def _format(
    head: bytes, decode: Callable[[memoryview], Decoded], convert: Callable[[list[Any]], Decoded]
) -> ArrayFormat[Decoded]:
    first = _FIRST_KEY.search(head)
    is_sorted = first is not None and first[1].decode() not in _FIRST_KEYS
    return ArrayFormat(NODES_KEY, _SORTED_FIRST_KEYS if is_sorted else _FIRST_KEYS, decode, convert)


def _messages(values: list[Any]) -> list[EncodedMessage | None]:
    return [NODES.encoded(value) for value in values]


def _texts(text: memoryview) -> list[Payload]:
    kept = [bytes(raw) for raw in _TEXTS.decode(text)]
    return [raw if raw.startswith(b"{") else b"" for raw in kept]


def _converted(values: list[Any]) -> list[Payload]:
    return [as_json(value) if isinstance(value, dict) else b"" for value in values]


def _floats(value: Any) -> Any:
    """Decimals of the lenient parser as floats."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, list):
        return [_floats(item) for item in value]
    if isinstance(value, dict):
        return {key: _floats(item) for key, item in value.items()}
    return value


# `.et` to JSON: nodes are written as they are read, one on each line.

JSON_SUFFIXES = (".json", ".json.gz")
ET_SUFFIXES = (".et", ".et.gz")


def renamed(name: str, suffix: str) -> str:
    """A file name with the suffix of the other form."""
    stem = name.removesuffix(GZIP_SUFFIX)
    for known in (*JSON_SUFFIXES, *ET_SUFFIXES):
        stem = stem.removesuffix(known)
    return stem + suffix


_OPENING, _BETWEEN, _CLOSING = b'{"metadata":', b',"nodes":[\n', b"\n]}\n"
_WIRE_MARK = b'"%s":"' % WIRE.encode()
_BATCH = 1024
"""Nodes written at once."""


class _Progress(Struct):
    """Counts of what was written so far, and the findings on it."""

    path: str
    nodes: int = 0
    raw: int = 0
    """Messages with their bytes in base64."""
    findings: list[Finding] = field(default_factory=list)

    def texts(self, messages: Iterator[Frame]) -> Iterator[bytes]:
        """The JSON of the nodes, up to the end or to a truncated message."""
        try:
            for frame in messages:
                text = NODES.json(frame.body)
                self.raw += _WIRE_MARK in text
                self.nodes += 1
                yield text
        except FramingError as error:
            self.findings.append(Truncated(self.path, str(error), self.nodes, "node", error.offset).finding())


class NodesAsJson:
    """Converts an `.et` file to one JSON document."""

    name = "chakra-nodes"

    def convert(self, source: Source, target: Target, engine: Engine) -> list[Output]:
        """Writes one JSON document."""
        name = renamed(source.name, JSON_SUFFIXES[0])
        written = _Progress(source.path)
        with buffered(source, engine.meter.add) as (stream, opened), target.file(name) as out:
            messages = frames(stream)
            first = next(messages, None)
            out.write(_OPENING + METADATA.json(first.body if first else b"") + _BETWEEN)
            _write_lines(out, written.texts(messages))
            out.write(_CLOSING)
            if opened.damage and not written.findings:
                cut = Truncated(source.path, opened.damage, written.nodes, "node", source.bytes)
                written.findings.append(cut.finding())
        findings = (*written.findings, *_wire_findings(written))
        return [Output(target.path(name), self.name, None, target.size(name), written.nodes, findings)]


def _write_lines(out: BinaryIO, texts: Iterator[bytes]) -> None:
    lines: list[bytes] = []
    before = b""
    for text in texts:
        lines.append(text)
        if len(lines) == _BATCH:
            out.write(before + b",\n".join(lines))
            before = b",\n"
            lines.clear()
    if lines:
        out.write(before + b",\n".join(lines))


def _wire_findings(written: _Progress) -> Iterator[Finding]:
    if written.raw:
        text = (
            f"{written.path}: JSON cannot represent {counted(written.raw, 'message')}, such as fields of a newer"
            f" format; their bytes are under the key {WIRE!r}."
        )
        yield Finding(Severity.INFO, "kept_as_bytes", text, written.raw, written.path)


# JSON to `.et`: the messages that the JSON was made from.


class Rebuilt(Struct):
    """The messages of a JSON document; the attributes are complete after the last of `chunks`."""

    source: Source
    engine: Engine
    not_nodes: int = 0
    changed: Counter[str] = field(default_factory=Counter)
    """The number of messages that could not be kept completely, by reason."""
    offsets: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    """The offset in the document of each chunk of the array, and the number of its elements."""
    elements: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    """The element of each node, and the offset of its message."""
    findings: list[Finding] = field(default_factory=list)

    def chunks(self) -> Iterator[bytes]:
        """The bytes of an `.et` file, in chunks."""
        document = ArrayDocument(self.source, messages_format(self.source.head()))
        written = 0
        for offset, chunk in document.pieces(self.engine.meter.add):
            if not self.offsets:
                metadata = self._metadata(document.header)
                written += len(metadata)
                yield metadata
            body = b"".join(self._messages(chunk, written))
            self.offsets.append(offset)
            self.counts.append(len(chunk))
            written += len(body)
            yield body
        self.findings += self._findings(document)

    def _metadata(self, header: Mapping[str, Any]) -> bytes:
        message = METADATA.encoded(header.get(METADATA_KEY, {}))
        if message is None:
            self.changed["the metadata are not valid"] += 1
            return framed(b"")
        return self._framed(message)

    def _messages(self, chunk: Sequence[EncodedMessage | None], position: int) -> Iterator[bytes]:
        """The messages of a chunk, the first at `position`."""
        first = sum(self.counts)
        for element, message in enumerate(chunk, first):
            if message is None:
                self.not_nodes += 1
                continue
            self.elements.append(element)
            self.positions.append(position)
            body = self._framed(message)
            position += len(body)
            yield body

    def _framed(self, message: EncodedMessage) -> bytes:
        if message.reason:
            self.changed[message.reason] += 1
        return framed(message.body)

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return len(self.elements)

    def _findings(self, document: ArrayDocument[list[EncodedMessage | None]]) -> Iterator[Finding]:
        path = self.source.path
        cut = None if document.truncated_at is None else (document.truncated_at, document.truncated_reason)
        yield from damage_findings(path, document.damage, cut, self.nodes, "node")
        if self.not_nodes:
            text = f"{path}: {counted(self.not_nodes, 'element')} of {NODES_KEY!r} left out: not valid nodes."
            yield Finding(Severity.WARNING, "not_a_node", text, self.not_nodes, path)
        if self.changed:
            reason, count = self.changed.most_common(1)[0]
            text = (
                f"{path}: {counted(self.changed.total(), 'message')} changed, most often because: {reason}."
            )
            yield Finding(Severity.WARNING, "not_kept", text, count, path, reason)
        if unknown := sorted(document.header.keys() - {METADATA_KEY, NODES_KEY}):
            text = f"{path}: an .et file cannot contain {', '.join(unknown)}; left out."
            yield Finding(Severity.WARNING, "not_kept", text, len(unknown), path)


class JsonAsNodes:
    """Converts a JSON document to the `.et` file that it was made from."""

    name = "chakra"

    def convert(self, source: Source, target: Target, engine: Engine) -> list[Output]:
        """Writes one `.et` file."""
        name = renamed(source.name, ET_SUFFIXES[0])
        rebuilt = Rebuilt(source, engine)
        with target.file(name) as out:
            for chunk in rebuilt.chunks():
                out.write(chunk)
        findings = tuple(rebuilt.findings)
        return [Output(target.path(name), self.name, None, target.size(name), rebuilt.nodes, findings)]
