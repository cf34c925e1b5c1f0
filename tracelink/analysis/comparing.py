"""What ranks have to agree on when they do something together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from tracelink.communications import UNKNOWN
from tracelink.events import Bools, Int64s
from tracelink.journal import Journal
from tracelink.operations import Operation, operation_of

ONLY_OUT = frozenset({Operation.SCATTER, Operation.BROADCAST})
"""Operations to which only the root gives something."""
ONLY_IN = frozenset({Operation.GATHER, Operation.REDUCE})
"""Operations that give only the root something."""
UNSIZED = frozenset({Operation.ALL_TO_ALL})
"""Operations in which each rank may have sizes of its own."""
FLAT_OUT = frozenset({Operation.ALL_GATHER, Operation.REDUCE_SCATTER})
"""Operations whose result may be one tensor or several."""


BARRIER = "barrier"
"""Ends the names of what keeps ranks together, also where it is done by an all-reduce."""


class Aspect(IntEnum):
    """What ranks can disagree on, from the worst to the least."""

    OPERATION = 0
    DTYPE = 1
    SIZE = 2
    ROOT = 3
    """Told by profiles alone."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """For each request a number, equal where ranks agree in that aspect; UNKNOWN agrees with everything.

    The last one is for a request that is not known itself.
    """

    aspect: Aspect
    value: Int64s


def comparisons_of(journal: Journal, wholes: Sequence[tuple[int, ...]]) -> list[Comparison]:
    """All that is compared; requests that were issued as one come after the single ones."""
    single = _of_requests(journal) if len(journal.requests) else []
    return [Comparison(one.aspect, _with_wholes(one.value, wholes)) for one in single]


def _of_requests(journal: Journal) -> list[Comparison]:
    requests = journal.requests
    texts = [journal.texts[code] for code in requests.operation.tolist()]
    names = [Operation.BARRIER if text.endswith(BARRIER) else operation_of(text) for text in texts]
    codes = {name: code for code, name in enumerate(dict.fromkeys(names))}
    operation = np.array([codes[name] for name in names], np.int64)
    closing = _is(names, frozenset({Operation.COALESCED}))
    uneven = np.array([text.endswith(("_v", "_v_single")) for text in texts], np.bool_)
    unsized = _is(names, UNSIZED) | uneven
    no_in, no_out = _is(names, ONLY_OUT), _is(names, ONLY_IN)
    out = np.where(_is(names, FLAT_OUT), requests.elements_out, requests.shape_out)
    return [
        Comparison(Aspect.OPERATION, np.where(closing, UNKNOWN, operation)),
        Comparison(Aspect.DTYPE, np.where(no_in, UNKNOWN, requests.type_in)),
        Comparison(Aspect.DTYPE, np.where(no_out, UNKNOWN, requests.type_out)),
        Comparison(
            Aspect.SIZE, np.where(unsized | no_in | (requests.elements_in < 0), UNKNOWN, requests.shape_in)
        ),
        Comparison(Aspect.SIZE, np.where(unsized | no_out | (requests.elements_out < 0), UNKNOWN, out)),
    ]


def _is(names: Sequence[str], operations: frozenset[Operation]) -> Bools:
    return np.array([name in operations for name in names], np.bool_)


def _with_wholes(value: Int64s, wholes: Sequence[tuple[int, ...]]) -> Int64s:
    """The same, with numbers for what several requests make up; negative ones, to differ from single requests."""
    known: dict[tuple[int, ...], int] = {}
    parts = [tuple(value[list(whole)].tolist()) for whole in wholes]
    numbers = [UNKNOWN - 1 - known.setdefault(part, len(known)) for part in parts]
    return np.concatenate([value.astype(np.int64), np.array([*numbers, UNKNOWN], np.int64)])
