"""Sources of both forms, `.et` and its JSON, to rank traces."""

from __future__ import annotations

import tempfile
from typing import BinaryIO, cast

import numpy as np

from tracelink.converters.chakra.decoding import decode
from tracelink.converters.chakra.json_form.array import texts_format
from tracelink.converters.chakra.json_form.as_messages import Rebuilt
from tracelink.converters.chakra.reading.payloads import NodePayloads
from tracelink.converters.chakra.reading.trace import Reading, trace_of
from tracelink.converters.chakra.streaming import buffered
from tracelink.engine import Engine
from tracelink.rereading import RereadPayloads
from tracelink.sources import Source
from tracelink.trace import RankTrace


def read_messages(source: Source, format_name: str, engine: Engine) -> RankTrace:
    """The trace of an `.et` file."""
    with buffered(source, engine.meter.add) as (stream, opened):
        decoded = decode(stream)
        damage = opened.damage
    places = np.arange(len(decoded.nodes))
    payloads = NodePayloads(source, decoded.offsets)
    return trace_of(Reading(source, format_name, decoded, payloads, places, damage))


def read_node_list(source: Source, format_name: str, engine: Engine) -> RankTrace:
    """The trace of its JSON, by way of the messages that the JSON stands for."""
    rebuilt = Rebuilt(source, engine)
    with tempfile.TemporaryFile() as spool:
        for piece in rebuilt.pieces():
            spool.write(piece)
        spool.seek(0)
        decoded = decode(cast(BinaryIO, spool))
    read = np.searchsorted(rebuilt.positions, decoded.offsets)
    places = np.array(rebuilt.elements, np.int64)[read]
    payloads = RereadPayloads(source, texts_format(source.head()), rebuilt.offsets, rebuilt.counts)
    reading = Reading(source, format_name, decoded, payloads, places, findings=rebuilt.findings)
    return trace_of(reading)
