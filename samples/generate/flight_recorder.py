"""Writes flight-recorder dumps opcode for opcode as torch does: protocol 2, strings memoized by content."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

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
