"""Event graph to one Chakra host and device trace for each rank."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import msgspec

from tracelink.converters.chakra_json import schema
from tracelink.converters.chakra_json.findings import findings_of, without_trace
from tracelink.converters.chakra_json.plan import plan_of
from tracelink.converters.chakra_json.spool import spooled
from tracelink.converters.chakra_json.texts import node_texts
from tracelink.engine import Engine
from tracelink.errors import UsageError
from tracelink.excerpt import Excerpt, execution_traces
from tracelink.findings import Finding
from tracelink.graph import EventGraph
from tracelink.job import Job, Part
from tracelink.plugins import Files, Output, Target
from tracelink.trace import SourceInfo

TOGETHER = 1024
"""Nodes that are written at a time."""


class ChakraJsonWriter:
    """Execution traces with the times and the device work of the profile, as `chakra_converter` reads them."""

    name = "chakra-json"
    summary = "Chakra host and device trace (ET+ JSON) for chakra_converter, one file for each rank"
    suffixes = (".et.json", ".et.json.gz")
    files = Files.IN_DIRECTORY

    def write(self, job: Job, target: Target, engine: Engine) -> list[Output]:
        """Writes a file for each rank that has an execution trace."""
        parts = job.parts
        if len({target.path(file_name(part.rank)) for part in parts}) < len(parts):
            parts = self._only_part_with_trace(parts, target, engine)
        written = engine.map(partial(self._write_part, target), parts)
        outputs = [output for output in written if output]
        if not outputs:
            raise UsageError(
                f"no rank has an execution trace, so there is nothing to write as {self.name}",
                advice="Add the files of torch's ExecutionTraceObserver with --et.",
            )
        names = {output.rank for output in outputs}
        findings = tuple(without_trace(part.rank) for part in job.parts if part.rank not in names)
        return [replace(outputs[0], findings=findings + outputs[0].findings), *outputs[1:]]

    def _only_part_with_trace(self, parts: Sequence[Part], target: Target, engine: Engine) -> list[Part]:
        """What goes into a target that takes one file: of several ranks only one can have something to write."""
        fit = engine.map(lambda part: bool(execution_traces(part.load())), parts)
        chosen = [part for part, fits in zip(parts, fit, strict=True) if fits]
        if len(chosen) > 1:
            raise UsageError(
                f"{target.path()} takes one file, and these are {len(chosen)} ranks",
                advice="Name a directory: -o DIRECTORY/",
            )
        return chosen

    def _write_part(self, target: Target, part: Part) -> Output | None:
        """Writes a rank, unless it has no execution trace."""
        graph = part.load()
        sources = execution_traces(graph)
        return self._write(graph, part.rank, sources, target) if sources else None

    def _write(self, graph: EventGraph, rank: int, sources: list[int], target: Target) -> Output:
        name = file_name(rank)
        path = target.path(name)
        plan = plan_of(Excerpt(graph), sources[0])
        with ExitStack() as stack:
            stream = stack.enter_context(target.file(name))
            spool = stack.enter_context(spooled(graph.payloads[sources[0]], os.path.dirname(path) or None))
            stream.write(_opening(graph.sources[sources[0]], plan.base))
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


def _opening(source: SourceInfo, base: int) -> bytes:
    """Everything up to the first node; `chakra_converter` wants all of these keys but the last, and ignores that."""
    said = source.header
    start = _count(said, schema.START, 0)
    header = {
        schema.SCHEMA: schema.accepted_version(source.version),
        schema.PID: _count(said, schema.PID, source.pid or 0),
        schema.TIME: str(said.get(schema.TIME, "")),
        schema.START: start,
        schema.FINISH: _count(said, schema.FINISH, start),
        schema.BASE_TIME: base,
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
