"""Folders of dumps of a job that hangs.

    folder = dumps(tmp_path, hang(ranks=4, culprit=2))

contains four dumps: rank 2 stopped after its second collective, the others wait in the third.

    together(at=[[0, 1, 9], [20, 21, 29]], done=[10, 30])

is the journal of three ranks and two collectives: when each rank joined them, and when they were completed, in ms.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from builders.recorder import CREATED, as_source, collective, dump, frame, pickled, process_group
from tracelink._hang.examine import Examined, draft_of
from tracelink._hang.facts.journal import Journal, journal_of
from tracelink._hang.facts.model import Diagnosis
from tracelink._hang.report.database import database_at
from tracelink._model.records import Recording
from tracelink._run.processes import Processes
from tracelink.converters.flight_recorder.reader import FlightRecorderReader

MS, SECOND = 1_000_000, 1_000_000_000
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
    """All gave up the third all-reduce, which a rank that finished the second did not join."""
    entries = {rank: steps(rank, 3) for rank in range(ranks)}
    for rows in entries.values():
        rows[2]["retired"] = True
    del entries[culprit][2:]
    return entries


def healthy(ranks: int = 4) -> Entries:
    """Two all-reduces that all ranks finished."""
    return {rank: steps(rank, 3)[:2] for rank in range(ranks)}


def diagnosis_of(journal: Journal, unreadable: Mapping[int, str] | None = None, **known: Any) -> Diagnosis:
    """The problems that these recordings show by themselves."""
    return draft_of(journal, unreadable, **known).settled()


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


# Journals.


def recording(rank: int, content: Any) -> Recording:
    """A dump as it is read: the content, or bytes as they stand."""
    data = content if isinstance(content, bytes) else pickled(content)
    return FlightRecorderReader().read_records(as_source(data, f"comm_lib_trace_rank_{rank}"), Processes(1))


def journal(dumps: Mapping[int, Any]) -> Journal:
    return journal_of({rank: recording(rank, content) for rank, content in dumps.items()})


def recorded(entries: Mapping[int, Iterable[dict[str, Any]]], **top_level: Any) -> Journal:
    """The journal of ranks that are all in one group, unless `pg_config` is given."""
    groups = {"pg_config": process_group("0", sorted(entries), "default_pg")}
    return journal({rank: dump(*rows, **{**groups, **top_level}) for rank, rows in entries.items()})


def rounds(
    at: Sequence[Sequence[float]],
    *,
    done: Sequence[float] | Sequence[Sequence[float]] | None = None,
    ranks: Sequence[int] | None = None,
    ahead: Mapping[int, float] | None = None,
    name: str = "gloo:all_reduce",
    **fields: Any,
) -> Entries:
    """The entries of ranks that call the same collectives; `ahead` is by how much their clocks are ahead, in ms."""
    members = list(ranks) if ranks is not None else list(range(len(at[0])))
    entries: Entries = {rank: [] for rank in members}
    for number, times in enumerate(at):
        for place, (rank, time) in enumerate(zip(members, times, strict=True)):
            offset = (ahead or {}).get(rank, 0.0)
            over = done[number] if done is not None else None
            left = over[place] if isinstance(over, Sequence) else over
            entries[rank].append(
                collective(
                    name,
                    number + 1,
                    created=_time(time + offset),
                    completed=None if left is None else _time(left + offset),
                    **fields,
                )
            )
    return entries


def together(at: Sequence[Sequence[float]], **how: Any) -> Journal:
    return recorded(rounds(at, **how))


def _time(milliseconds: float) -> int:
    return CREATED + round(milliseconds * MS)


# Diagnoses, and their SQLite database.


def examined(dumps: Mapping[int, Any]) -> Examined:
    """The diagnosis of dumps by rank: contents, or bytes as they stand."""
    made = journal(dumps)
    return Examined(diagnosis_of(made), made)


def sqlite_of(what: Examined, folder: Path) -> sqlite3.Connection:
    path = folder / "flight.sqlite"
    database_at(str(path)).write(what)
    return sqlite3.connect(path)


def rows(connection: sqlite3.Connection, query: str) -> list[tuple[Any, ...]]:
    return connection.execute(query).fetchall()
