"""Instances: which steps are of one communication.

Only an enqueue has a number of its own; starts, ends and waits name a signature, which many calls share. On one stream
calls with one signature run in order, so the first start and the first end are of the first enqueue, and so on. Replays
of a graph have no enqueues: their order is that in which the graph was captured.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._model.columns import (
    MILLISECOND,
    NO_TIME,
    UNKNOWN,
    Bools,
    Int64s,
    Table,
    Times,
    distinct,
    lookup,
    values_at,
)
from tracelink.converters.clog.log import ENDED, ENQUEUED, STARTED, WAITED, Steps


class Instances(Table, frozen=True):
    """One row for each communication, in the order of the log."""

    signature: Int64s
    graph: Int64s
    """The graph that was replayed, or UNKNOWN."""
    replay: Int64s
    work: Int64s
    number: Int64s
    """Of a collective within its communicator, or within the replays of a graph, from 1; UNKNOWN for a message."""
    enqueued: Times
    started: Times
    ended: Times
    """The end of the millisecond in which the end was logged: it happened before."""
    waited: Times


class Found(Struct, frozen=True):
    """All instances, and what is left."""

    instances: Instances
    captured: int
    """Calls that graphs recorded: they run only when the graph is replayed."""
    lost: int
    """Steps without an enqueue, and those of a graph whose capture is not in the log."""


def instances_of(steps: Steps, communicator_of: Mapping[int, int]) -> Found:
    """The communications in a log; `communicator_of` numbers the communicators of signatures of collectives."""
    capturing = (steps.graph != UNKNOWN) & (steps.replay == UNKNOWN)
    direct, lost = _enqueued(_where(steps, steps.graph == UNKNOWN))
    captured, lost_in_captures = _enqueued(_where(steps, capturing))
    replayed, lost_in_replays = _replayed(
        _where(steps, steps.replay != UNKNOWN), captured, _communicators(captured, communicator_of)
    )
    number = 1 + _turns_of_known(_communicators(direct, communicator_of))
    together = Instances.concatenate(
        [replace(direct, number=np.where(number > 0, number, UNKNOWN)), replayed]
    )
    first = np.where(together.enqueued == NO_TIME, together.started, together.enqueued)
    first = np.where(first == NO_TIME, together.ended, first)
    return Found(
        together.take(np.argsort(first, kind="stable")),
        len(captured),
        lost + lost_in_captures + lost_in_replays,
    )


def _where(steps: Steps, chosen: Bools) -> Steps:
    return Steps(*(getattr(steps, name)[chosen] for name in Steps.__struct_fields__))


def _communicators(instances: Instances, communicator_of: Mapping[int, int]) -> Int64s:
    """The communicator of each collective; UNKNOWN for messages, and for calls without a signature."""
    return np.array(
        [communicator_of.get(number, UNKNOWN) for number in instances.signature.tolist()], np.int64
    )


def _turns(*keys: Int64s) -> Int64s:
    """For each row how many rows with equal keys come before it."""
    code, _ = distinct(*keys)
    order = np.argsort(code, kind="stable")
    ordered = code[order]
    turn = np.empty(len(code), np.int64)
    turn[order] = np.arange(len(code)) - np.searchsorted(ordered, ordered)
    return turn


def _turns_of_known(*keys: Int64s) -> Int64s:
    """The same; UNKNOWN where the first key is."""
    return np.where(keys[0] == UNKNOWN, UNKNOWN, _turns(*keys))


def _enqueued(steps: Steps) -> tuple[Instances, int]:
    """An instance for each enqueue, and how many steps have none.

    The k-th enqueue of a signature has the k-th start and the k-th end.
    """
    turn = _turns(steps.graph, steps.signature, steps.step.astype(np.int64))
    call, _ = distinct(steps.graph, steps.signature, turn)
    enqueues = np.flatnonzero(steps.step == ENQUEUED)
    columns, lost = {}, 0
    for name, step in (("started", STARTED), ("ended", ENDED), ("waited", WAITED)):
        rows = np.flatnonzero(steps.step == step)
        lost += int(np.count_nonzero(lookup(call[enqueues], call[rows]) == UNKNOWN))
        if step == WAITED:
            rows = _of_all(steps, rows, enqueues)
        columns[name] = values_at(steps.time, values_at(rows, lookup(call[rows], call[enqueues])), NO_TIME)
    columns["ended"][columns["ended"] != NO_TIME] += MILLISECOND
    found = Instances.of(
        len(enqueues),
        signature=steps.signature[enqueues],
        graph=steps.graph[enqueues],
        work=steps.work[enqueues],
        enqueued=steps.time[enqueues],
        **columns,
    )
    return found, lost


def _of_all(steps: Steps, waits: Int64s, enqueues: Int64s) -> Int64s:
    """The waits of signatures whose calls were all waited for; of others it is unknown which call a wait is of."""
    code, _ = distinct(steps.graph, steps.signature)
    size = int(code.max(initial=-1)) + 1
    as_many = np.bincount(code[waits], minlength=size) == np.bincount(code[enqueues], minlength=size)
    return waits[as_many[code[waits]]]


def _replayed(steps: Steps, captured: Instances, communicator: Int64s) -> tuple[Instances, int]:
    """An instance for each call of each replay, and the number of steps whose call was not captured in this log."""
    turn = _turns(steps.graph, steps.replay, steps.signature, steps.step.astype(np.int64))
    call, first = distinct(steps.graph, steps.replay, steps.signature, turn)
    columns = {}
    for name, step in (("started", STARTED), ("ended", ENDED)):
        columns[name] = np.full(len(first), NO_TIME)
        rows = np.flatnonzero(steps.step == step)
        columns[name][call[rows]] = steps.time[rows] + (MILLISECOND if step == ENDED else 0)
    graph, replay, signature = steps.graph[first], steps.replay[first], steps.signature[first]
    known = _rows_with(
        (captured.graph, captured.signature, _turns(captured.graph, captured.signature)),
        (graph, signature, turn[first]),
    )
    place = values_at(_turns_of_known(communicator, captured.graph), known)
    length = values_at(_lengths(communicator, captured.graph), known, 0)
    number = (replay - 1) * length + place + 1
    found = Instances.of(
        len(first),
        signature=signature,
        graph=graph,
        replay=replay,
        number=np.where((place == UNKNOWN) | (number < 1), UNKNOWN, number),
        **columns,
    )
    return found.take(np.flatnonzero(known != UNKNOWN)), int(np.count_nonzero(known[call] == UNKNOWN))


def _lengths(*keys: Int64s) -> Int64s:
    """For each row the number of rows with equal keys."""
    code, _ = distinct(*keys)
    counts: Int64s = np.bincount(code)[code] if len(code) else code
    return counts


def _rows_with(keys: tuple[Int64s, ...], wanted: tuple[Int64s, ...]) -> Int64s:
    """For each wanted combination the row with these keys, or UNKNOWN."""
    code, _ = distinct(*(np.concatenate(pair) for pair in zip(keys, wanted, strict=True)))
    count = len(keys[0])
    return lookup(code[:count], code[count:])
