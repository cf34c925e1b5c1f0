"""What the recorder of one rank says at a given time, by the rules of torch's FlightRecorder and its backends."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from random import Random
from typing import Any

from tracelink.samples.generate.recorded_backend import recorded
from tracelink.samples.generate.recorded_plan import Plan
from tracelink.samples.generate.recorded_program import Call, Part
from tracelink.samples.generate.recorded_run import Issued

VERSION, LIBRARY_VERSION = "2.10", "2.27.5"
WATCHDOG_NS = 100_000_000
"""How often the watchdog looks; it alone retires entries."""

DISCOVERY_NS = 1_500
"""From its finding that a call has started to its finding that it is over."""

MEMBER_NS = 900
"""Between the entries of one call."""

EVENTS = ("enqueued", "started", "completed")
THREAD = "pt_main_thread"
TORCH = "/srv/job/lib/torch/distributed/distributed_c10d.py"
TRAINING = "/srv/job/train.py"

Progress = tuple[float | None, str, int | None, int | None, bool]
"""Duration, state, when it was found to have started and to be over, and whether it is retired."""

UNTOUCHED: Progress = (None, "scheduled", None, None, False)


class Recorder:
    """The recorder of one rank."""

    def __init__(self, plan: Plan, rank: int, issued: Sequence[Issued], taken: int, expire: bool) -> None:
        self.plan, self.rank, self.taken, self.expire = plan, rank, taken, expire
        self.blocks, self.shows_starts = plan.blocks, plan.shows_starts
        self.timeout_ns = plan.timeout_ms * 1_000_000
        self.thread = str(140_321_668_979_584 + rank * 4096)
        self.issued = [each for each in issued if each.enqueued <= taken and self.records(each.call)]
        self.offset = plan.clock_offset(rank)
        self.phase = Random(f"watchdog {plan.seed} {rank}").randrange(WATCHDOG_NS)
        groups = plan.groups(rank).values()
        self.groups = {group.number: place for place, group in enumerate(groups)}
        """The number that this process gives a group."""
        self.places = {group.number: group.ranks.index(rank) for group in groups}

    def records(self, call: Call) -> bool:
        """Whether the backend tells the recorder of a call."""
        return self.plan.records_messages or not call.messages

    def content(self) -> dict[str, Any]:
        """The whole dump."""
        return {
            "version": VERSION,
            "pg_config": self.configuration(),
            "comm_lib_version": "" if self.blocks else LIBRARY_VERSION,
            "pg_status": self.status(),
            "entries": self.entries(),
        }

    def configuration(self) -> dict[str, dict[str, str]]:
        """The groups that the recorder knows of."""
        if not self.plan.configured:
            return {"": {"name": "", "desc": "", "ranks": "[]"}}
        return {
            group.name: {"name": group.name, "desc": group.description, "ranks": str(list(group.ranks))}
            for group in self.plan.groups(self.rank).values()
        }

    def status(self) -> dict[str, dict[str, int]]:
        """How far the groups have come; numbers of messages and of collectives overwrite each other."""
        found: dict[int, list[int]] = {}
        for each in self.issued:
            number = each.numbers[each.call.messages]
            last = found.setdefault(self.groups[each.call.group.number], [-1, -1, -1])
            last[0] = number
            if self.shows_starts and each.start is not None and self.watched(each.start) <= self.taken:
                last[1] = max(last[1], number)
            if self.retired(each):
                last[2] = number
        return {
            str(group): {
                f"last_{event}_collective": number for event, number in zip(EVENTS, last, strict=True)
            }
            for group, last in sorted(found.items())
        }

    def entries(self) -> list[dict[str, Any]]:
        """The newest entries, oldest first."""
        room, kept = self.plan.buffer, []
        record = sum(len(recorded(each.call, self.blocks)) for each in self.issued)
        for each in reversed(self.issued):
            if room <= 0:
                break
            parts = recorded(each.call, self.blocks)
            record -= len(parts)
            room -= len(parts)
            kept.append((record, each, parts))
        written = [
            self.entry(record + place, each, place, part)
            for record, each, parts in reversed(kept)
            for place, part in enumerate(parts)
        ]
        return written[-self.plan.buffer :]

    def entry(self, record: int, issued: Issued, place: int, part: Part) -> dict[str, Any]:
        """One entry, in the order of the recorder's writer."""
        call, (collective, message, operation) = issued.call, issued.numbers
        # Of several operations only the entry that ends them has events from which its state is told.
        tells = not call.closing or place == len(call.parts) or self.blocks
        duration, state, started, completed, retired = self.progress(issued) if tells else UNTOUCHED
        return {
            "frames": frames(call.site, part.operation),
            "record_id": record,
            "pg_id": self.groups[call.group.number],
            "process_group": (call.group.name, call.group.description),
            "thread_name": THREAD,
            "thread_id": self.thread,
            "collective_seq_id": collective,
            "p2p_seq_id": message if self.plan.records_messages else 0,
            "op_id": operation + min(place, len(call.parts) - 1),
            "profiling_name": self.spelled(call, part),
            "time_created_ns": issued.enqueued + place * MEMBER_NS + self.offset,
            **({} if duration is None else {"duration_ms": duration}),
            "input_sizes": [*map(list, part.inputs)],
            "input_dtypes": [part.type] * len(part.inputs),
            "output_sizes": [*map(list, part.outputs)],
            "output_dtypes": [part.type] * len(part.outputs),
            "state": state,
            "time_discovered_started_ns": started,
            "time_discovered_completed_ns": completed,
            "retired": retired,
            "timeout_ms": self.plan.timeout_ms,
            "is_p2p": part.peer is not None,
        }

    def spelled(self, call: Call, part: Part) -> str:
        """An operation as it is recorded; messages name ranks of the group."""
        if part.peer is None:
            return f"{self.plan.backend}:{part.operation}"
        arrow = "->" if part.sends else "<-"
        return f"{self.plan.backend}:{part.operation} {self.places[call.group.number]}{arrow}{part.peer}"

    def watched(self, time: int) -> int:
        """When the watchdog next looks."""
        return time + (self.phase - time) % WATCHDOG_NS

    def retired(self, issued: Issued) -> bool:
        """Whether it has left the work list: it is over, or was given up."""
        if issued.end is None or issued.end > self.taken:
            return self.expire and issued.enqueued + self.timeout_ns <= self.taken
        return self.blocks or self.watched(issued.end) <= self.taken

    def progress(self, issued: Issued) -> Progress:
        """How far the recorder knows that a call came; what is not retired is looked at for the dump."""
        retired = self.retired(issued)
        if self.blocks:
            return None, "scheduled", None, None, retired
        begun = issued.start is not None and issued.start <= self.taken and self.plan.timing
        over = issued.end is not None and issued.end <= self.taken
        looked = self.taken
        if retired:
            given_up = issued.enqueued + self.timeout_ns
            looked = self.watched(issued.end or 0) if over else min(self.watched(given_up), self.taken)
        state = "completed" if over else "started" if begun else "scheduled"
        duration = ((issued.end or 0) - (issued.start or 0)) / 1e6 if over and retired and begun else None
        shown = looked + self.offset
        return duration, state, shown if begun else None, shown + DISCOVERY_NS if over else None, retired


@lru_cache(maxsize=512)
def frames(site: str, operation: str) -> list[dict[str, Any]]:
    """Where the program asked for it, innermost first."""
    return [
        frame(operation.strip("_"), TORCH, 2000 + len(operation) * 37),
        frame(site, TRAINING, _line(site)),
        frame("train_step", TRAINING, 41),
        frame("main", TRAINING, 80),
    ]


@lru_cache(maxsize=1024)
def frame(name: str, file: str, line: int) -> dict[str, Any]:
    """A frame; entries share it, and so does what is pickled."""
    return {"name": name, "filename": file, "line": line}


def _line(site: str) -> int:
    return 100 + sum(site.encode()) % 800
