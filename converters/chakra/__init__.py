"""Chakra: the `.et` traces that simulators load, their JSON, and drawings of them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tracelink._io.framing import DELIMITED, LONGEST_MESSAGE, VARINT, Field, fields_of, length_at
from tracelink.plugins import ConversionSpec, Files, Format, ReaderSpec, WriterSpec

__all__ = ["CHAKRA", "CHAKRA_NODES", "DOT", "GRAPHML", "SVG", "census", "schema", "table", "validation"]

# Recognition, by the first bytes alone.

# An `.et` file has no magic number: its first messages are examined.


VERSION, ATTRIBUTE = 1, 2
"""The fields of the first message."""
NAME, TYPE = 2, 3
NODE_FIELDS = {1: {VARINT}, NAME: {DELIMITED}, TYPE: {VARINT}, 4: {VARINT, DELIMITED}, 5: {VARINT, DELIMITED}}
NODE_FIELDS |= {6: {VARINT}, 7: {VARINT}, 8: {DELIMITED}, 9: {DELIMITED}, 10: {DELIMITED}}
TYPES = range(1, 8)
LAST_KIND = 32
LOOKED_AT = 4
"""Nodes that are looked at."""

JSON_START = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"metadata"\s*:\s*\{')
JSON_NODES = re.compile(rb'"nodes"\s*:\s*\[\s*\{')
JSON_NODE = re.compile(rb'"type"\s*:\s*"[A-Z_]+_NODE"|"@wire"\s*:\s*"')


class _InvalidError(Exception):
    """The bytes are not messages of an `.et` file."""


def is_chakra(head: bytes, name: str = "") -> bool:
    """Metadata of nothing but a version and attributes, then nodes with names and types."""
    try:
        bounds = _message(head, 0)
        return bounds is not None and _are_nodes(head, bounds[1], described=_is_described(head, *bounds))
    except _InvalidError:
        return False


def is_node_list(head: bytes, name: str = "") -> bool:
    """An object of metadata and nodes, the first of which has a type of this format."""
    if not JSON_START.match(head) or not (nodes := JSON_NODES.search(head)):
        return False
    return bool(JSON_NODE.search(head, nodes.end()))


def _are_nodes(head: bytes, offset: int, *, described: bool) -> bool:
    """True if nodes follow; metadata with attributes can also be all there is, or all before a truncated node."""
    seen = False
    for _ in range(LOOKED_AT):
        if offset == len(head) or not (bounds := _message(head, offset)):
            break
        begin, offset = bounds
        if begin < offset:
            _check_node(head, begin, offset)
            seen = True
    return seen or described


def _is_described(head: bytes, begin: int, end: int) -> bool:
    """True if the metadata has attributes; raises if this is not the metadata of a trace."""
    described = False
    for field in _fields(head, begin, end):
        if field.wire != DELIMITED or field.number not in (VERSION, ATTRIBUTE):
            raise _InvalidError
        if field.number == VERSION:
            _string(head, field)
        else:
            _check_attribute(head, field)
            described = True
    return described


def _check_attribute(head: bytes, attribute: Field) -> None:
    named = False
    for field in _fields(head, attribute.begin, attribute.end):
        if not 1 <= field.number <= LAST_KIND:
            raise _InvalidError
        if field.number == 1:
            named = bool(_string(head, field)) and field.wire == DELIMITED
    if not named:
        raise _InvalidError


def _check_node(head: bytes, begin: int, end: int) -> None:
    named = typed = False
    for field in _fields(head, begin, end):
        if field.wire not in NODE_FIELDS.get(field.number, ()):
            raise _InvalidError
        if field.number == NAME:
            named = bool(_string(head, field))
        elif field.number == TYPE:
            typed = field.value in TYPES
        elif field.number == max(NODE_FIELDS):
            _check_attribute(head, field)
    if not (named and typed):
        raise _InvalidError


def _string(head: bytes, field: Field) -> str:
    try:
        return head[field.begin : field.end].decode()
    except UnicodeDecodeError as error:
        raise _InvalidError from error


def _message(head: bytes, offset: int) -> tuple[int, int] | None:
    """The begin and the end of the message at an offset; None if it is truncated."""
    if not (found := length_at(head, offset)):
        return None
    length, begin = found
    if length > LONGEST_MESSAGE:
        raise _InvalidError
    return (begin, begin + length) if begin + length <= len(head) else None


def _fields(head: bytes, begin: int, end: int) -> Iterator[Field]:
    for field in fields_of(head, begin, end):
        if field is None:
            raise _InvalidError
        yield field


# What is declared.

CHAKRA = Format(
    "chakra",
    reader=ReaderSpec(
        "Chakra traces (protobuf), of tracelink, chakra_converter and others: .et, .et.gz",
        is_chakra,
        "tracelink.converters.chakra.read:ChakraReader",
        inspects=True,
        companions=(".groups.json", "comm_group.json", "comm_groups.json"),
    ),
    writer=WriterSpec(
        "Chakra traces (.et) for simulators, one file for each rank, and their process groups",
        (".et",),
        "tracelink.converters.chakra.writing.writer:ChakraWriter",
        Files.WITH_PREFIX,
        {"variant": ("full", "astra-sim"), "deps": ("both", "time", "data"), "gaps": ("no", "yes")},
    ),
    conversion=ConversionSpec(
        "an .et file from its JSON, without loss",
        ("chakra-nodes",),
        (".et", ".et.gz"),
        "tracelink.converters.chakra.json_form:JsonAsNodes",
    ),
)
CHAKRA_NODES = Format(
    "chakra-nodes",
    reader=ReaderSpec(
        "every node of an .et file as JSON, as `merge --to chakra-nodes` writes it: .json, .json.gz",
        is_node_list,
        "tracelink.converters.chakra.read:ChakraNodesReader",
    ),
    conversion=ConversionSpec(
        "every node of an .et file as JSON, without loss",
        ("chakra",),
        (".nodes.json", ".nodes.json.gz"),
        "tracelink.converters.chakra.json_form:NodesAsJson",
    ),
)


def _drawing(name: str, what: str, suffixes: tuple[str, ...], drawing: str) -> Format:
    """A format of drawings of `.et` files."""
    place = f"tracelink.converters.chakra.drawings:{drawing}"
    return Format(name, conversion=ConversionSpec(what, ("chakra",), suffixes, place, draws=True))


DOT = _drawing("dot", "nodes and dependencies as a graph that graphviz draws", (".dot", ".gv"), "DotDrawing")
GRAPHML = _drawing(
    "graphml",
    "nodes and dependencies as a graph for networkx, Gephi and yEd",
    (".graphml",),
    "GraphmlDrawing",
)
SVG = _drawing("svg", "nodes and dependencies as a picture that opens in a browser", (".svg",), "SvgDrawing")
