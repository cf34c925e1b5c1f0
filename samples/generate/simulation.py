"""Runs all ranks of a synthetic job together: a collective ends some time after its last rank has come."""

from __future__ import annotations

from collections import deque

from tracelink.samples.generate.job import Job
from tracelink.samples.generate.machine import Machine, Meeting
from tracelink.samples.generate.recording import Recording
from tracelink.samples.generate.training import train


def simulate(job: Job) -> list[Recording]:
    """What each rank of the job records."""
    machines = [Machine(job, rank) for rank in range(job.ranks)]
    programs = [train(machine, job) for machine in machines]
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
            end = max(other.ready for other in arrived.values()) + meeting.transfer
            runnable.extend((member, end) for member in waiting.pop(meeting.key))
    if waiting:
        raise RuntimeError(f"ranks wait for each other for ever: {sorted(waiting)}")
    return [machine.recording for machine in machines]
