"""Movement: what ranks did between earlier dumps of a job and those that are diagnosed.

Input: recordings, and earlier recordings of the same ranks. Output: `Earlier`, which decides whether a wait is a hang,
and `Movement`, for people. Entries are matched by record id and creation time, so ring buffers may have wrapped.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated

import numpy as np
from msgspec import Struct

from tracelink._model.columns import NO_TIME, Bools, Int64s
from tracelink._model.fields import Doc, FrozenRanks, Row, UnixNanoseconds
from tracelink._model.records import Recording
from tracelink._model.text import lowered, ranks_in_words, time_of_day

# Two dumps of one rank.


def is_continuation(earlier: Recording, later: Recording) -> bool | None:
    """Whether the later dump is a later one of the same process: entries with the same record id are the same entries.

    None if no entry is in both and nothing contradicts it: a ring buffer has wrapped completely, or a dump is empty.
    """
    before, now = earlier.records, later.records
    if _last_id(later) < _last_id(earlier) and not (later.broken_off or later.only_active):
        return False
    if not len(before) or not len(now):
        return None
    old, new = _common_entries(earlier, later)
    if not len(old) and later.only_active:
        return None
    if not len(old):
        return (
            None if later.overwritten > _last_id(earlier) and now.created[0] >= before.created[-1] else False
        )
    created = before.created[old]
    if (created == NO_TIME).all():
        return None
    same = (created == now.created[new]) & (before.sequence[old] == now.sequence[new])
    newer = (before.state[old] <= now.state[new]) & (before.retired[old] <= now.retired[new])
    return bool((same & newer).all())


def is_newer(recording: Recording, other: Recording) -> bool:
    """Whether a dump can be a later one of the same process, and not the other way round."""
    return is_continuation(other, recording) is not False and is_continuation(recording, other) is False


def progress_since(earlier: Recording, later: Recording) -> bool | None:
    """Whether the later dump of the same process has new entries, or entries in a new state; None if unknown."""
    if _last_id(later) > _last_id(earlier) and not earlier.broken_off:
        return True
    if earlier.broken_off or later.broken_off:
        return None
    if later.only_active and len(_common_entries(earlier, later)[0]) < len(earlier.records):
        return True  # a call that is left out now is completed
    return not _unchanged(earlier, later).all()


def latest_time(recording: Recording) -> int | None:
    """The latest time that a dump contains: it was written then or later."""
    records = recording.records
    columns = (records.created, records.started, records.completed)
    latest = max(int(column.max(initial=NO_TIME)) for column in columns)
    return None if latest == NO_TIME else latest


def _unchanged(earlier: Recording, later: Recording) -> Bools:
    """For each entry of the later dump whether the earlier one contains it in the same state."""
    found = np.zeros(len(later.records), np.bool_)
    old, new = _common_entries(earlier, later)
    same_state = earlier.records.state[old] == later.records.state[new]
    found[new] = same_state & (earlier.records.retired[old] == later.records.retired[new])
    return found


def _common_entries(earlier: Recording, later: Recording) -> tuple[Int64s, Int64s]:
    """The rows of entries with the same record id in both dumps; of a damaged dump with repeated ids the first ones."""
    ids = earlier.records.record, later.records.record
    _, in_old, in_new = np.intersect1d(*ids, return_indices=True)
    return in_old, in_new


def _last_id(recording: Recording) -> int:
    return int(recording.records.record.max(initial=-1))


# Two dumps of each rank.


class Movement(Row, frozen=True):
    """What ranks did since earlier dumps of the job (`--before`, or a folder with dumps of several moments)."""

    moved: Annotated[FrozenRanks, Doc("Ranks with new entries, or entries in a new state.")]
    unmoved: Annotated[FrozenRanks, Doc("Ranks that recorded nothing.")]
    unknown: Annotated[FrozenRanks, Doc("Ranks without an earlier dump to compare with.")]
    before_ns: Annotated[
        UnixNanoseconds | None,
        Doc("The latest time in the earlier dumps: they were written then or later."),
    ]


class Earlier(Struct, frozen=True):
    """What earlier dumps show of the entries of a journal."""

    movement: Movement
    unchanged: Bools
    """For each entry: whether the earlier dump of its rank contains it in the same state."""
    known: Bools
    """For each entry: whether there is an earlier dump of its rank."""
    chosen: bool = True
    """Whether the user chose them to see which ranks move; else they may be so old that movement shows nothing."""

    def decides(self, waiting: Collection[int], awaited: Collection[int]) -> bool | None:
        """True if ranks are stuck: their entries `waiting` are the same in both dumps, and no rank in `awaited` moved.

        False if one of them began to wait since dumps that the user chose; None if earlier dumps do not decide.
        """
        rows = np.fromiter(waiting, np.int64, len(waiting))
        rows = rows[self.known[rows]]
        if not len(rows):
            return None
        if not self.unchanged[rows].all():
            return False if self.chosen else None
        return None if set(awaited) & set(self.movement.moved) else True


def earlier_of(recordings: Mapping[int, Recording], before: Mapping[int, Recording]) -> Earlier | None:
    """What earlier dumps show of these recordings, sorted by rank; None if they are of another job."""
    ranks = sorted(recordings)
    of_this_job = {
        rank: before[rank]
        for rank in ranks
        if rank in before and is_continuation(before[rank], recordings[rank]) is not False
    }
    if not of_this_job:
        return None
    unchanged, known = [np.empty(0, np.bool_)], [np.empty(0, np.bool_)]
    moved: list[int] = []
    unmoved: list[int] = []
    for rank in ranks:
        now, earlier = recordings[rank], of_this_job.get(rank)
        known.append(np.full(len(now.records), earlier is not None))
        if earlier is None:
            unchanged.append(np.zeros(len(now.records), np.bool_))
            continue
        unchanged.append(_unchanged(earlier, now))
        if (progressed := progress_since(earlier, now)) is not None:
            (moved if progressed else unmoved).append(rank)
    times = [latest_time(recording) for recording in of_this_job.values()]
    return Earlier(
        Movement(
            tuple(moved),
            tuple(unmoved),
            tuple(sorted({*ranks} - {*moved} - {*unmoved})),
            max((time for time in times if time is not None), default=None),
        ),
        np.concatenate(unchanged),
        np.concatenate(known),
    )


def movement_in_words(movement: Movement) -> str:
    """`Since the earlier dumps (04:41:26.883 UTC or later): ranks 1-7 recorded nothing new; rank 0 moved on.`"""
    written = (
        f" ({time_of_day(movement.before_ns, 3)} UTC or later)" if movement.before_ns is not None else ""
    )
    parts = [
        f"{lowered(ranks_in_words(ranks))} {verb}"
        for ranks, verb in (
            (movement.unmoved, "recorded nothing new"),
            (movement.moved, "moved on"),
            (movement.unknown, "cannot be compared"),
        )
        if ranks
    ]
    return f"Since the earlier dumps{written}: {'; '.join(parts)}."
