"""Kineto traces in a few readable lines.

    trace(cpu_op("aten::add", 10, 5), launch(12, 1, correlation=7), kernel("add", 20, 3, correlation=7), rank=3)

is the text of a file; `as_source` makes it an input for a reader, `read` a rank trace.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from builders.inputs import held
from tracelink._model.events import EventKind, Track
from tracelink._model.trace import RankTrace
from tracelink._run.processes import Processes
from tracelink.converters.kineto.reader import KinetoReader

as_source = held("trace.json")
PROCESS = THREAD = 4200
Element = dict[str, Any]


def slice_(
    category: str,
    name: str,
    ts: Any = 0,
    dur: Any = 1,
    *,
    pid: Any = PROCESS,
    tid: Any = THREAD,
    **args: Any,
) -> Element:
    """A complete slice of any category; keyword arguments with `_` for a blank are its own arguments."""
    element = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur}
    return element | ({"args": _spaced(args)} if args else {})


def cpu_op(name: str = "aten::add", ts: Any = 0, dur: Any = 1, **more: Any) -> Element:
    return slice_("cpu_op", name, ts, dur, **more)


def launch(ts: Any = 0, dur: Any = 1, name: str = "cudaLaunchKernel", **more: Any) -> Element:
    return slice_("cuda_runtime", name, ts, dur, **more)


def kernel(
    name: str = "add_kernel", ts: Any = 0, dur: Any = 1, device: int = 0, stream: int = 7, **more: Any
) -> Element:
    return slice_("kernel", name, ts, dur, pid=device, tid=stream, **more)


def python_frame(name: str = "train.py(1): step", ts: Any = 0, dur: Any = 1, **more: Any) -> Element:
    return slice_("python_function", name, ts, dur, **more)


def arrow(start: Element, end: Element, identity: Any, category: str = "ac2g") -> list[Element]:
    """The two ends of an arrow between the starts of two events."""
    tail = {"ph": "s", "id": identity, "pid": start["pid"], "tid": start["tid"], "ts": start["ts"]}
    head = {"ph": "f", "id": identity, "pid": end["pid"], "tid": end["tid"], "ts": end["ts"], "bp": "e"}
    return [{**half, "cat": category, "name": category} for half in (tail, head)]


def flow_end(
    phase: str,
    identity: Any,
    ts: Any,
    category: str = "drawn",
    *,
    pid: Any = PROCESS,
    tid: Any = THREAD,
    bp: str | None = "e",
) -> Element:
    """The start, a step or the end of an arrow at any time; without `bp` it ends at the next slice."""
    binding = {} if bp is None or phase == "s" else {"bp": bp}
    lane = {"pid": pid, "tid": tid, "ts": ts}
    return {"ph": phase, "id": identity, **lane, "cat": category, "name": category, **binding}


def metadata(what: str, pid: Any = PROCESS, tid: Any = 0, **args: Any) -> Element:
    """What a process or a thread is called, or where it is drawn."""
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "ts": 0, "args": args}


def counter(name: str, ts: Any, values: dict[str, Any], pid: Any = "GPU 0 Counters") -> Element:
    return {"ph": "C", "name": name, "pid": pid, "ts": ts, "args": values}


def instant(name: str, ts: Any, *, pid: Any = PROCESS, tid: Any = THREAD, **args: Any) -> Element:
    return {"ph": "i", "name": name, "pid": pid, "tid": tid, "ts": ts, "s": "t", "args": _spaced(args)}


def memory(ts: Any, allocated: int, reserved: int = -1, *, device_type: int = 1, device: int = 0) -> Element:
    """What an allocator holds after an allocation or a release."""
    args = {"Total Allocated": allocated, "Device Type": device_type, "Device Id": device, "Bytes": 512}
    told = {"Total Reserved": reserved} if reserved >= 0 else {}
    return {**instant("[memory]", ts), "cat": "cpu_instant_event", "args": args | told}


def half(ph: str, name: str, ts: Any, identity: Any = 0, *, category: str = "cpu_op", **more: Any) -> Element:
    """A begin, an end or an instant of a slice in two halves."""
    lane = {"pid": PROCESS, "tid": THREAD} | more
    return {"ph": ph, "cat": category, "name": name, **lane, "ts": ts, "id": identity}


def distributed(rank: int, world_size: int = 8, **more: Any) -> dict[str, Any]:
    """What the header of a distributed run says."""
    return {"backend": "nccl", "rank": rank, "world_size": world_size, **more}


def trace(
    *elements: Any,
    rank: int | None = None,
    after: dict[str, Any] | None = None,
    pretty: bool = False,
    bare: bool = False,
    **header: Any,
) -> bytes:
    """A whole file: `header` stands before the events, `after` behind them; `pretty` as torch lays it out."""
    told = {} if rank is None else {"distributedInfo": distributed(rank)}
    content = {"schemaVersion": 1, **told, **header, "traceEvents": list(elements), **(after or {})}
    indent = 2 if pretty else None
    separators = None if pretty else (",", ":")
    return json.dumps(elements if bare else content, indent=indent, separators=separators).encode()


def with_texts(*elements: str, base: int | None = None) -> bytes:
    header = "" if base is None else f'"baseTimeNanoseconds": {base}, '
    return f'{{{header}"traceEvents": [{", ".join(elements)}]}}'.encode()


def read(data: bytes, jobs: int = 1) -> RankTrace:
    return KinetoReader().read(as_source(data), Processes(jobs))


def write(path: Path, data: bytes) -> Path:
    """Writes a file, compressed if its name says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@dataclass(frozen=True)
class Seen:
    """One event, as a test wants to see it."""

    kind: EventKind
    name: str
    start: int
    duration: int


def seen(result: RankTrace) -> list[Seen]:
    texts, events = result.strings.texts(), result.events
    return [
        Seen(EventKind(kind), texts[name], start, duration)
        for kind, name, start, duration in zip(
            events.kind.tolist(),
            events.name.tolist(),
            events.start.tolist(),
            events.duration.tolist(),
            strict=True,
        )
    ]


def tracks(result: RankTrace) -> list[Track]:
    return [result.tracks[row] for row in result.events.track.tolist()]


def payloads(result: RankTrace, first: int = 0, last: int | None = None) -> Iterator[tuple[int, bytes]]:
    """The number and the text of every payload, of events and of other elements."""
    for start, texts in result.payloads[0].batches(first, last):
        yield from ((start + place, bytes(text)) for place, text in enumerate(texts))


def _spaced(args: dict[str, Any]) -> dict[str, Any]:
    return {key.replace("_", " "): value for key, value in args.items()}


Elements = Sequence[Element]
