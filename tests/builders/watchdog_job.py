"""Logs of a job whose dumps are known: what NCCL's watchdogs would have printed at the time of the dumps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from builders.recorder import as_source, pickled
from builders.watchdog import Group, status, timed_out
from tracelink.converters.flight_recorder.reader import FlightRecorderReader
from tracelink.diagnosis.journal import Journal, journal_of
from tracelink.engines.processes import Processes
from tracelink.model.operations import operation_of
from tracelink.model.records import State

NAMES = {
    "all_reduce": "ALLREDUCE",
    "all_gather": "_ALLGATHER_BASE",
    "reduce_scatter": "_REDUCE_SCATTER_BASE",
    "all_to_all": "ALLTOALL_BASE",
}


def journal_of_dumps(dumps: Mapping[int, Any]) -> Journal:
    reader, engine = FlightRecorderReader(), Processes(1)
    return journal_of(
        {
            rank: reader.read_records(as_source(pickled(content), f"comm_lib_trace_rank_{rank}"), engine)
            for rank, content in dumps.items()
        }
    )


def logs_of(journal: Journal, *, all_groups: bool) -> dict[int, list[str]]:
    """By rank its lines. Without `all_groups` the first timeout ends the process before other groups time out."""
    return {rank: _lines(journal, rank, all_groups) for rank in journal.ranks.tolist()}


def _lines(journal: Journal, rank: int, all_groups: bool) -> list[str]:
    records, requests = journal.records, journal.requests
    rows = np.flatnonzero(journal.rank == rank)
    given_up: list[tuple[int, list[str]]] = []
    signalled: list[str] = []
    for number in np.unique(records.group[rows]).tolist():
        own = rows[records.group[rows] == number]
        sequence, done = records.sequence[own], records.state[own] == State.COMPLETED
        last, completed = int(sequence[-1]), int(sequence[done][-1]) if done.any() else -1
        group = journal.groups[number]
        member = group.ranks.index(rank) if rank in group.ranks else 0
        named = Group(group.name, group.description, number)
        if not done.all():
            row = own[~done][0]
            request = int(records.request[row])
            operation = operation_of(journal.strings[int(requests.operation[request])])
            lines = [
                timed_out(
                    rank,
                    int(records.sequence[row]),
                    operation=NAMES.get(operation, operation.upper()),
                    elements=max(int(requests.elements_in[request]), 0),
                    out=max(int(requests.elements_out[request]), 0),
                    second=rank / 100,
                    member=member,
                )
            ]
            if completed <= last:
                at = int(records.sequence[row])
                lines.append(
                    status(rank, last, completed, at=at, group=named, second=rank / 100, member=member)
                )
            given_up.append((int(records.created[row]), lines))
        if group.description == "default_pg" and completed <= last:
            signalled.append(status(rank, last, completed, group=named, second=rank / 100 + 0.5))
    given_up.sort()
    chosen = given_up if all_groups else given_up[:1]
    return [*(line for _, lines in chosen for line in lines), *signalled]
