"""Flight-recorder dumps.

    dump(collective("gloo:all_reduce", 1), collective("gloo:broadcast", 2, group=("1", "tp")))

is the content of a dump of the newest version; `pickled` makes it the bytes that torch would write, `as_json`
those of its JSON variant, `as_source` an input for a reader.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import orjson

from builders.inputs import held

as_source = held("comm_lib_trace_rank_0")
CREATED = 1_794_983_359_603_435_457
WORLD = ("0", "default_pg")
JSON_HAS_NO_NONE = ("time_discovered_started_ns", "time_discovered_completed_ns")
EVENTS = ("enqueued", "started", "completed")
FIELDS = (
    *("frames", "record_id", "pg_id", "process_group", "thread_name", "thread_id", "collective_seq_id"),
    *("p2p_seq_id", "op_id", "profiling_name", "time_created_ns", "duration_ms", "input_sizes"),
    *("input_dtypes", "output_sizes", "output_dtypes", "state", "time_discovered_started_ns"),
    *("time_discovered_completed_ns", "retired", "timeout_ms", "is_p2p"),
)
"""Of an entry, in the order of the recorder's writer."""


def collective(
    name: str = "gloo:all_reduce",
    sequence: int = 1,
    *,
    group: tuple[str, str] = WORLD,
    created: int = CREATED,
    completed: int | None = None,
    **fields: Any,
) -> dict[str, Any]:
    known = {
        "record_id": sequence - 1,
        "pg_id": 0,
        "process_group": group,
        "collective_seq_id": sequence,
        "p2p_seq_id": 0,
        "op_id": sequence,
        "profiling_name": name,
        "time_created_ns": created,
        **tensors([[64, 16]], [[64, 16]]),
        "state": "completed" if completed else "scheduled",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": completed,
        "retired": completed is not None,
        "timeout_ms": 600_000,
        "is_p2p": False,
    } | fields
    return {name: known[name] for name in FIELDS if name in known} | known


def tensors(inputs: Iterable[Any], outputs: Iterable[Any], dtype: str = "Float") -> dict[str, Any]:
    """The fields of an entry that describe what goes in and what comes out."""
    sizes = {"input": [*map(list, inputs)], "output": [*map(list, outputs)]}
    return {
        name: value
        for end, shapes in sizes.items()
        for name, value in ((f"{end}_sizes", shapes), (f"{end}_dtypes", [dtype] * len(shapes)))
    }


def frame(name: str, filename: str = "train.py", line: int = 1) -> dict[str, Any]:
    """One stack frame; entries that hold the same object share it in the file."""
    return {"name": name, "filename": filename, "line": line}


def process_group(name: str, ranks: Iterable[int], description: str = "") -> dict[str, dict[str, str]]:
    """One group of `pg_config`, as versions since 2.1 write it."""
    return {name: {"name": name, "desc": description, "ranks": str(list(ranks))}}


def progress(*last: int) -> dict[str, int]:
    """How far a group has come, in `pg_status`: the last collective enqueued, started and completed."""
    return {f"last_{event}_collective": number for event, number in zip(EVENTS, last, strict=True)}


def dump(*entries: Any, **top_level: Any) -> dict[str, Any]:
    """A whole dump; name what should differ."""
    content = {
        "version": "2.10",
        "pg_config": process_group("0", [0, 1]),
        "comm_lib_version": "",
        "pg_status": {},
    }
    return content | top_level | {"entries": list(entries)}


def as_json(content: dict[str, Any]) -> bytes:
    """The JSON variant: sorted keys, absent times 0, no entries when empty."""
    entries = [
        entry | {field: entry[field] or 0 for field in JSON_HAS_NO_NONE if field in entry}
        for entry in content["entries"]
    ]
    status = {
        group: {event: str(last) for event, last in events.items()}
        for group, events in content["pg_status"].items()
    }
    whole = content | {"pg_status": status, "nccl_comm_state": {}}
    del whole["entries"]
    return orjson.dumps(whole | ({"entries": entries} if entries else {}), option=orjson.OPT_SORT_KEYS)


# The pickle of torch, opcode for opcode: protocol 2, strings memoized by content.


CONSTANTS = {None: b"N", True: b"\x88", False: b"\x89"}


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
        self._texts: dict[str, bytes] = {}
        self._dicts: dict[int, bytes] = {}
        """What gets each text and each dict that was put into the memo."""
        self._uses = Counter(map(id, _dicts_in(content)))

    def value(self, value: Any) -> None:
        kind = type(value)
        if kind is str:
            self.parts.append(self._texts.get(value) or self._new_text(value))
        elif kind is int:
            self.parts.append(_integer(value))
        elif kind is dict:
            self._dict(value)
        elif kind is tuple and len(value) == 2:
            self.value(value[0])
            self.value(value[1])
            self.parts.append(b"\x86")
        elif kind is float:
            self.parts.append(b"G" + struct.pack(">d", value))
        elif value is None or kind is bool:
            self.parts.append(CONSTANTS[value])
        else:
            self._list(value)

    def _new_text(self, text: str) -> bytes:
        encoded = text.encode()
        put, self._texts[text] = _memo(len(self._texts) + len(self._dicts))
        return b"X" + struct.pack("<I", len(encoded)) + encoded + put

    def _dict(self, value: Mapping[Any, Any]) -> None:
        if id(value) in self._dicts:
            self.parts.append(self._dicts[id(value)])
            return
        self.parts.append(b"}(")
        for key, part in value.items():
            self.value(key)
            self.value(part)
        self.parts.append(b"u")
        if value is self._content or self._uses[id(value)] > 1:
            put, self._dicts[id(value)] = _memo(len(self._texts) + len(self._dicts))
            self.parts.append(put)

    def _list(self, values: Sequence[Any]) -> None:
        self.parts.append(b"](")
        for value in values:
            self.value(value)
        self.parts.append(b"e")


@cache
def _memo(index: int) -> tuple[bytes, bytes]:
    """What puts a value into the memo, and what gets it again."""
    if index < 256:
        return b"q" + bytes([index]), b"h" + bytes([index])
    return b"r" + struct.pack("<I", index), b"j" + struct.pack("<I", index)


def _dicts_in(content: Any) -> Iterator[Any]:
    left = [content]
    while left:
        value = left.pop()
        if type(value) is dict:
            yield value
            left.extend(value.values())
        elif type(value) is list:
            left.extend(value)


@lru_cache(100_000)
def _integer(value: int) -> bytes:
    if 0 <= value < 1 << 8:
        return b"K" + bytes([value])
    if 0 <= value < 1 << 16:
        return b"M" + struct.pack("<H", value)
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    return b"\x8a\x08" + struct.pack("<q", value)
