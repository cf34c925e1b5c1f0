"""Dumps that Python pickled again: fast decoding and replay give the same."""

from __future__ import annotations

import contextlib
import pickle
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from builders.recorder import collective, dump, frame
from tracelink._model.errors import UnreadableError
from tracelink.converters.flight_recorder import python_pickles
from tracelink.converters.flight_recorder.python_pickles import replay

# Fast decoding, where that is safe, gives the same as the replay


PROTOCOLS = st.integers(2, 5)
STACK = [frame("all_reduce"), frame("main", line=70_000)]
FIRST = dump(*(collective("nccl:x", number, frames=STACK, duration_ms=0.5) for number in range(1, 4)))
ONLY_FAST = (
    "the pickle ends with more than one value",
    "there is no dict to fill",
    "a key is neither a string nor an integer",
    "there is no mark",
)
"""Why the replay refuses what no pickler writes, though it is plain data."""

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5) | st.sampled_from(
    ["x" * 255, "é" * 200]
)
INTEGERS = st.integers(-(2**63), 2**64 - 1)
PLAIN = st.recursive(
    st.none() | st.booleans() | INTEGERS | st.floats(allow_nan=False) | TEXTS | st.tuples(TEXTS, TEXTS),
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS | INTEGERS, inner),
    max_leaves=20,
)


@st.composite
def dumps(draw: st.DrawFn) -> dict[str, Any]:
    """Dumps whose entries share texts, groups, frames and stacks, or not."""
    names, groups, stacks = (
        draw(st.lists(of, min_size=1, max_size=3))
        for of in (
            TEXTS,
            st.tuples(TEXTS, TEXTS),
            st.lists(st.builds(frame, TEXTS, TEXTS, INTEGERS), max_size=3),
        )
    )
    entries = st.builds(
        lambda name, group, stack, more: collective(name, 1, group=group, frames=stack, more=more),
        st.sampled_from(names) | TEXTS,
        st.sampled_from(groups),
        st.sampled_from(stacks),
        PLAIN,
    )
    return dump(*draw(st.lists(entries, max_size=5)))


def fast(data: bytes) -> Any:
    content = python_pickles.load_fast(data)
    assert content is not None, "left to the replay"
    return content.value


def replayed(data: bytes) -> Any:
    try:
        return repr(replay(data))
    except UnreadableError as refused:
        return ONLY_FAST if refused.problem.startswith(ONLY_FAST) else str(refused)


def is_left(data: bytes) -> bool:
    return python_pickles.load_fast(data) is None


@given(dumps() | PLAIN, PROTOCOLS)
def test_whatever_python_writes_of_a_dump_is_read_at_once(content: Any, protocol: int) -> None:
    data = pickle.dumps(content, protocol)
    assert fast(data) == content
    assert repr(fast(data)) == repr(replay(data))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_so_are_dumps_of_many_frames(protocol: int) -> None:
    entries = [
        collective(f"nccl:{number % 7}", number, frames=STACK, group=(str(number % 5), "tp"))
        for number in range(3000)
    ]
    assert fast(pickle.dumps(dump(*entries), protocol)) == dump(*entries)


def test_what_is_shared_stays_one_object() -> None:
    first, second, _ = fast(pickle.dumps(FIRST))["entries"]
    assert first["frames"] is second["frames"]


OPCODES = st.sampled_from([bytes([op]) for op in b"](}eusa.NKMXhjqr\x86\x88\x8a\x8c\x94\x95(cRb02t"])


@settings(max_examples=800)
@given(
    PROTOCOLS, st.integers(0, 2000), st.integers(0, 12), st.lists(OPCODES | st.binary(max_size=3), max_size=5)
)
@example(4, 2000, 0, [b"."])
def test_damaged_it_comes_out_as_the_replay_has_it(
    protocol: int, at: int, removed: int, put: list[bytes]
) -> None:
    whole = pickle.dumps(FIRST, protocol)
    data = whole[: at % len(whole)] + b"".join(put) + whole[at % len(whole) + removed :]
    content = python_pickles.load_fast(data)
    assert content is None or replayed(data) in (repr(content.value), ONLY_FAST)


@given(PROTOCOLS, st.lists(OPCODES, max_size=100))
def test_opcodes_in_any_order_are_read_or_left(protocol: int, opcodes: list[bytes]) -> None:
    python_pickles.load_fast(bytes([0x80, protocol]) + b"".join(opcodes) + b".")


