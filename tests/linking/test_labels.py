"""What tells calls apart where nobody numbers them."""

from __future__ import annotations

import numpy as np

from tracelink.linking.collectives import labels_of
from tracelink.model.columns import UNKNOWN

REDUCE, BARRIER, FLOAT, LONG = 3, 4, 1, 2


def labels(*calls: tuple[int, int, int]) -> tuple[list[int], list[bool]]:
    """The label of each call as the number of the first call that has it, and which are vague."""
    operation, size, type_ = np.array(calls).T
    label, vague = labels_of(operation.astype(np.int32), size, type_.astype(np.int32))
    return [label.tolist().index(one) for one in label], vague.tolist()


def test_operation_size_and_type_tell_calls_apart() -> None:
    found = labels((REDUCE, 8, FLOAT), (REDUCE, 8, LONG), (REDUCE, 9, FLOAT), (REDUCE, 8, FLOAT))
    assert found == ([0, 1, 2, 0], [False] * 4)


def test_what_a_call_lacks_is_taken_from_the_only_one_it_can_be() -> None:
    found = labels((REDUCE, 8, FLOAT), (REDUCE, 8, UNKNOWN), (REDUCE, 9, FLOAT), (REDUCE, UNKNOWN, UNKNOWN))
    assert found == ([0, 0, 2, 3], [False, False, False, True])


def test_an_operation_of_which_nobody_tells_a_size_is_not_vague() -> None:
    found = labels((BARRIER, UNKNOWN, UNKNOWN), (REDUCE, 8, FLOAT), (BARRIER, UNKNOWN, UNKNOWN))
    assert found == ([0, 1, 0], [False] * 3)
