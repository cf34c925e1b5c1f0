"""Large inputs, made by replicating a small trace: each copy later in time and with ids of its own.

What the copies share is what a longer run of the same job shares: threads, streams, process groups, tensors.
What a profiler writes once for a run (metadata, its own span, the end of its window) is written once.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO

from tracelink import samples

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
GAP_NS = 1_000_000

# One step serves for all ids of a job: flows carry correlations, External ids may equal them,
# and an execution trace's rf_id is the profile's Record function id.
EVENT_IDS = frozenset(
    (
        "correlation",
        "External id",
        "external id",
        "Record function id",
        "Sequence number",
        "Python id",
        "Python parent id",
        "Ev Idx",
        "wait_on_cuda_event_record_corr_id",
    )
)
FLOWS = frozenset("stf")
NODE_IDS = frozenset(("rf_id", "fw_parent", "seq_id"))
ONCE_PER_RUN = ("[pytorch|profiler|execution_trace|", "## process_group:init ##")

# JSON escapes NUL, so a marked number cannot be mistaken for text of the trace.
MARKED = re.compile(r'"\\u0000([=it])([-+.\deE]+)\\u0000"')


@dataclass(frozen=True, slots=True)
class Step:
    """By how much a copy differs from the one before."""

    ids: int
    nanoseconds: int


@dataclass(frozen=True, slots=True)
class Input:
    """A file made here, and what it was made of."""

    path: Path
    made_of: str
    copies: int

    @property
    def megabytes(self) -> float:
        """Millions of bytes, as they lie on disk."""
        return self.path.stat().st_size / 1e6


class Template:
    """JSON text in which the times and the ids move from copy to copy."""

    def __init__(self, text: str) -> None:
        constants, kinds, numbers = (MARKED.split(text)[start::3] for start in range(3))
        pieces = [constants[0]]
        self._times: list[bool] = []
        self._numbers: list[int] = []
        for kind, number, constant in zip(kinds, numbers, constants[1:], strict=True):
            if kind == "=":
                pieces[-1] += number + constant
            else:
                pieces.append(constant)
                self._times.append(kind == "t")
                self._numbers.append(int(number))
        self._pieces = pieces

    def copy(self, number: int, step: Step) -> bytes:
        """The text of one copy; the first, number 0, is the original."""
        ids, nanoseconds = number * step.ids, number * step.nanoseconds
        text = [""] * (2 * len(self._pieces) - 1)
        text[::2] = self._pieces
        text[1::2] = [
            microseconds(value + nanoseconds) if is_time else str(value + ids)
            for value, is_time in zip(self._numbers, self._times, strict=True)
        ]
        return "".join(text).encode()

    @property
    def greatest_id(self) -> int:
        """What the ids of a copy have to step over."""
        pairs = zip(self._numbers, self._times, strict=True)
        return max((number for number, is_time in pairs if not is_time), default=0)


def microseconds(nanoseconds: int) -> str:
    """As profilers write a time: microseconds with three decimals."""
    return f"{nanoseconds // 1000}.{nanoseconds % 1000:03}"


class Profile:
    """A Kineto trace as a template of its events, with what stands before and after them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._before, events, self._after = opened(parsed(path), "traceEvents")
        once = [event for event in events if is_once_per_run(event)]
        repeated = [event for event in events if not is_once_per_run(event)]
        self._metadata = [event for event in once if event["ph"] == "M"]
        self._closing = [event for event in once if event["ph"] != "M"]
        self._template = Template(joined(event_text(marked_event(event)) for event in repeated))
        self.step = Step(self._template.greatest_id + 1, duration(events) + GAP_NS)

    def write(self, file: BinaryIO, size: int, step: Step) -> int:
        """Writes copies until the file has `size` bytes; returns how many."""
        file.write(self._before + settled(joined(map(event_text, self._metadata))))
        copies = 0
        while file.tell() < size or not copies:
            file.write(b",\n" + self._template.copy(copies, step))
            copies += 1
        passed = (copies - 1) * step.nanoseconds
        closing = joined(event_text(at_the_end(event, passed)) for event in self._closing)
        file.write(b",\n" + settled(closing) + self._after)
        return copies


