"""Which send and which receive of a channel are one message, where a ring buffer forgot the oldest of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.analysis.attended import Attended
from tracelink.events import NO_TIME, Bools, Int64s

CLEARLY = 3
"""By so many times as close in time two sides must be if that is to decide."""
MANY = 2
"""So many messages do not happen to be of two sizes."""


@dataclass(frozen=True, slots=True)
class Side:
    """The sends of a channel, or the receives, in their order."""

    number: Int64s
    """As the rank counts its messages in the group."""
    finished: Bools
    completed: Int64s
    """When it was seen, or NO_TIME."""
    size: Int64s
    shared: Bools
    """Whether it is in one batch with others."""
    forgot: bool
    """Whether there were others before them."""

    def __len__(self) -> int:
        return len(self.number)

    @property
    def done(self) -> int | None:
        """How many are over; None where those may all be forgotten."""
        last = np.flatnonzero(self.finished)
        if not len(last):
            return None if self.forgot else 0
        return int(last[-1]) + 1

    @property
    def held(self) -> bool:
        """Whether the next may be over, and only what is in a batch with it is not."""
        return bool(self.shared[(self.done or 0) :][:1].any())


def shift_of(sends: Side, receives: Side) -> int | None:
    """Such that send i and receive i + shift are one message; None where nothing tells.

    Two ranks that do all in a group together also count the same. Others have finished the same messages, unless
    one was dumped earlier, or has finished one that is in a batch with others.
    """
    if not (sends.forgot or receives.forgot) or not (len(sends) and len(receives)):
        return 0
    by_number = _by_number(sends, receives)
    if sends.done is None or receives.done is None:
        return by_number
    by_outcome = receives.done - sends.done
    if by_number is not None:
        return by_outcome if _closer(sends, receives, by_outcome, by_number) else by_number
    possible = [
        by_outcome,
        *([by_outcome - 1] if sends.held else []),
        *([by_outcome + 1] if receives.held else []),
    ]
    return min(possible, key=lambda shift: _disagreeing(sends, receives, shift))


def _disagreeing(sends: Side, receives: Side, shift: int) -> int:
    """How many messages are of two sizes."""
    ones, others = _overlap(sends, receives, shift)
    return int(np.count_nonzero(sends.size[ones] != receives.size[others]))


def _closer(sends: Side, receives: Side, shift: int, other: int) -> bool:
    """Whether both ends are over at about the same time by one shift, and not by the other."""
    apart, otherwise = _apart(sends, receives, shift), _apart(sends, receives, other)
    return apart is not None and otherwise is not None and CLEARLY * apart < otherwise


def _by_number(sends: Side, receives: Side) -> int | None:
    """The shift by which all have the same number as the other end of their message."""
    shift = int(np.searchsorted(receives.number, sends.number[0]))
    if shift == 0:
        shift = -int(np.searchsorted(sends.number, receives.number[0]))
    ones, others = _overlap(sends, receives, shift)
    same = len(sends.number[ones]) > 1 and (sends.number[ones] == receives.number[others]).all()
    return shift if same else None


def _apart(sends: Side, receives: Side, shift: int) -> float | None:
    """How long after one end the other is usually over."""
    ones, others = _overlap(sends, receives, shift)
    sent, received = sends.completed[ones], receives.completed[others]
    known = (sent != NO_TIME) & (received != NO_TIME)
    return float(np.median(np.abs(sent - received)[known])) if known.any() else None


def _overlap(sends: Side, receives: Side, shift: int) -> tuple[slice, slice]:
    begin = max(0, -shift)
    length = max(0, min(len(sends) - begin, len(receives) - begin - shift))
    return slice(begin, begin + length), slice(begin + shift, begin + shift + length)


def shift_by_place(attended: Attended, ranks: tuple[int, int], sends: Int64s, receives: Int64s) -> int | None:
    """By what both ranks have joined: as many messages are sent as received before it, and after it.

    The sends and receives are entries of the journal. None where different collectives tell differently.
    """
    parts = attended.parts
    own, other = (attended.by(rank) for rank in ranks)
    _, ones, others = np.intersect1d(parts.round[own], parts.round[other], return_indices=True)
    before = np.searchsorted(receives, parts.row[other[others]]) - np.searchsorted(
        sends, parts.row[own[ones]]
    )
    return int(before[0]) if len(before) and (before == before[0]).all() else None
