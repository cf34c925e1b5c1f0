"""Events."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, get_args

import numpy as np
import pytest

from tracelink._model.columns import UNKNOWN
from tracelink._model.events import EventKind, Events, KindName, Relation, RelationName


def test_end_of_some_events() -> None:
    times = np.array([10, 20, 30], np.int64)
    length = np.array([5, UNKNOWN, 0], np.int64)
    numbers = np.zeros(3, np.int32)
    kinds = np.full(3, EventKind.KERNEL, np.uint8)
    events = Events(kinds, numbers, numbers, times, length, numbers, times)
    assert events.end.tolist() == [15, 20, 30]
    assert events.end_of(np.array([2, 0])).tolist() == [30, 15]
    assert events.end_of(np.array([False, True, False])).tolist() == [20]


@pytest.mark.parametrize(("names", "words"), [(KindName, EventKind), (RelationName, Relation)])
def test_names_that_editors_complete_are_those_that_there_are(names: Any, words: type[IntEnum]) -> None:
    assert sorted(get_args(names)) == sorted(word.name.lower() for word in words)
