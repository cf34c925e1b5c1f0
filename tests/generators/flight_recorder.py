"""Flight-recorder dumps, opcode for opcode as torch writes them."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from generators.job import HostClock, Job
from generators.recording import Participation, Recording

# The pickle of torch, opcode for opcode: protocol 2, strings memoized by content.


START_NS = 1_794_982_617_000_000_000
COLLECTIVE_NS = 400_000
STACK_DEPTH = 10
GROUPS = (("0", "default_pg"), ("1", "tp"), ("9", "dp"))
STEP = ("tp", "tp", "tp", "tp", "tp", "tp", "dp", "dp", "tp", "tp", "default_pg")
"""The groups whose turn it is, over and over."""


def pickled(content: Any) -> bytes:
    """`content`, a dump, as torch pickles it."""
    writer = _Writer(content)
    writer.value(content)
    return b"\x80\x02" + b"".join(writer.parts) + b"."


class _Writer:
    """Memoizes strings by content, dicts if more than one object holds them, and the dump itself."""

    def __init__(self, content: Any) -> None:
        self.parts: list[bytes] = []
        self._content = content
        self._texts: dict[str, int] = {}
        self._dicts: dict[int, int] = {}
        self._uses = Counter(map(id, _dicts_in(content)))

    def value(self, value: Any) -> None:
        """Writes one value."""
        match value:
            case None | True | False:
                self.parts.append({None: b"N", True: b"\x88", False: b"\x89"}[value])
            case str():
                self._text(value)
            case int():
                self.parts.append(_integer(value))
            case float():
                self.parts.append(b"G" + struct.pack(">d", value))
            case (first, second) if type(value) is tuple:
                self.value(first)
                self.value(second)
                self.parts.append(b"\x86")
            case dict():
                self._dict(value)
            case _:
                self._list(value)

    def _text(self, text: str) -> None:
        if text in self._texts:
            self._get(self._texts[text])
            return
        encoded = text.encode()
        self.parts.append(b"X" + struct.pack("<I", len(encoded)) + encoded)
        self._texts[text] = self._put()

    def _dict(self, value: Mapping[Any, Any]) -> None:
        if id(value) in self._dicts:
            self._get(self._dicts[id(value)])
            return
        self.parts.append(b"}(")
        for key, part in value.items():
            self.value(key)
            self.value(part)
        self.parts.append(b"u")
        if value is self._content or self._uses[id(value)] > 1:
            self._dicts[id(value)] = self._put()

    def _list(self, values: Sequence[Any]) -> None:
        self.parts.append(b"](")
        for value in values:
            self.value(value)
        self.parts.append(b"e")

    def _put(self) -> int:
        index = len(self._texts) + len(self._dicts)
        self.parts.append(b"q" + bytes([index]) if index < 256 else b"r" + struct.pack("<I", index))
        return index

    def _get(self, index: int) -> None:
        self.parts.append(b"h" + bytes([index]) if index < 256 else b"j" + struct.pack("<I", index))


def _dicts_in(value: Any) -> Iterator[Any]:
    if type(value) is dict:
        yield value
        value = value.values()
    elif type(value) is not list:
        return
    for part in value:
        yield from _dicts_in(part)


def _integer(value: int) -> bytes:
    if 0 <= value < 1 << 8:
        return b"K" + bytes([value])
    if 0 <= value < 1 << 16:
        return b"M" + struct.pack("<H", value)
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    return b"\x8a\x08" + struct.pack("<q", value)


def healthy_nccl_dump(entries: int) -> dict[str, Any]:
    """What one rank of a healthy NCCL job with three groups dumps, with stacks that share their frames."""
    stacks = [stack(number) for number in range(len(STEP))]
    done: Counter[str] = Counter()
    described = {name: {"name": name, "desc": text, "ranks": "[0, 1, 2, 3]"} for name, text in GROUPS}
    written = [_entry(number, stacks, done) for number in range(entries)]
    status = {
        str(number): {
            f"last_{event}_collective": done[text] for event in ("enqueued", "started", "completed")
        }
        for number, (_, text) in enumerate(GROUPS)
    }
    return {
        "version": "2.10",
        "pg_config": described,
        "comm_lib_version": "2.27.5",
        "pg_status": status,
        "entries": written,
    }


def stack(number: int) -> list[dict[str, Any]]:
    """Where a program asked for a communication, innermost first."""
    outer = [
        {"name": f"frame_{depth}", "filename": f"/srv/job/file_{depth}.py", "line": 40 + depth}
        for depth in range(STACK_DEPTH - 1)
    ]
    return [{"name": "all_reduce", "filename": "/srv/job/train.py", "line": 100 + number}, *outer]


def _entry(number: int, stacks: Sequence[Any], done: Counter[str]) -> dict[str, Any]:
    description = STEP[number % len(STEP)]
    group = next(index for index, (_, text) in enumerate(GROUPS) if text == description)
    done[description] += 1
    created = START_NS + number * COLLECTIVE_NS + number * 7919 % 60_000
    return {
        "frames": stacks[number % len(stacks)],
        "record_id": number,
        "pg_id": group,
        "process_group": GROUPS[group],
        "thread_name": "pt_main_thread",
        "thread_id": "140321668979584",
        "collective_seq_id": done[description],
        "p2p_seq_id": 0,
        "op_id": done[description],
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": created,
        "duration_ms": 0.2 + number * 7919 % 1000 / 1e6,
        "input_sizes": [[64, 1024]],
        "input_dtypes": ["BFloat16"],
        "output_sizes": [[64, 1024]],
        "output_dtypes": ["BFloat16"],
        "state": "completed",
        "time_discovered_started_ns": created + 30_000,
        "time_discovered_completed_ns": created + 350_000,
        "retired": True,
        "timeout_ms": 600_000,
        "is_p2p": False,
    }


# The dump of a recording, as torch 2.6 on NCCL would write it.


VERSION = "2.4"
WATCHDOG_NS = 100_000
"""The recorder learns of starts and ends when its watchdog looks."""

TIMEOUT_MS = 600_000
CALLERS = {
    "all_reduce": ("all_reduce", "distributed_c10d.py", 2770),
    "_all_gather_base": ("all_gather_into_tensor", "distributed_c10d.py", 3706),
}


def recorder_dump(job: Job, recording: Recording) -> dict[str, Any]:
    """The whole dump."""
    clock = job.clock(recording.rank)
    groups = job.groups(recording.rank)
    return {
        "version": VERSION,
        "pg_config": {
            group.name: {
                "name": group.name,
                "desc": group.description,
                "ranks": str(list(group.ranks)),
            }
            for group in groups
        },
        "pg_status": {str(group.number): status(recording, group.name) for group in groups},
        "entries": [entry(part, clock) for part in recording.participations],
    }


def status(recording: Recording, group: str) -> dict[str, int]:
    """How far a group has come: everything was finished."""
    numbers = [part.sequence for part in recording.participations if part.group.name == group]
    last = numbers[-1] if numbers else -1
    return {
        "last_enqueued_collective": last,
        "last_started_collective": last,
        "last_completed_collective": last,
    }


def entry(part: Participation, clock: HostClock) -> dict[str, Any]:
    """One entry, in the order of the recorder's writer."""
    shapes = [[list(shape)] for shape in part.shapes] or [[], []]
    types = ["Float"] * len(part.shapes[:1])
    return {
        "frames": frames(part),
        "record_id": part.record,
        "pg_id": part.group.number,
        "process_group": (part.group.name, part.group.description),
        "collective_seq_id": part.sequences[0],
        "p2p_seq_id": part.sequences[1],
        "op_id": part.order,
        "profiling_name": f"nccl:{part.operation}",
        "time_created_ns": clock.shown(part.enqueued),
        **duration(part, clock),
        "input_sizes": shapes[0],
        "input_dtypes": types,
        "output_sizes": shapes[1],
        "output_dtypes": types,
        **progress(part, clock),
        "timeout_ms": TIMEOUT_MS,
        "is_p2p": part.point_to_point,
    }


