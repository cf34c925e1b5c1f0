"""Journals from arrival times.

    together(at=[[0, 1, 9], [20, 21, 29]], done=[10, 30])

is the journal of three ranks and two collectives: when each rank joined them, and when they were completed, in ms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from builders.recorder import CREATED, as_source, collective, dump, pickled, process_group
from tracelink.converters.flight_recorder.reader import FlightRecorderReader
from tracelink.diagnosis.journal import Journal, journal_of
from tracelink.engines.processes import Processes

MS = 1_000_000
Entries = dict[int, list[dict[str, Any]]]


def journal(dumps: Mapping[int, dict[str, Any]], names: str = "comm_lib_trace_rank_{rank}") -> Journal:
    """The journal of these dumps, by rank."""
    reader, engine = FlightRecorderReader(), Processes(1)
    return journal_of(
        {
            rank: reader.read_records(as_source(pickled(content), names.format(rank=rank)), engine)
            for rank, content in dumps.items()
        }
    )


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
    """The journal of `rounds`."""
    return recorded(rounds(at, **how))


def _time(milliseconds: float) -> int:
    return CREATED + round(milliseconds * MS)
