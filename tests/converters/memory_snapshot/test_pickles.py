"""Pickles of snapshots: any protocol and writer, no code, bounded memory, truncation anywhere."""

from __future__ import annotations

import os
import pickle
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.memory_snapshots import (
    alloc,
    as_python,
    as_source,
    as_torch,
    block,
    free,
    out_of_memory,
    segment,
    snapshot,
    stack,
)
from tracelink._model.errors import UnreadableError
from tracelink.converters.memory_snapshot.pickles import Decoded, decode

Row = tuple[str, int, int, int, tuple[str, ...]]
FORWARD = stack("ops.cpp:7 at::_ops::mm::call()", "model.py:41 forward", "train.py:9 main")
BACKWARD = stack("model.py:50 backward", "train.py:9 main")


def decoded(data: bytes) -> Decoded:
    with as_source(data).open() as stream:
        return decode(stream, lambda _: None)


def rows(found: Decoded) -> list[list[Row]]:
    """The entries of each list, in order: action, address, size, time and stack."""
    entries, actions = found.entries, found.entries.actions.texts()
    frames, stacks = list(found.entries.frames), list(found.entries.stacks)
    return [
        [
            (
                actions[entries.action[row]],
                entries.address[row],
                entries.size[row],
                entries.time[row],
                tuple(
                    f"{frames[one].filename}:{frames[one].line} {frames[one].name}"
                    for one in (stacks[entries.stack[row]] if entries.stack[row] >= 0 else ())
                ),
            )
            for row in owned.rows
        ]
        for owned in found.owned
    ]


def expected(lists: list[list[dict[str, Any]]]) -> list[list[Row]]:
    return [
        [
            (
                one.get("action", one.get("state")),
                one.get("addr", one.get("address", one.get("device_free"))),
                one.get("requested_size", one["size"]),
                one.get("time_us", -1),
                tuple(f"{f['filename']}:{f['line']} {f['name']}" for f in one.get("frames", ())),
            )
            for one in items
        ]
        for items in lists
        if items
    ]


def content() -> dict[str, Any]:
    first = [alloc(64 * n, n, n, list(FORWARD if n % 3 else BACKWARD)) for n in range(1, 3000)]
    second = [alloc(1 << 46, 1 << 34, 5, FORWARD), *free(1 << 46, 1 << 34, 6), out_of_memory(1 << 40, 7)]
    blocks = [block(n, "inactive" if n % 2 else "active_allocated", 64 * n, BACKWARD) for n in range(1, 50)]
    return snapshot(
        first, [], second, segments=[segment(*blocks), segment(block(1, frames=FORWARD), device=2)]
    )


def lists_of(whole: dict[str, Any]) -> list[list[dict[str, Any]]]:
    return [*(one["blocks"] for one in whole["segments"]), *whole["device_traces"]]


def joined(found: list[list[Row]]) -> list[Row]:
    return [row for part in found for row in part]


@pytest.mark.parametrize("write", [as_torch, *(lambda c, p=p: as_python(c, p) for p in (2, 3, 4, 5))])
def test_any_writer_gives_the_same_entries(write: Any) -> None:
    whole = content()
    found = decoded(write(whole))
    assert joined(rows(found)) == joined(expected(lists_of(whole)))
    assert found.truncated == ""
    assert set(found.root) == {"segments", "device_traces", "allocator_settings", "external_annotations"}


def test_entries_without_shared_texts_are_the_same() -> None:
    whole = content()
    whole["device_traces"][0] = [
        {f"{key} "[:-1]: value for key, value in one.items()} for one in whole["device_traces"][0]
    ]
    found = decoded(pickle.dumps(whole, 4))
    assert joined(rows(found)) == joined(expected(lists_of(whole)))


NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 300) | st.integers(2**30, 2**33)
FRAMES = st.lists(st.sampled_from(FORWARD + BACKWARD), max_size=4)
ENTRIES = st.builds(
    lambda action, address, size, at, frames: alloc(address, size, at, frames) | {"action": action},
    st.sampled_from(["alloc", "free_requested", "segment_map", "x\u2028"]),
    NUMBERS,
    NUMBERS,
    st.integers(0, 2**40),
    st.none() | FRAMES,
)


