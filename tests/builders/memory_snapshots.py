"""Snapshots of the CUDA memory allocator, built from torch's description of them: none could be recorded.

    snapshot([alloc(0x1000, 512, at=1, frames=stack("model.py:41 forward")), free(0x1000, 512, at=2)])

is the content of one whose first device did this; `as_python` makes it the bytes that `_dump_snapshot` writes,
`as_torch` those of torch's own pickler, `as_source` an input. Times are in microseconds after `START_US`.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

from builders.inputs import held
from builders.recorder import pickled
from tracelink._model.trace import RankTrace
from tracelink._run.processes import Processes
from tracelink.converters.memory_snapshot.reader import SnapshotReader

as_source = held("snapshot_rank3.pickle")
START_US = 1_795_099_130_000_000
Entry = dict[str, Any]
Frames = list[dict[str, Any]]


def frame(where: str) -> dict[str, Any]:
    """A frame from `model.py:41 forward`."""
    place, _, name = where.partition(" ")
    file, _, line = place.rpartition(":")
    return {"filename": file, "line": int(line), "name": name}


def stack(*where: str) -> Frames:
    return [frame(one) for one in where]


def entry(
    action: str, address: int, size: int, at: int, frames: Frames | None = None, **fields: Any
) -> Entry:
    named = {"action": action, "addr": address, "size": size, "stream": 0, "time_us": START_US + at}
    return named | {"pool_id": (0, 0)} | ({} if frames is None else {"frames": frames}) | fields


def alloc(address: int, size: int, at: int, frames: Frames | None = None) -> Entry:
    """Memory that a tensor got."""
    return entry("alloc", address, size, at, frames)


def free(address: int, size: int, at: int) -> list[Entry]:
    """Memory that a tensor gave back."""
    return [entry("free_requested", address, size, at), entry("free_completed", address, size, at)]


def out_of_memory(size: int, at: int, device_free: int = 1 << 20) -> Entry:
    """An allocation that failed."""
    content = entry("oom", device_free, size, at)
    content["device_free"] = content.pop("addr")
    return content


def block(
    size: int, state: str = "active_allocated", address: int = 0, frames: Frames | None = None
) -> Entry:
    sizes = {"size": -(-size // 512) * 512, "requested_size": size}
    return {"address": address, **sizes, "state": state, "frames": frames or []}


def segment(*blocks: Entry, device: int = 0, size: int | None = None, address: int = 0) -> Entry:
    """Memory of the device that the allocator holds."""
    total = sum(one["size"] for one in blocks) if size is None else size
    sizes = dict.fromkeys(("total_size", "allocated_size", "active_size", "requested_size"), total)
    kind = {"stream": 0, "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False}
    return {"device": device, "address": address, **sizes, **kind, "frames": [], "blocks": list(blocks)}


def snapshot(*traces: Sequence[Entry | list[Entry]], segments: Sequence[Entry] = ()) -> dict[str, Any]:
    """A whole snapshot, with a trace for each device."""
    flat = [
        [one for item in trace for one in (item if isinstance(item, list) else [item])] for trace in traces
    ]
    settings = {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "garbage_collection_threshold": 0.0}
    return {
        "segments": list(segments),
        "device_traces": flat,
        "allocator_settings": settings,
        "external_annotations": [],
    }


def shared(content: Any, known: dict[Any, Any] | None = None) -> Any:
    """The same content with one object for equal texts and frames, as torch makes it."""
    known = {} if known is None else known
    match content:
        case str():
            return known.setdefault(content, content)
        case dict() if "filename" in content:
            key = tuple(content.items())
            if key not in known:
                known[key] = {shared(name, known): shared(value, known) for name, value in content.items()}
            return known[key]
        case dict():
            return {shared(name, known): shared(value, known) for name, value in content.items()}
        case list():
            return [shared(value, known) for value in content]
        case _:
            return content


def as_python(content: Any, protocol: int = 4) -> bytes:
    """As `torch.cuda.memory._dump_snapshot` writes it."""
    return pickle.dumps(shared(content), protocol)


def as_torch(content: Any) -> bytes:
    """As torch's own pickler writes it, without Python."""
    return pickled(shared(content))


def read(data: bytes) -> RankTrace:
    return SnapshotReader().read(as_source(data), Processes(1))