class Execution:
    """An execution trace as a template of its nodes; process, threads and groups are there once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._before, nodes, self._after = opened(parsed(path), "nodes")
        self._once = [node for node in nodes if node["name"].startswith(ONCE_PER_RUN)]
        fixed = {node["id"] for node in self._once}
        repeated = [node for node in nodes if node["id"] not in fixed]
        self._template = Template(joined(node_text(marked_node(node, fixed)) for node in repeated))
        self.greatest_id = max(self._template.greatest_id, *(node["id"] for node in self._once))

    def write(self, file: BinaryIO, copies: int, step: Step) -> None:
        """Writes the nodes of so many copies."""
        file.write(self._before + settled(joined(map(node_text, self._once))))
        for number in range(copies):
            file.write(b",\n" + self._template.copy(number, step))
        file.write(self._after)


def without_stacks(size: int) -> Input:
    """A GPU rank's profile without Python stacks, of `size` bytes or a little more."""
    return replicated(source("kineto/nccl_data.json.gz", "gpu_pair/kineto_0.json.gz"), size)


def with_stacks(size: int) -> Input:
    """A profile with Python stacks and shapes, of `size` bytes or a little more."""
    return replicated(source("kineto/h100_qwen.json.gz", "cpu_job/kineto_0.json.gz"), size)


def with_communication(size: int) -> Input:
    """A profile in which almost every fifth event tells of a communication, of `size` bytes or a little more."""
    return replicated(samples.path("gpu_pair") / "kineto_0.json.gz", size)


def replicated(original: Path, size: int) -> Input:
    """The profile `original`, copied up to `size` bytes."""
    name = f"kineto-{original.name.removesuffix('.json.gz')}-{size}"

    def write(folder: Path) -> int:
        profile = Profile(original)
        with (folder / "kineto.json").open("wb") as file:
            return profile.write(file, size, profile.step)

    folder, copies = cached(name, (original,), write)
    return Input(folder / "kineto.json", original.name, copies)


def rank_pair(size: int) -> tuple[Input, Input]:
    """Execution trace and profile of one rank; the profile has `size` bytes or a little more."""
    pair = ("pairs/resnet_110_nccl/host.0.json.gz", "pairs/resnet_110_nccl/device.0.json.gz")
    samples_pair = ("gpu_pair/et_0.json.gz", "gpu_pair/kineto_0.json.gz")
    originals = [source(*names) for names in zip(pair, samples_pair, strict=True)]

    def write(folder: Path) -> int:
        execution, profile = Execution(originals[0]), Profile(originals[1])
        ids = max(execution.greatest_id + 1, profile.step.ids)
        step = Step(ids, profile.step.nanoseconds)
        with (folder / "kineto.json").open("wb") as file:
            copies = profile.write(file, size, step)
        with (folder / "et.json").open("wb") as file:
            execution.write(file, copies, step)
        return copies

    folder, copies = cached(f"pair-{originals[1].parent.name}-{size}", originals, write)
    made_of = f"{originals[0].parent.name}/{{{originals[0].name},{originals[1].name}}}"
    return Input(folder / "et.json", made_of, copies), Input(folder / "kineto.json", made_of, copies)


def gzipped(plain: Input) -> Input:
    """The same, as `gzip -6` writes it."""

    def write(folder: Path) -> int:
        with plain.path.open("rb") as text, gzip.open(folder / "kineto.json.gz", "wb", 6) as file:
            shutil.copyfileobj(text, file, 1 << 20)
        return plain.copies

    folder, copies = cached(f"{plain.path.parent.name}-gz", (), write)
    return Input(folder / "kineto.json.gz", plain.made_of, copies)


def source(shared: str, sample: str) -> Path:
    """A public trace where there are such beside the project, else a sample of the package."""
    path = SHARED_DATA / shared
    if path.exists():
        return path
    folder, name = sample.split("/")
    return samples.path(folder) / name


