"""Flight-recorder dumps of synthetic jobs: of profiled ones, as torch 2.6 writes them, and of recorded ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from random import Random
from typing import Any

from builders.recorder import collective, dump, frame, process_group, progress, tensors
from generators.job import Group, HostClock, Job
from generators.recorded_plan import Call, Part, Plan, Snapshot, Truth, recorded
from generators.recorded_run import Issued
from generators.recording import Participation, Recording

TORCH = "/srv/job/lib/torch/distributed/distributed_c10d.py"
TRAINING = "/srv/job/train.py"


def configuration(groups: Iterable[Group]) -> dict[str, dict[str, str]]:
    return {
        group.name: described
        for group in groups
        for described in process_group(group.name, group.ranks, group.description).values()
    }


@lru_cache(maxsize=1024)
def shared_frame(name: str, file: str, line: int) -> dict[str, Any]:
    """A frame; entries share it, and so does what is pickled."""
    return frame(name, file, line)


# The dump of a recording, in which everything is finished.


PROFILED_WATCHDOG_NS = 100_000
"""The recorder learns of starts and ends when its watchdog looks."""

CALLERS = {"all_reduce": ("all_reduce", 2770), "_all_gather_base": ("all_gather_into_tensor", 3706)}


def recorder_dump(job: Job, recording: Recording) -> dict[str, Any]:
    clock, groups = job.clock(recording.rank), job.groups(recording.rank)
    last = {part.group.number: part.sequence for part in recording.participations}
    content = dump(
        *(_finished(part, clock) for part in recording.participations),
        version="2.4",
        pg_config=configuration(groups),
        pg_status={str(group.number): progress(*[last.get(group.number, -1)] * 3) for group in groups},
    )
    del content["comm_lib_version"]
    return content


def _finished(part: Participation, clock: HostClock) -> dict[str, Any]:
    """One entry; the members of a batch have no times and stay scheduled."""
    seen = [
        None if part.batched else -(-clock.shown(time) // PROFILED_WATCHDOG_NS) * PROFILED_WATCHDOG_NS
        for time in (part.started, part.finished)
    ]
    lasted = (clock.shown(part.finished) - clock.shown(part.started)) / 1e6
    known: dict[str, Any] = {} if part.batched else {"duration_ms": lasted}
    inputs, outputs = ([shape] for shape in part.shapes) if part.shapes else ([], [])
    verb = part.operation.split()[0]
    name, line = CALLERS.get(verb, (verb, 2370))
    callers = ((name, TORCH, line), ("train_step", TRAINING, 41), ("main", TRAINING, 80))
    return collective(
        f"nccl:{part.operation}",
        group=(part.group.name, part.group.description),
        frames=[shared_frame(*each) for each in callers],
        record_id=part.record,
        pg_id=part.group.number,
        collective_seq_id=part.sequences[0],
        p2p_seq_id=part.sequences[1],
        op_id=part.order,
        created=clock.shown(part.enqueued),
        **known,
        **tensors(inputs, outputs),
        state="scheduled" if part.batched else "completed",
        time_discovered_started_ns=seen[0],
        time_discovered_completed_ns=seen[1],
        retired=not part.batched,
        is_p2p=part.point_to_point,
    )


# The dump of a rank at any time, by the rules of torch's FlightRecorder and its backends.


LIBRARY_VERSION = "2.27.5"
WATCHDOG_NS = 100_000_000
"""How often the watchdog looks; it alone retires entries."""

DISCOVERY_NS = 1_500
"""From its finding that a call has started to its finding that it is over."""

MEMBER_NS = 900
"""Between the entries of one call."""


class Recorder:
    """The recorder of one rank."""

    def __init__(self, plan: Plan, rank: int, issued: Sequence[Issued], taken: int, expire: bool) -> None:
        self.plan, self.rank, self.taken, self.expire = plan, rank, taken, expire
        self.timeout_ns = plan.timeout_ms * 1_000_000
        self.issued = [
            each for each in issued if each.enqueued <= taken and not (plan.blocks and each.call.messages)
        ]
        self.offset = plan.clock_offset(rank)
        self.phase = Random(f"watchdog {plan.seed} {rank}").randrange(WATCHDOG_NS)
        self.groups = plan.groups(rank).values()
        self.local = {group.number: number for number, group in enumerate(self.groups)}
        """The number that this process gives a group."""

    def content(self) -> dict[str, Any]:
        return dump(
            *self.entries(),
            pg_config=configuration(self.groups) if self.plan.configured else process_group("", []),
            comm_lib_version="" if self.plan.blocks else LIBRARY_VERSION,
            pg_status=self.status(),
        )

    def status(self) -> dict[str, dict[str, int]]:
        """How far the groups have come; numbers of messages and of collectives overwrite each other."""
        found: dict[int, list[int]] = {}
        for each in self.issued:
            number = each.numbers[each.call.messages]
            last = found.setdefault(self.local[each.call.group.number], [-1, -1, -1])
            last[0] = number
            if self.plan.shows_starts and each.start is not None and self.watched(each.start) <= self.taken:
                last[1] = max(last[1], number)
            if self.retired(each):
                last[2] = number
        return {str(group): progress(*last) for group, last in sorted(found.items())}

    def entries(self) -> list[dict[str, Any]]:
        """The newest entries, oldest first."""
        room, kept = self.plan.buffer, []
        record = sum(len(recorded(each.call, self.plan.blocks)) for each in self.issued)
        for each in reversed(self.issued):
            if room <= 0:
                break
            parts = recorded(each.call, self.plan.blocks)
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
        call, (collectives, messages, operations) = issued.call, issued.numbers
        # Of a coalesced batch only the closing entry has events, so only its state is known.
        tells = not call.closing or place == len(call.parts) or self.plan.blocks
        return collective(
            self.spelled(call, part),
            group=(call.group.name, call.group.description),
            frames=_frames(call.site, part.operation),
            record_id=record,
            pg_id=self.local[call.group.number],
            thread_name="pt_main_thread",
            thread_id=str(140_321_668_979_584 + self.rank * 4096),
            collective_seq_id=collectives,
            p2p_seq_id=0 if self.plan.blocks else messages,
            op_id=operations + min(place, len(call.parts) - 1),
            created=issued.enqueued + place * MEMBER_NS + self.offset,
            **tensors(part.inputs, part.outputs, part.type),
            **self.progress(issued) if tells else {},
            timeout_ms=self.plan.timeout_ms,
            is_p2p=part.peer is not None,
        )

    def spelled(self, call: Call, part: Part) -> str:
        """An operation as it is recorded; messages name ranks of the group."""
        if part.peer is None:
            return f"{self.plan.backend}:{part.operation}"
        arrow = "->" if part.sends else "<-"
        return f"{self.plan.backend}:{part.operation} {call.group.ranks.index(self.rank)}{arrow}{part.peer}"

    def watched(self, time: int) -> int:
        """When the watchdog next looks."""
        return time + (self.phase - time) % WATCHDOG_NS

    def retired(self, issued: Issued) -> bool:
        """Whether it has left the work list: it is over, or was given up."""
        if issued.end is None or issued.end > self.taken:
            return self.expire and issued.enqueued + self.timeout_ns <= self.taken
        return self.plan.blocks or self.watched(issued.end) <= self.taken

    def progress(self, issued: Issued) -> dict[str, Any]:
        """How far the recorder knows that a call came; what is not retired is looked at for the dump."""
        retired = self.retired(issued)
        if self.plan.blocks:
            return {"retired": retired}
        begun = issued.start is not None and issued.start <= self.taken and self.plan.timing
        over = issued.end is not None and issued.end <= self.taken
        looked = self.taken
        if retired:
            given_up = issued.enqueued + self.timeout_ns
            looked = self.watched(issued.end or 0) if over else min(self.watched(given_up), self.taken)
        shown = looked + self.offset
        lasted = {"duration_ms": ((issued.end or 0) - (issued.start or 0)) / 1e6}
        return {
            **(lasted if over and retired and begun else {}),
            "state": "completed" if over else "started" if begun else "scheduled",
            "time_discovered_started_ns": shown if begun else None,
            "time_discovered_completed_ns": shown + DISCOVERY_NS if over else None,
            "retired": retired,
        }


@lru_cache(maxsize=512)
def _frames(site: str, operation: str) -> list[dict[str, Any]]:
    """Where the program asked for it, innermost first."""
    line = 100 + sum(site.encode()) % 800
    return [
        shared_frame(operation.strip("_"), TORCH, 2000 + len(operation) * 37),
        shared_frame(site, TRAINING, line),
        shared_frame("train_step", TRAINING, 41),
        shared_frame("main", TRAINING, 80),
    ]


# Whether the dumps contain the evidence of a fault: ring buffers wrap, and dumps are missing.


Dumps = Mapping[int, Mapping[str, Any]]

STOPS = frozenset({"never_joined", "never_joined_any", "lagging", "died"})
"""Faults that show in those who wait."""

FEWEST_FOR_A_MAJORITY = 2


def with_evidence(truth: Truth, plan: Plan, snapshot: Snapshot, dumps: Dumps) -> Truth:
    """The truth, with whether these dumps can tell it."""
    culprits = set(truth.culprits)
    if truth.fault == "straggler":
        return replace(truth, evident=culprits <= set(dumps) and len(dumps) > 1)
    if truth.cycle:
        kept = all(_holds(dumps, who, group, number, truth) for group, number, who, _ in truth.cycle)
        return replace(truth, evident=kept)
    holding = {rank for rank in truth.members if _holds(dumps, rank, truth.group, truth.sequence, truth)}
    if truth.point_to_point:
        return replace(truth, evident=culprits <= holding and set(truth.waiting) <= set(dumps))
    others = holding - culprits
    if truth.fault in STOPS:
        # After a timeout gloo calls everything retired: only the culprit's own dump shows what it left out.
        ended = plan.blocks and snapshot.when == "timed_out"
        return replace(truth, evident=bool(others) and (not ended or culprits <= set(dumps)))
    if truth.fault == "timed_out":
        return replace(truth, evident=bool(others) and (snapshot.when == "timed_out" or plan.timing))
    tie = truth.tie or len(others) < FEWEST_FOR_A_MAJORITY
    return replace(truth, evident=culprits <= holding and bool(others), tie=tie)


def _holds(dumps: Dumps, rank: int, group: str, number: int | None, truth: Truth) -> bool:
    key = "p2p_seq_id" if truth.point_to_point else "collective_seq_id"
    return rank in dumps and any(
        entry["process_group"][0] == group and entry[key] == number for entry in dumps[rank]["entries"]
    )