def duration(part: Participation, clock: HostClock) -> dict[str, float]:
    """Duration; unknown for the members of a batch."""
    if part.batched:
        return {}
    return {"duration_ms": (clock.shown(part.finished) - clock.shown(part.started)) / 1e6}


def progress(part: Participation, clock: HostClock) -> dict[str, Any]:
    """State; members of a batch stay scheduled."""
    seen = [
        None if part.batched else seen_by_watchdog(clock.shown(time))
        for time in (part.started, part.finished)
    ]
    return {
        "state": "scheduled" if part.batched else "completed",
        "time_discovered_started_ns": seen[0],
        "time_discovered_completed_ns": seen[1],
        "retired": not part.batched,
    }


def seen_by_watchdog(time: int) -> int:
    """When the watchdog next looks."""
    return -(-time // WATCHDOG_NS) * WATCHDOG_NS


def frames(part: Participation) -> list[dict[str, Any]]:
    """Where the program asked for it, innermost first."""
    verb = part.operation.split()[0]
    name, file, line = CALLERS.get(verb, (verb, "distributed_c10d.py", 2370))
    return [
        frame(name, f"/srv/job/lib/torch/distributed/{file}", line),
        frame("train_step", "/srv/job/train.py", 41),
        frame("main", "/srv/job/train.py", 80),
    ]


@cache
def frame(name: str, file: str, line: int) -> dict[str, Any]:
    """A frame; entries share it, and so does what is pickled."""
    return {"name": name, "filename": file, "line": line}
