"""Folders of dumps of a job that hangs.

    folder = dumps(tmp_path, hang(ranks=4, culprit=2))

contains four dumps: rank 2 stopped after its second collective, the others wait in the third.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from builders.recorder import CREATED, collective, dump, frame, pickled, process_group

SECOND = 1_000_000_000
Entries = dict[int, list[dict[str, Any]]]

LIBRARY = frame("all_reduce", "/opt/python3.11/site-packages/torch/distributed/distributed_c10d.py", 3245)
START = frame("run", "/usr/lib/python3.11/runpy.py", 88)


def stack(name: str, line: int) -> list[dict[str, Any]]:
    """The stack of a call in a training script, with frames of torch and Python around it."""
    return [LIBRARY, frame(name, "/home/me/train.py", line), frame("main", "/home/me/train.py", 200), START]


def steps(rank: int, count: int, *, group: tuple[str, str] = ("0", "default_pg")) -> list[dict[str, Any]]:
    """All-reduces a second apart, all finished except the last."""
    return [
        collective(
            "nccl:all_reduce",
            number,
            group=group,
            created=CREATED + number * SECOND + rank * 1000,
            completed=CREATED + number * SECOND + SECOND // 2 if number < count else None,
            frames=stack("step", 10 * number),
        )
        for number in range(1, count + 1)
    ]


def hang(ranks: int = 4, culprit: int = 2) -> Entries:
    """All wait in the third all-reduce for a rank that finished the second and did not come."""
    entries = {rank: steps(rank, 3) for rank in range(ranks)}
    del entries[culprit][2:]
    return entries


def healthy(ranks: int = 4) -> Entries:
    """Two all-reduces that all ranks finished."""
    return {rank: steps(rank, 3)[:2] for rank in range(ranks)}


def dumps(
    folder: Path,
    entries: Mapping[int, Sequence[dict[str, Any]]],
    *,
    world: int | None = None,
    **top_level: Any,
) -> Path:
    """A folder with a dump of each rank."""
    members = list(range(world)) if world else sorted(entries)
    facts = {"pg_config": process_group("0", members, "default_pg")} | top_level
    folder.mkdir(parents=True, exist_ok=True)
    for rank, rows in entries.items():
        numbered = [entry | {"record_id": number} for number, entry in enumerate(rows)]
        (folder / f"comm_lib_trace_rank_{rank}").write_bytes(pickled(dump(*numbered, **facts)))
    return folder
