"""Chakra: the `.et` traces that simulators load, their JSON, and drawings of them."""

from __future__ import annotations

from tracelink.converters.chakra.recognition import is_chakra, is_node_list
from tracelink.plugins import (
    Conversion,
    ConversionSpec,
    Files,
    Format,
    Reader,
    ReaderSpec,
    Writer,
    WriterSpec,
)

__all__ = ["CHAKRA", "CHAKRA_NODES", "DOT", "GRAPHML", "SVG"]


def _reader() -> Reader:
    from tracelink.converters.chakra.read import ChakraReader

    return ChakraReader()


def _nodes_reader() -> Reader:
    from tracelink.converters.chakra.read import ChakraNodesReader

    return ChakraNodesReader()


def _writer() -> Writer:
    from tracelink.converters.chakra.writer import ChakraWriter

    return ChakraWriter()


def _json_as_nodes() -> Conversion:
    from tracelink.converters.chakra.json_form import JsonAsNodes

    return JsonAsNodes()


def _nodes_as_json() -> Conversion:
    from tracelink.converters.chakra.json_form import NodesAsJson

    return NodesAsJson()


def _dot() -> Conversion:
    from tracelink.converters.chakra.drawing.formats import DotDrawing

    return DotDrawing()


def _graphml() -> Conversion:
    from tracelink.converters.chakra.drawing.formats import GraphmlDrawing

    return GraphmlDrawing()


def _svg() -> Conversion:
    from tracelink.converters.chakra.drawing.formats import SvgDrawing

    return SvgDrawing()


CHAKRA = Format(
    "chakra",
    reader=ReaderSpec(
        "Chakra traces (protobuf), of tracelink, chakra_converter and others: .et, .et.gz",
        lambda head, name: is_chakra(head),
        _reader,
    ),
    writer=WriterSpec(
        "Chakra traces (.et) for simulators, one file for each rank, and their process groups",
        (".et",),
        _writer,
        Files.WITH_PREFIX,
        {"variant": ("full", "astra-sim"), "deps": ("both", "time", "data"), "gaps": ("no", "yes")},
    ),
    conversion=ConversionSpec(
        "an .et file from its JSON, without loss", ("chakra-nodes",), (".et", ".et.gz"), _json_as_nodes
    ),
)
CHAKRA_NODES = Format(
    "chakra-nodes",
    reader=ReaderSpec(
        "the JSON that `tracelink convert` makes of an .et file: .json, .json.gz",
        lambda head, name: is_node_list(head),
        _nodes_reader,
    ),
    conversion=ConversionSpec(
        "every node of an .et file as JSON, without loss", ("chakra",), (".json", ".json.gz"), _nodes_as_json
    ),
)
DOT = Format(
    "dot",
    conversion=ConversionSpec(
        "nodes and dependencies as a graph that graphviz draws",
        ("chakra",),
        (".dot", ".gv"),
        _dot,
        draws=True,
    ),
)
GRAPHML = Format(
    "graphml",
    conversion=ConversionSpec(
        "nodes and dependencies as a graph for networkx, Gephi and yEd",
        ("chakra",),
        (".graphml",),
        _graphml,
        draws=True,
    ),
)
SVG = Format(
    "svg",
    conversion=ConversionSpec(
        "nodes and dependencies as a picture that opens in a browser",
        ("chakra",),
        (".svg",),
        _svg,
        draws=True,
    ),
)
