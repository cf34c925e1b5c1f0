"""All that is known of the communication of a job, in one report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from tracelink._model.columns import UNKNOWN, Bools
from tracelink._model.communications import Evidence
from tracelink._model.job import LinkedJob
from tracelink._model.text import counted
from tracelink._time.collectives.costs import Measured, bandwidth_rows, collective_rows, measured
from tracelink._time.collectives.exchanges import Splits, exchanges_of, pair_rows
from tracelink._time.collectives.lateness import lateness_of
from tracelink._time.model.communication import CollectiveRow, Communication


class CollectiveReport(Struct, frozen=True):
    """The communication of a job."""

    collectives: Sequence[CollectiveRow]
    """Those that ranks spent most time in first."""
    communication: Communication
    notes: Sequence[str]
    """What was not used, and why."""


def collectives_of(job: LinkedJob, splits: Sequence[Splits] = ()) -> CollectiveReport:
    """Returns what the collectives and messages of a job cost, and who delays whom.

    Args:
        job: The job; its events are not read.
        splits: The parts of all-to-all operations, of each rank; without them matrices are unknown.
    """
    spent = measured(job)
    used, notes = _used(spent)
    lateness = lateness_of(spent, used)
    communication = Communication(
        bandwidth_rows(spent),
        lateness.late,
        lateness.delays,
        lateness.patterns,
        pair_rows(job),
        exchanges_of(job, Splits.concatenate(splits)),
    )
    return CollectiveReport(collective_rows(spent), communication, [*notes, *_notes(spent)])


def _used(spent: Measured) -> tuple[Bools, list[str]]:
    """The collectives whose arrivals count: those within profiles if there are any, else all."""
    parts = spent.job.participations
    known = spent.last != UNKNOWN
    profiled = np.zeros(len(spent.start), np.bool_)
    profiled[parts.collective[parts.evidence >= Evidence.ANNOTATION]] = True
    profiled &= known
    if not profiled.any() or (profiled == known).all():
        return known, []
    count = int(np.count_nonzero(known & ~profiled))
    return profiled, [
        f"Late ranks: {counted(count, 'collective')} outside the profiled time not used: "
        "only the flight recorder recorded them."
    ]


def _notes(spent: Measured) -> Iterator[str]:
    count = int(np.count_nonzero(spent.last == UNKNOWN))
    if count:
        yield f"{counted(count, 'collective')} without arrivals of several ranks: who was late is unknown."
    bound = np.where(spent.timed & (spent.uncertainty > 0), spent.uncertainty, 0)
    if bound.any() and (bound < np.iinfo(np.int64).max).all():
        yield f"Waits are certain to ±{int(bound.max()) / 1e6:.3f} ms, the uncertainty of clocks."
