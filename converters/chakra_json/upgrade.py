"""Nodes as their file has them, in the layout since 1.0.2."""

from __future__ import annotations

import re

import msgspec

from tracelink.converters.chakra_json.schema import (
    ATTRIBUTES,
    FLAT_PARENT,
    FLAT_VALUES,
    INPUTS,
    OUTPUTS,
    REQUIRED_ATTRIBUTES,
    Attribute,
    Values,
)

Fields = dict[str, bytes]
"""The keys of a JSON object, and the text of each value."""

FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
ATTRIBUTE_LIST = msgspec.json.Decoder(list[Attribute])
NO_VALUES = msgspec.json.encode(Values())
MARKS = [b'{"name":"%s","type":' % name.encode() for name in REQUIRED_ATTRIBUTES]
IN_USUAL_ORDER = re.compile(rb"\[" + rb'"\w+","value":-?\d+\},'.join(map(re.escape, MARKS)))
"""Every torch so far lists these first, which is faster to see than that all are somewhere."""


def fields_of(text: bytes) -> Fields:
    """A node's keys, with inputs, outputs and attributes as `chakra_converter` needs them; `text` is compact."""
    fields: Fields = {key: bytes(value) for key, value in FIELDS.decode(text).items()} if text else {}
    if ATTRIBUTES not in fields:
        fields = _upgraded(fields)
    elif not _is_complete(fields[ATTRIBUTES]):
        fields[ATTRIBUTES] = _completed(fields[ATTRIBUTES])
    for key in (INPUTS, OUTPUTS):
        if not fields.get(key, b"").startswith(b"{"):
            fields[key] = NO_VALUES
    return fields


def _is_complete(attributes: bytes) -> bool:
    return bool(IN_USUAL_ORDER.match(attributes)) or all(mark in attributes for mark in MARKS)


def _upgraded(flat: Fields) -> Fields:
    """A node of 1.0.1, whose attributes and shapes stand beside its name."""
    fields = dict(flat)
    fields.pop(FLAT_PARENT, None)
    for key, names in FLAT_VALUES.items():
        values = [fields.pop(name, b"[]") for name in names]
        fields[key] = values[0] if values[0].startswith(b"{") else _values(*values)
    given = {name: fields.pop(name) for name in REQUIRED_ATTRIBUTES if name in fields}
    fields[ATTRIBUTES] = _attributes(given)
    return fields


def _values(values: bytes, shapes: bytes, types: bytes) -> bytes:
    return msgspec.json.encode(Values(msgspec.Raw(values), msgspec.Raw(shapes), msgspec.Raw(types)))


def _attributes(given: Fields) -> bytes:
    attributes = [
        Attribute(name, type_, msgspec.Raw(given.get(name, msgspec.json.encode(default))))
        for name, (type_, default) in REQUIRED_ATTRIBUTES.items()
    ]
    return msgspec.json.encode(attributes)


def _completed(text: bytes) -> bytes:
    """The attributes with those that every node must have."""
    try:
        attributes = ATTRIBUTE_LIST.decode(text)
    except msgspec.ValidationError:
        attributes = []
    present = {attribute.name for attribute in attributes}
    added = [
        Attribute(name, type_, msgspec.Raw(msgspec.json.encode(default)))
        for name, (type_, default) in REQUIRED_ATTRIBUTES.items()
        if name not in present
    ]
    return msgspec.json.encode([*attributes, *added])
