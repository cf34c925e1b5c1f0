"""One message as JSON and back: protobuf's own mapping, with names as in the .proto and 64-bit numbers as numbers.

What the mapping cannot say (fields that the .proto does not know, an encoding that protobuf itself would not
choose, bytes that are no message) stands in base64 under `@wire`, and counts as long as the rest is left as it is.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

import msgspec
from google.protobuf import json_format
from google.protobuf.message import DecodeError

from tracelink.converters.chakra.chakra_pb2 import AttributeProto, GlobalMetadata, IOInfo, Node, NodeType

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
