"""The value of an attribute, as protobuf has it: its kind, and a number, a text, bytes, or a list of them."""

from __future__ import annotations

from typing import Any

from tracelink.converters.chakra.chakra_pb2 import AttributeProto
from tracelink.converters.chakra.schema import Kind

FIELD_OF_KIND = {kind: f"{kind.name.lower()}{'' if kind.name.endswith('_LIST') else '_val'}" for kind in Kind}
KIND_OF_FIELD = {name: kind for kind, name in FIELD_OF_KIND.items()}
LISTS = frozenset(name for name in KIND_OF_FIELD if name.endswith("_list"))


def kind_and_value(attribute: AttributeProto) -> tuple[Kind, Any]:
    """What an attribute says and as what; None where it says nothing."""
    field_name = attribute.WhichOneof("value")
    if field_name is None:
        return Kind.NONE, None
    value = getattr(attribute, field_name)
    return KIND_OF_FIELD[field_name], list(value.values) if field_name in LISTS else value


def value_of(attribute: AttributeProto) -> Any:
    """What an attribute says."""
    return kind_and_value(attribute)[1]
