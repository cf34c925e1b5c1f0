"""Labels that tell calls apart where nobody numbers them: operation, size and type, as far as they are known."""

from __future__ import annotations

import numpy as np

from tracelink.communications import UNKNOWN
from tracelink.events import Bools, Int32s, Int64s
from tracelink.linking.coding import distinct


def labels_of(operation: Int32s, size: Int64s, type_: Int32s) -> tuple[Int64s, Bools]:
    """The label of each call, and whether it could have one of several: a source may tell less than others do.

    What a call lacks is taken from the only full label that it can be.
    """
    label, first = distinct(operation, size, type_)
    full = (size[first] != UNKNOWN) & (type_[first] != UNKNOWN)
    vague = np.zeros(len(first), np.bool_)
    meant = np.arange(len(first))
    for number in np.flatnonzero(~full).tolist():
        one = first[number]
        fits = full & (operation[first] == operation[one])
        fits &= (size[one] == UNKNOWN) | (size[first] == size[one])
        fits &= (type_[one] == UNKNOWN) | (type_[first] == type_[one])
        candidates = np.flatnonzero(fits)
        vague[number] = len(candidates) > 1
        if len(candidates) == 1:
            meant[number] = candidates[0]
    return meant[label], vague[label]
