"""Runs all ranks of a synthetic job together: a communication ends after those that it awaits have come."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TypeVar

from tracelink.samples.generate.job import Job
from tracelink.samples.generate.machine import Machine, Meeting, Program
from tracelink.samples.generate.recording import Recording

AnyJob = TypeVar("AnyJob", bound=Job)


def simulate(job: AnyJob, program: Callable[[Machine, AnyJob], Program]) -> list[Recording]:
    """What each rank of the job records when all run the same program."""
    machines = [Machine(job, rank) for rank in range(job.ranks)]
    programs = [program(machine, job) for machine in machines]
    waiting: dict[tuple[int, str, int], dict[int, Meeting]] = {}
    runnable: deque[tuple[int, int | None]] = deque((rank, None) for rank in range(job.ranks))
    while runnable:
        rank, answer = runnable.popleft()
        try:
            meeting = next(programs[rank]) if answer is None else programs[rank].send(answer)
        except StopIteration:
            continue
        arrived = waiting.setdefault(meeting.key, {})
        arrived[rank] = meeting
        if len(arrived) == len(meeting.ranks):
            runnable.extend((member, end_of(member, arrived)) for member in waiting.pop(meeting.key))
    if waiting:
        raise RuntimeError(f"ranks wait for each other for ever: {sorted(waiting)}")
    return [machine.recording for machine in machines]


def end_of(rank: int, arrived: Mapping[int, Meeting]) -> int:
    """When a communication for which all are ready ends on one rank."""
    own = arrived[rank]
    return max(own.ready, *(arrived[other].ready for other in own.awaited)) + own.transfer
