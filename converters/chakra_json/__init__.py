"""Chakra: the host and device trace (ET+ JSON) that `chakra_converter PyTorch` reads."""

from __future__ import annotations

from tracelink.converters.pytorch.node_recognition import is_linked
from tracelink.plugins import Files, Format, Reader, ReaderSpec, Writer, WriterSpec

__all__ = ["CHAKRA_JSON"]


def _reader() -> Reader:
    from tracelink.converters.chakra_json.reader import ChakraJsonReader

    return ChakraJsonReader()


def _writer() -> Writer:
    from tracelink.converters.chakra_json.writer import ChakraJsonWriter

    return ChakraJsonWriter()


CHAKRA_JSON = Format(
    "chakra-json",
    reader=ReaderSpec(
        "Chakra host and device trace (ET+ JSON) of chakra_trace_link: .json, .json.gz",
        lambda head, name: is_linked(head),
        _reader,
    ),
    writer=WriterSpec(
        "Chakra host and device trace (ET+ JSON) for chakra_converter, one file for each rank",
        (".et.json", ".et.json.gz"),
        _writer,
        Files.IN_DIRECTORY,
    ),
)