@pytest.mark.parametrize("opcodes", [
    b"cos\nsystem\n", b"(ios\nsystem\n", b"]NR", b"]Nb", b"]N\x81", b"P1\n", b"NQ", b"\x82\x01", b"N2", b"N0N",
    b"\x8b\x01\x00\x00\x00\x01", b"\x8c\x02os\x8c\x06system\x93", b"]\x85", b"NNN\x87", b"(t", b"C\x01a",
])  # fmt: skip
def test_opcodes_that_a_dump_does_not_need_are_left(opcodes: bytes) -> None:
    assert is_left(b"\x80\x04" + opcodes + b".")


@pytest.mark.parametrize(
    "hostile", [print, {(1, 2): 3}, {None: 1}, {0.5: 1}, {("a", "b"): 1}, 1 << 100, (1, 2)]
)
def test_objects_and_odd_keys_are_left(hostile: Any) -> None:
    assert is_left(pickle.dumps([hostile], 2))


def pairs_in_pairs(protocol: int, levels: int, step: int) -> bytes:
    """A dict whose key is a tuple of a tuple of a tuple ...: hashing it goes as deep, and doubles at each level."""
    put = [
        b"\x94" if protocol >= 4 else b"r" + struct.pack("<I", level * step) for level in range(levels + 1)
    ]
    get = [b"j" + struct.pack("<I", level * step) for level in range(levels)]
    pairs = b"".join(get[level] * 2 + b"\x86" + put[level + 1] + b"N" for level in range(levels))
    return bytes([0x80, protocol]) + b"}(X\x01\x00\x00\x00a" + put[0] + b"N" + pairs + b"u."


@pytest.mark.parametrize("data", [
    b"\x80\x02}r\x00\x00\x00\x08.",
    b"\x80\x04}\x95" + b"\xff" * 8 + b".",
    b"\x80\x04\x95" + struct.pack("<Q", 1 << 40) + b"N.",
    b"\x80\x02]q\x00h\x00a.",
    b"\x80\x04]\x94}\x94K\x01h\x00sa.",
    b"\x80\x04" + b"](" * 100_000 + b"e" * 100_000 + b".",
    b"\x80\x02" + b"]q\x00" * 100_000 + b"a" * 99_999 + b".",
    b"\x80\x04" + b"]\x94" * (1 << 20) + b"." ,
    b"\x80\x02X\x01\x00\x00\x00\xff.",
    b"\x80\x04\x8c\x03\xed\xa0\x80.",
    b"\x80\x04NN.",
    b"\x80\x04N.N.",
    pairs_in_pairs(2, 60, 1),
    pairs_in_pairs(2, 60, 0),
    pairs_in_pairs(4, 60, 1),
], ids=["memo index", "frame of no size", "long frame", "list in itself", "list in itself, in a dict", "marked depth",
        "depth", "lists", "not UTF-8", "half a character", "two values", "two ends", "pairs in pairs",
        "pairs in pairs at one index", "pairs in memoized pairs"])  # fmt: skip
def test_bombs_are_left(data: bytes) -> None:
    assert is_left(data)


@pytest.mark.parametrize("levels", [2, 3])
@pytest.mark.parametrize("protocol", [2, 4])
def test_not_even_one_pair_in_a_pair_is_read_at_once(protocol: int, levels: int) -> None:
    assert is_left(pairs_in_pairs(protocol, levels, 1))


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_cut_pickle_is_left(protocol: int) -> None:
    data = pickle.dumps(FIRST, protocol)
    assert all(is_left(data[:at]) for at in range(len(data)))


# Replay: plain data only


ANY_INTEGERS = st.integers(-(2**63), 2**63 - 1)
ANY_PLAIN = st.recursive(
    st.none() | st.booleans() | ANY_INTEGERS | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | ANY_INTEGERS, inner)
    ),
    max_leaves=20,
)


@given(ANY_PLAIN, st.integers(0, pickle.HIGHEST_PROTOCOL))
def test_plain_data_comes_back_from_any_protocol(data: Any, protocol: int) -> None:
    assert replay(pickle.dumps(data, protocol)) == data


@given(st.binary(max_size=64))
def test_any_bytes_are_plain_data_or_refused(data: bytes) -> None:
    with contextlib.suppress(UnreadableError):
        replay(data)


@pytest.mark.parametrize("hostile", [Path("x"), print, range(3), {(1, 2): 3}, 1 << 100])
def test_objects_and_odd_keys_are_refused(hostile: Any) -> None:
    with pytest.raises(UnreadableError):
        replay(pickle.dumps([hostile]))


def test_a_structure_that_holds_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(UnreadableError, match="contains itself"):
        replay(pickle.dumps(endless))


def test_a_shared_frame_stays_one_object() -> None:
    frame = {"name": "step", "filename": "train.py", "line": 3}
    first, second = replay(pickle.dumps([[frame], [frame]]))
    assert first[0] is second[0]
