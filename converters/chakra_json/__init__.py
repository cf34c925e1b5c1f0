"""Chakra: the host and device trace (ET+ JSON) that `chakra_converter PyTorch` reads."""

from __future__ import annotations

from tracelink.converters.pytorch import is_linked
from tracelink.plugins import Files, Format, ReaderSpec, WriterSpec

__all__ = ["CHAKRA_JSON"]

CHAKRA_JSON = Format(
    "chakra-json",
    reader=ReaderSpec(
        "Chakra host and device trace (ET+ JSON) of chakra_trace_link: .json, .json.gz",
        is_linked,
        "tracelink.converters.chakra_json.reader:ChakraJsonReader",
    ),
    writer=WriterSpec(
        "Chakra host and device trace (ET+ JSON) for chakra_converter, one file for each rank",
        (".et.json", ".et.json.gz"),
        "tracelink.converters.chakra_json.writer:ChakraJsonWriter",
        Files.IN_DIRECTORY,
    ),
)
