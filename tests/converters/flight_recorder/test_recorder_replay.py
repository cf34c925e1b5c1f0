"""Dumps that were pickled again by Python are read too; what is not plain data is refused."""

import contextlib
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracelink.converters.flight_recorder.python_pickles import NotPlain, replay

INTEGERS = st.integers(-(2**63), 2**63 - 1)
PLAIN = st.recursive(
    st.none() | st.booleans() | INTEGERS | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | INTEGERS, inner),
    max_leaves=20,
)


@given(PLAIN, st.integers(0, pickle.HIGHEST_PROTOCOL))
def test_plain_data_comes_back_from_any_protocol(data: Any, protocol: int) -> None:
    assert replay(pickle.dumps(data, protocol)) == data


@given(st.binary(max_size=64))
def test_any_bytes_are_plain_data_or_refused(data: bytes) -> None:
    with contextlib.suppress(NotPlain):
        replay(data)


@pytest.mark.parametrize("hostile", [Path("x"), print, range(3), {(1, 2): 3}, 1 << 100])
def test_objects_and_odd_keys_are_refused(hostile: Any) -> None:
    with pytest.raises(NotPlain):
        replay(pickle.dumps([hostile]))


def test_a_structure_that_holds_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(NotPlain, match="holds itself"):
        replay(pickle.dumps(endless))


def test_a_shared_frame_stays_one_object() -> None:
    frame = {"name": "step", "filename": "train.py", "line": 3}
    first, second = replay(pickle.dumps([[frame], [frame]]))
    assert first[0] is second[0]