def cached(name: str, originals: Iterable[Path], write: Callable[[Path], int]) -> tuple[Path, int]:
    """The folder that `write` fills, and the number that it returns; it runs again when an original changes."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for original in originals:
        digest.update(original.read_bytes())
    folder = Path(tempfile.gettempdir()) / "tracelink-benchmarks" / f"{name}-{digest.hexdigest()[:12]}"
    count = folder / "copies"
    if not count.exists():
        unfinished = folder.with_name(f"{folder.name}.{os.getpid()}")
        unfinished.mkdir(parents=True)
        try:
            (unfinished / "copies").write_text(str(write(unfinished)))
            shutil.rmtree(folder, ignore_errors=True)
            unfinished.rename(folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return folder, int(count.read_text())


def parsed(path: Path) -> dict[str, Any]:
    """The trace, its fractions kept as they are written."""
    with gzip.open(path, "rb") as file:
        trace: dict[str, Any] = json.load(file, parse_float=Decimal)
    return trace


def is_once_per_run(event: dict[str, Any]) -> bool:
    """Whether a profiler writes this once however long it runs."""
    return event["ph"] == "M" or isinstance(event.get("pid"), str)


def at_the_end(event: dict[str, Any], passed: int) -> dict[str, Any]:
    """An event about the whole run, after `passed` more nanoseconds."""
    if event.get("cat") == "Trace":
        return {**event, "dur": event["dur"] + Decimal(passed) / 1000}
    if event["name"] == "Record Window End":
        return {**event, "ts": event["ts"] + Decimal(passed) / 1000}
    return event


def duration(events: Sequence[dict[str, Any]]) -> int:
    """Nanoseconds from the first start to the last end."""
    timed = [event for event in events if "ts" in event and event["ph"] != "M"]
    start = min(event["ts"] for event in timed)
    end = max(event["ts"] + event.get("dur", 0) for event in timed)
    return int((end - start) * 1000)


def mark(kind: str, number: object) -> str:
    """A number that `Template` finds: an id `i`, a time `t`, or one that stays `=`."""
    return f"\0{kind}{number}\0"


def marked_event(event: dict[str, Any]) -> dict[str, Any]:
    """The event with its ids and times marked."""
    marked = dict(event)
    if "ts" in event:
        marked["ts"] = mark("t", int(event["ts"] * 1000))
    if event["ph"] in FLOWS:
        marked["id"] = mark("i", event["id"])
    if "args" in event:
        arguments = event["args"].items()
        marked["args"] = {key: marked_id(value) if key in EVENT_IDS else value for key, value in arguments}
    return marked


def marked_id(value: Any) -> Any:
    """Nought and less stand for "none"."""
    return mark("i", value) if isinstance(value, int) and value > 0 else value


def marked_node(node: dict[str, Any], fixed: set[int]) -> dict[str, Any]:
    """The node with its ids marked, except where they name a node that is there once."""
    parent = node["ctrl_deps"]
    return {
        **node,
        "id": mark("i", node["id"]),
        "ctrl_deps": parent if parent in fixed else mark("i", parent),
        "attrs": [
            {**attribute, "value": marked_id(attribute["value"])}
            if attribute["name"] in NODE_IDS
            else attribute
            for attribute in node["attrs"]
        ],
    }


def event_text(event: dict[str, Any]) -> str:
    """An event as libkineto prints it: what it is, then when, then its arguments."""
    keys = [key for key in event if key != "args"]
    cut = keys.index("ts") if "ts" in keys else len(keys)
    lines = [members({key: event[key] for key in part}) for part in (keys[:cut], keys[cut:]) if part]
    if "args" in event:
        arguments = members(event["args"])
        lines.append(f'"args": {{\n      {arguments}\n    }}' if arguments else '"args": {}')
    return "  {\n    " + ",\n    ".join(lines) + "\n  }"


def node_text(node: dict[str, Any]) -> str:
    """A node as PyTorch's observer prints it."""
    heads = members({key: value for key, value in node.items() if key not in ("inputs", "outputs", "attrs")})
    values = members({key: node[key] for key in ("inputs", "outputs") if key in node})
    return f'    {{\n      {heads},\n      {values},\n      "attrs": {dumped(node["attrs"])}\n    }}'


def members(values: dict[str, Any]) -> str:
    """The inside of an object on one line."""
    return dumped(values)[1:-1]


def dumped(value: object) -> str:
    """JSON, its fractions as they were written."""
    return json.dumps(value, default=lambda fraction: mark("=", fraction), ensure_ascii=False)


def joined(texts: Iterable[str]) -> str:
    """The elements of an array."""
    return ",\n".join(texts)


def settled(text: str) -> bytes:
    """The text without marks of numbers that stay."""
    return MARKED.sub(lambda found: found[2], text).encode()


def opened(trace: dict[str, Any], array: str) -> tuple[bytes, list[dict[str, Any]], bytes]:
    """What stands before the elements of the trace's long array, these, and what stands after them."""
    keys = list(trace)
    cut = keys.index(array)
    before = "".join(f"  {members({key: trace[key]})},\n" for key in keys[:cut])
    after = "".join(f",\n  {members({key: trace[key]})}" for key in keys[cut + 1 :])
    return settled(f'{{\n{before}  "{array}": [\n'), trace[array], settled(f"\n  ]{after}\n}}\n")