@settings(deadline=None)
@given(st.lists(st.lists(ENTRIES, max_size=8), max_size=3), st.integers(2, 5), st.booleans())
def test_whatever_numbers_and_stacks_there_are(traces: list[Any], protocol: int, share: bool) -> None:
    whole = snapshot(*traces, segments=[segment(block(7, frames=FORWARD))])
    found = decoded(as_python(whole, protocol) if share else pickle.dumps(whole, protocol))
    assert joined(rows(found)) == joined(expected(lists_of(whole)))


@settings(deadline=None)
@given(st.integers(2, 40_000), st.sampled_from(["2", "4", "torch"]))
def test_a_truncated_file_has_the_entries_before_the_cut(cut: int, writer: str) -> None:
    whole = snapshot(
        [alloc(64 * n, n, n, list(FORWARD)) for n in range(1, 200)],
        [alloc(64 * n, n, n, BACKWARD) for n in range(1, 50)],
        segments=[segment(*(block(n, address=64 * n) for n in range(1, 20)))],
    )
    data = as_torch(whole) if writer == "torch" else as_python(whole, int(writer))
    try:
        found = decoded(data[:cut])
    except UnreadableError:
        assert cut < 16
        return
    all_rows = joined(expected(lists_of(whole)))
    assert [row[:4] for row in joined(rows(found))] == [
        row[:4] for row in all_rows[: len(joined(rows(found)))]
    ]
    assert bool(found.truncated) == (cut < len(data))


# Hostile files.


class _Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch /tmp/tracelink-evil",)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (pickle.dumps({"segments": [_Evil()]}, 2), r"opcode GLOBAL \(0x63\) does not occur"),
        (pickle.dumps({"segments": [_Evil()]}, 4), r"opcode STACK_GLOBAL \(0x93\) does not occur"),
        (b"\x80\x02cposix\nsystem\n.", "opcode GLOBAL"),
        (b"\x80\x02Pabc\n.", "opcode PERSID"),
        (b"\x80\x02\xffabc", "opcode 0xff"),
        (b"\x80\x02h\x05.", "memo index 5 is unknown"),
        (b"\x80\x02}r\xff\xff\xff\x7f.", "memo index 2147483647 is too large"),
        (b"\x80\x02e.", "there is no mark"),
        (b"\x80\x02(e.", "there is no list to fill"),
        (b"\x80\x02}(K\x01u.", "there is no dict to fill"),
        (b"\x80\x02}(]K\x01u.", "a key is neither"),
        (b"\x80\x02K\x01K\x02.", "more than one value"),
        (b"\x80\x02.", "more than one value"),
        (b"\x80\x02X\xff\xff\xff\xff", "a string has 4294967295 bytes"),
        (b"\x80\x02X\x01\x00\x00\x00\xff.", "a string is not UTF-8"),
        (b"\x80\x02a.", "a value is missing"),
        (b"\x80\x02" + b"(" * 2000, "1024 containers are inside of each other"),
        (b"\x80\x02](" + b"}" * 300_000, "263,171 bytes have 263,168 lists and dicts"),
        (b"\x80\x02](" + b"N" * 10_000_000, "bytes have .* values that nothing contains"),
        (b"\x80\x02", "within the snapshot"),
        (b"\x80", "it starts with 80"),
        (b"", "it starts with"),
    ],
)
def test_nothing_but_plain_data_is_decoded(data: bytes, problem: str) -> None:
    with pytest.raises(UnreadableError, match=problem):
        decoded(data)


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02]q\x00h\x00a.",
        b"\x80\x02}q\x00(X\x01\x00\x00\x00ah\x00u.",
        b"\x80\x02(" + b"(" * 1000 + b"t" * 1001 + b".",
        b"\x80\x02](" + b"]" * 100_000 + b"e.",
    ],
)
def test_structures_that_contain_themselves_or_are_deep_do_no_harm(data: bytes) -> None:
    assert len(decoded(data).entries) == 0


def test_an_entry_in_place_of_a_value_does_not_move_others() -> None:
    whole = snapshot([alloc(1, 2, 3)])
    whole["device_traces"][0].insert(0, {"inner": alloc(9, 9, 9), "more": [alloc(8, 8, 8)]})
    found = decoded(as_python(whole))
    assert [[row[:3] for row in part] for part in rows(found)] == [[("alloc", 8, 8)], [("alloc", 1, 2)]]


def test_memory_is_a_small_part_of_what_the_objects_would_take() -> None:
    whole = snapshot([alloc(64 * n, n, n, list(FORWARD)) for n in range(40_000)])
    data = as_python(whole)
    tracemalloc.start()
    try:
        decoded(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10e6
