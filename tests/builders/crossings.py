"""Jobs whose clocks are known: what ranks do together, and what their wrong clocks say of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracelink._match.clock import Crossings
from tracelink._model.clock import Clock
from tracelink._model.columns import NO_TIME

EPOCH = 1_790_000_000_000_000_000
US, MS, S = 1_000, 1_000_000, 1_000_000_000


@dataclass
class JobBuilder:
    """Meetings in true time, and the clocks by which they are recorded: rank to (offset in ns, drift in ppm)."""

    clocks: Mapping[int, tuple[int, float]]
    _rows: dict[str, list[Any]] = field(default_factory=dict)
    _meetings: int = 0

    def meeting(
        self,
        ranks: Sequence[int],
        entered: Any,
        left: Any,
        *,
        waits: Any = True,
        awaited: Any = True,
        together: bool = True,
    ) -> None:
        """Something that these ranks do together, at times since the start of the job."""
        columns = {
            "meeting": self._meetings,
            "rank": ranks,
            "entered": entered,
            "left": left,
            "waits": waits,
            "awaited": awaited,
            "together": together,
        }
        for name, values in columns.items():
            self._rows.setdefault(name, []).append(np.broadcast_to(values, len(ranks)))
        self._meetings += 1

    def message(self, source: int, target: int, sent: int, received: int) -> None:
        self.meeting(
            [source, target],
            [sent, NO_TIME],
            [NO_TIME, received],
            waits=[False, True],
            awaited=[True, False],
            together=False,
        )

    def recorded(self) -> Crossings:
        """What the clocks say."""
        rows = {name: np.concatenate(values) for name, values in self._rows.items()}
        if not rows:
            return crossings()
        offset, drift = (np.array([self.clocks[rank][k] for rank in rows["rank"].tolist()]) for k in (0, 1))
        for name in ("entered", "left"):
            time = rows[name]
            shown = EPOCH + time + offset.astype(np.int64) + np.rint(time * drift * 1e-6).astype(np.int64)
            rows[name] = np.where(time == NO_TIME, NO_TIME, shown)
        return Crossings.of(**rows)


def crossings(**columns: Any) -> Crossings:
    """Crossings from what is given; nothing else is in them."""
    empty = dict.fromkeys(("meeting", "rank", "entered", "left", "waits", "awaited", "together"), ())
    return Crossings.of(**{**empty, **columns})


def earliest_leaving(recorded: Crossings, clocks: Mapping[int, Clock]) -> int:
    """The least time from somebody's entering to the leaving of one who waits for it, in ns; on corrected clocks."""
    entered, left = recorded.entered.copy(), recorded.left.copy()
    for rank, clock in clocks.items():
        rows = recorded.rank == rank
        entered[rows], left[rows] = clock.corrected(entered[rows]), clock.corrected(left[rows])
    least = np.iinfo(np.int64).max
    for meeting in np.unique(recorded.meeting):
        rows = recorded.meeting == meeting
        ins = entered[rows & recorded.awaited & (recorded.entered != NO_TIME)]
        outs = left[rows & recorded.waits & (recorded.left != NO_TIME)]
        if len(ins) and len(outs):
            least = min(least, int(outs.min() - ins.max()))
    return least


def true_offset(job: JobBuilder, clock: Clock) -> float:
    """What this rank's clock shows more than that of rank 0 at the reference time."""
    (zero, zero_drift), (offset, drift) = job.clocks[0], job.clocks[clock.rank]
    since = (clock.reference_ns - EPOCH - zero) / (1 + zero_drift * 1e-6)
    return offset - zero + since * (drift - zero_drift) * 1e-6
