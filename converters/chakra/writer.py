"""Event graph to one Chakra host and device trace for each rank."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from typing import Any

import msgspec

from tracelink.converters.chakra import schema
from tracelink.converters.chakra.excerpt import excerpt, execution_traces
from tracelink.converters.chakra.findings import findings_of, without_trace
from tracelink.converters.chakra.plan import plan_of
from tracelink.converters.chakra.spool import spooled
from tracelink.converters.chakra.texts import node_texts
from tracelink.engine import Engine
from tracelink.errors import UsageError
from tracelink.findings import Finding
from tracelink.graph import EventGraph
from tracelink.plugins import Output, Target
from tracelink.trace import SourceInfo

TOGETHER = 1024
"""Nodes that are written at a time."""


class ChakraJsonWriter:
    """Execution traces with the times and the device work of the profile, as `chakra_converter` reads them."""

    name = "chakra-json"
    summary = "Chakra host and device trace (ET+ JSON) for chakra_converter, one file for each rank"
    suffixes = (".et.json", ".et.json.gz")
    one_file_per_rank = True

    def write(self, graph: EventGraph, target: Target, engine: Engine) -> list[Output]:
        """Writes a file for each rank that has an execution trace."""
        traces = execution_traces(graph)
        ranks = [rank.rank for rank in graph.ranks if rank.rank in traces]
        if not ranks:
            raise UsageError(
                f"no rank has an execution trace, so there is nothing to write as {self.name}",
                advice="Add the files of torch's ExecutionTraceObserver with --et.",
            )
        if len({target.path(file_name(rank)) for rank in ranks}) < len(ranks):
            raise UsageError(
                f"{target.path()} takes one file, and these are {len(ranks)} ranks",
                advice="Name a directory: -o DIRECTORY/",
            )
        outputs = engine.map(lambda rank: self._write(graph, rank, traces[rank], target), ranks)
        missing = [rank.rank for rank in graph.ranks if rank.rank not in traces]
        findings = tuple(without_trace(rank) for rank in missing)
        return [replace(outputs[0], findings=findings + outputs[0].findings), *outputs[1:]]

    def _write(self, graph: EventGraph, rank: int, sources: list[int], target: Target) -> Output:
        name = file_name(rank)
        path = target.path(name)
        plan = plan_of(excerpt(graph, rank), sources[0])
        with ExitStack() as stack:
            stream = stack.enter_context(target.file(name))
            spool = stack.enter_context(spooled(graph.payloads[sources[0]], os.path.dirname(path) or None))
            stream.write(_opening(graph.sources[sources[0]]))
            for text in _together(node_texts(plan, spool).all()):
                stream.write(text)
            stream.write(b"]}\n")
        others = [graph.sources[source].path for source in sources[1:]]
        findings: tuple[Finding, ...] = tuple(findings_of(plan, others))
        written = len(plan.tree) + len(plan.work.rows)
        return Output(path, self.name, rank, target.size(name), written, findings)


def file_name(rank: int) -> str:
    """The name of a rank's file in a directory."""
    return f"et_{rank}.json"


def _opening(source: SourceInfo) -> bytes:
    """Everything up to the first node; `chakra_converter` wants all of these keys."""
    said = source.header
    start = _count(said, schema.START, 0)
    header = {
        schema.SCHEMA: schema.accepted_version(source.version),
        schema.PID: _count(said, schema.PID, source.pid or 0),
        schema.TIME: str(said.get(schema.TIME, "")),
        schema.START: start,
        schema.FINISH: _count(said, schema.FINISH, start),
    }
    return msgspec.json.encode(header)[:-1] + b',"%s":[' % schema.NODES.encode()


def _count(header: Mapping[str, Any], key: str, default: int) -> int:
    value = header.get(key)
    return value if isinstance(value, int) and value >= 0 else default


def _together(texts: Iterator[bytes]) -> Iterator[bytes]:
    """The texts with commas between them, many at a time."""
    yield from islice(texts, 1)
    while some := list(islice(texts, TOGETHER)):
        yield b"," + b",".join(some)
