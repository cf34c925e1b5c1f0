"""How many bytes a collective has, as those who read Chakra traces count them.

ASTRA-sim takes for `comm_size` what one rank puts in: of an all-gather its own part, of a reduce-scatter and an
all-to-all everything that it gives, of an all-reduce and a broadcast the whole. It takes one size for all ranks,
so of collectives whose ranks may differ (all-to-all, and gathering and scattering of uneven parts) it is the most.
"""

from __future__ import annotations

import numpy as np

from tracelink.collectives import Participations
from tracelink.communications import UNKNOWN
from tracelink.events import Bools, Int64s
from tracelink.job import Job
from tracelink.operations import Operation

OUTPUT = (Operation.SCATTER,)
"""Only the root puts something in; what counts is what each rank gets."""
EITHER = (Operation.BROADCAST, Operation.ALL_REDUCE, Operation.REDUCE)
"""What is put in is as large as what comes out; some sources record only one of the two."""
UNEVEN = (
    Operation.ALL_TO_ALL,
    Operation.ALL_GATHER,
    Operation.REDUCE_SCATTER,
    Operation.GATHER,
    Operation.SCATTER,
)


def consumer_sizes(job: Job) -> Int64s:
    """The size of each participation, or UNKNOWN."""
    parts = job.participations
    if not len(parts):
        return np.empty(0, np.int64)
    members = np.array([max(group.size, len(group.ranks)) for group in job.groups] + [0], np.int64)
    count = members[job.collectives.group[parts.collective]]
    size = _given(job, parts, count)
    most = np.full(len(job.collectives), UNKNOWN, np.int64)
    np.maximum.at(most, parts.collective, size)
    shared = _is_one_of(job, UNEVEN) | (size == UNKNOWN)
    size = np.where(shared, most[parts.collective], size)
    return np.where((size == UNKNOWN) & _is_one_of(job, (Operation.BARRIER,)), 0, size)


def _given(job: Job, parts: Participations, count: Int64s) -> Int64s:
    """What each rank puts in, told from what it gets where only that is known."""
    given, gotten = parts.bytes_in, parts.bytes_out
    known, several = gotten != UNKNOWN, np.maximum(count, 1)
    size = given.copy()
    for names, told in (
        ((Operation.ALL_GATHER,), gotten // several),
        ((Operation.REDUCE_SCATTER,), gotten * several),
        ((Operation.ALL_TO_ALL,), gotten),
    ):
        lacking = (size == UNKNOWN) & known & (count > 0) & _is_one_of(job, names)
        size[lacking] = told[lacking]
    either = _is_one_of(job, EITHER)
    size[either] = np.maximum(given, gotten)[either]
    output = _is_one_of(job, OUTPUT)
    size[output] = gotten[output]
    return size


def _is_one_of(job: Job, names: tuple[str, ...]) -> Bools:
    """Whether the collective of each participation is one of these."""
    wanted = np.array([text in names for text in job.strings] + [False], np.bool_)
    chosen: Bools = wanted[job.collectives.operation[job.participations.collective]]
    return chosen
