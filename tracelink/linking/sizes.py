"""Which numbers of elements must be equal on all ranks of a collective, and how many bytes it moves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tracelink.communications import UNKNOWN
from tracelink.dtypes import item_bytes
from tracelink.events import Bools, Int32s, Int64s
from tracelink.operations import Operation
from tracelink.strings import StringTable

Floats = npt.NDArray[np.float64]

EQUAL_OUT = (Operation.ALL_GATHER, Operation.SCATTER)
"""Every rank gets equally much; what each gives may differ."""
EQUAL_IN = (Operation.REDUCE_SCATTER, Operation.GATHER)
"""Every rank gives equally much; what each gets may differ."""
UNEQUAL = (Operation.ALL_TO_ALL, Operation.BARRIER, Operation.COALESCED)
"""Nothing need be equal, or nothing is known."""


def is_one_of(operation: Int32s, strings: StringTable, names: Sequence[str]) -> Bools:
    """Whether each operation is one of these."""
    return np.isin(operation, [code for name in names if (code := strings.find(name)) != UNKNOWN])


def common_size(operation: Int32s, given: Int64s, gotten: Int64s, strings: StringTable) -> Int64s:
    """The number of elements that is equal on all ranks, where the operation demands one; else UNKNOWN."""
    size = np.maximum(given, gotten)
    for names, column in ((EQUAL_OUT, gotten), (EQUAL_IN, given)):
        chosen = is_one_of(operation, strings, names)
        size[chosen] = column[chosen]
    size[is_one_of(operation, strings, UNEQUAL)] = UNKNOWN
    return size


def item_sizes(types: Int32s, strings: StringTable) -> Int64s:
    """The bytes of one number of each type, or UNKNOWN."""
    known = [item_bytes(text) for text in strings]
    table = np.array([UNKNOWN if size is None else size for size in known] + [UNKNOWN], np.int64)
    return table[types]


def elements_moved(
    operation: Int32s, given: Int64s, gotten: Int64s, size: Int64s, strings: StringTable
) -> Int64s:
    """How many elements nccl-tests takes for the size of each collective, or UNKNOWN.

    `given` and `gotten` are those of a rank as most have it, `size` is how many members there are. Of all-to-all
    it is what one rank gives to all; of gathering, scattering and the like the parts of all ranks together.
    """
    moved = np.maximum(given, gotten)
    whole = np.where(size > 0, size, 1)
    sized = size > 0
    for names, total, part in (
        ((Operation.ALL_GATHER,), gotten, given),
        ((Operation.REDUCE_SCATTER,), given, gotten),
        ((Operation.GATHER,), np.full_like(given, UNKNOWN), given),
        ((Operation.SCATTER,), np.full_like(given, UNKNOWN), gotten),
    ):
        chosen = is_one_of(operation, strings, names)
        parts = np.where((part >= 0) & sized, part * whole, UNKNOWN)
        moved[chosen] = np.where(total >= 0, total, parts)[chosen]
    chosen = is_one_of(operation, strings, (Operation.ALL_TO_ALL,))
    moved[chosen] = given[chosen]
    moved[is_one_of(operation, strings, (Operation.BARRIER,))] = 0
    return moved


def bus_factor(operation: Int32s, size: Int64s, strings: StringTable) -> Floats:
    """By what nccl-tests multiplies the algorithm bandwidth to get that of the bus."""
    members = size.astype(np.float64)
    members[members <= 0] = np.nan
    part = (members - 1) / members
    factor = np.ones(len(operation))
    doubled = is_one_of(operation, strings, (Operation.ALL_REDUCE,))
    factor[doubled] = 2 * part[doubled]
    shared = is_one_of(
        operation,
        strings,
        (
            Operation.ALL_GATHER,
            Operation.REDUCE_SCATTER,
            Operation.ALL_TO_ALL,
            Operation.GATHER,
            Operation.SCATTER,
        ),
    )
    factor[shared] = part[shared]
    return factor
