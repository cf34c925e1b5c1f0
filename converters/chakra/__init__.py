"""Chakra: the `.et` traces that simulators load, their JSON, and drawings of them."""

from __future__ import annotations

from tracelink.converters.chakra.recognition import is_chakra, is_node_list
from tracelink.plugins import ConversionSpec, Files, Format, ReaderSpec, WriterSpec

__all__ = ["CHAKRA", "CHAKRA_NODES", "DOT", "GRAPHML", "SVG", "census", "schema", "table", "validation"]

CHAKRA = Format(
    "chakra",
    reader=ReaderSpec(
        "Chakra traces (protobuf), of tracelink, chakra_converter and others: .et, .et.gz",
        is_chakra,
        "tracelink.converters.chakra.read:ChakraReader",
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
        "the JSON that `tracelink convert` makes of an .et file: .json, .json.gz",
        is_node_list,
        "tracelink.converters.chakra.read:ChakraNodesReader",
    ),
    conversion=ConversionSpec(
        "every node of an .et file as JSON, without loss",
        ("chakra",),
        (".json", ".json.gz"),
        "tracelink.converters.chakra.json_form:NodesAsJson",
    ),
)
DOT = Format(
    "dot",
    conversion=ConversionSpec(
        "nodes and dependencies as a graph that graphviz draws",
        ("chakra",),
        (".dot", ".gv"),
        "tracelink.converters.chakra.drawing.formats:DotDrawing",
        draws=True,
    ),
)
GRAPHML = Format(
    "graphml",
    conversion=ConversionSpec(
        "nodes and dependencies as a graph for networkx, Gephi and yEd",
        ("chakra",),
        (".graphml",),
        "tracelink.converters.chakra.drawing.formats:GraphmlDrawing",
        draws=True,
    ),
)
SVG = Format(
    "svg",
    conversion=ConversionSpec(
        "nodes and dependencies as a picture that opens in a browser",
        ("chakra",),
        (".svg",),
        "tracelink.converters.chakra.drawing.formats:SvgDrawing",
        draws=True,
    ),
)
