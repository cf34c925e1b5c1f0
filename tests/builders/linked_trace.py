"""Linked traces (ET+ JSON) in a few readable lines.

    linked_trace(root(), node(1, "aten::mm", ts="12.5", dur="3"), work(2, "gemm", 1, ts="14", dur="0.75"))

is the text of a file with an operator and the kernel that it launched.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from builders.execution_trace import NEWEST, PROCESS, Node, as_json, as_source
from tracelink.converters.chakra_json.reader import ChakraJsonReader
from tracelink.engines.processes import Processes
from tracelink.model.trace import RankTrace

Entry = dict[str, Any]


@dataclass(frozen=True)
class Number:
    """A number that is written as it is spelt."""

    text: str


def root(number: int = 0) -> Entry:
    """The root of the process, which is its own parent."""
    return as_json(Node(number, PROCESS, number, scope=7, thread=0))


def untimed(number: int, name: str = "aten::add", parent: int = 0, **fields: Any) -> Entry:
    """A node that no profile saw."""
    return as_json(Node(number, name, parent, **fields))


def node(
    number: int,
    name: str = "aten::add",
    parent: int = 0,
    *,
    ts: str,
    dur: str = "1",
    inter_thread_dep: int | None = None,
    sync_dep: list[int] | None = None,
    **fields: Any,
) -> Entry:
    """A node with its times in microseconds."""
    times = {"inclusive_dur": Number(dur), "exclusive_dur": Number(dur), "ts": Number(ts)}
    added = {**times, "inter_thread_dep": inter_thread_dep}
    return untimed(number, name, parent, **fields) | added | ({"sync_dep": sync_dep} if sync_dep else {})


def work(
    number: int,
    name: str,
    parent: int,
    *,
    ts: str,
    dur: str = "1",
    stream: int = 7,
    cat: str = "kernel",
    **more: Any,
) -> Entry:
    """A kernel, copy or memset with the values of the node that launched it."""
    fields = {name: more.pop(name) for name in ("handle", "sequence", "thread") if name in more}
    copied = node(number, name, parent, ts=ts, dur=dur, **fields)
    return copied | {"cat": cat, "ph": "X", "stream": stream} | more


def linked_trace(*nodes: Entry, version: str = NEWEST, indent: int | None = None, **header: Any) -> bytes:
    """A whole file, as `chakra_trace_link` orders its keys."""
    content = {"schema": version, "pid": 4200, "time": "2025-03-01 08:06:00", "start_ts": 1, **header}
    text = json.dumps({**content, "nodes": nodes, "finish_ts": 2}, indent=indent, default=_marked)
    return MARKED.sub(lambda match: json.loads(f'"{match[1]}"'), text).encode()


def read(data: bytes) -> RankTrace:
    """What the reader makes of a file."""
    return ChakraJsonReader().read(as_source(data, "linked.json"), Processes())


MARKED = re.compile(r'"number:((?:[^"\\]|\\.)*)"')


def _marked(number: Number) -> str:
    return f"number:{number.text}"
