"""Pickles that are checked before decoding: refused opcodes, truncation, limits of memory, and pickles of Python."""

from __future__ import annotations

import contextlib
import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from builders.recorder import as_source, collective, dump, frame, pickled
from tracelink._model.errors import UnreadableError
from tracelink._run.processes import Processes
from tracelink.converters.flight_recorder import pickles
from tracelink.converters.flight_recorder.decoding import json_bytes, json_copy
from tracelink.converters.flight_recorder.pickles import replay
from tracelink.converters.flight_recorder.reader import FlightRecorderReader

# A dump can neither run code nor take more memory than allowed


HEAD = b"\x80\x02"
STACK = [frame("all_reduce"), frame("main")]
DUMP = pickled(dump(*(collective("nccl:x", number, frames=STACK, duration_ms=0.5) for number in range(1, 4))))
MEGABYTES = 300


def text(value: str) -> bytes:
    encoded = value.encode()
    return b"X" + struct.pack("<I", len(encoded)) + encoded


class RunsCode:
    def __reduce__(self) -> Any:
        return os.abort, ()


def refusal(data: bytes) -> str:
    with pytest.raises(UnreadableError) as caught:
        pickles.load(data, "dump")
    return str(caught.value)


def test_what_torch_writes_decodes_as_pickle_would_decode_it() -> None:
    assert pickles.load(DUMP, "dump") == pickles.Loaded(pickle.loads(DUMP))


@pytest.mark.parametrize(
    ("body", "opcode"),
    [
        (b"cos\nsystem\n.", "GLOBAL (0x63)"),
        (b"](NR", "REDUCE (0x52)"),
        (b"](Nb", "BUILD (0x62)"),
        (b"](ios\nsystem\n", "INST (0x69)"),
        (b"](o", "OBJ (0x6f)"),
        (b"](NN\x81", "NEWOBJ (0x81)"),
        (b"](P1\n", "PERSID (0x50)"),
        (b"](NQ", "BINPERSID (0x51)"),
        (b"](\x82\x01", "EXT1 (0x82)"),
        (b"](N2", "DUP (0x32)"),
        (b"](N0", "POP (0x30)"),
        (b"](\x8b\x04\x00\x00\x00", "LONG4 (0x8b)"),
        (b"](\x93", "STACK_GLOBAL (0x93)"),
        (b"](\x00", "0x00"),
    ],
)
def test_an_opcode_that_torch_does_not_write_is_refused_by_name_and_place(body: bytes, opcode: str) -> None:
    at = len(HEAD) + body.index(bytes([int(opcode[-5:].strip("()"), 16)]))
    assert refusal(HEAD + body) == (
        f"dump, byte {at}: opcode {opcode} does not occur in a dump. "
        "torch's flight recorder does not write this; no code in it was run. "
        "Take the dump again, or leave the file out."
    )


@pytest.mark.parametrize(
    ("what", "body"),
    [
        ("a memo index beyond the file", b"}(ur\x00\x00\x00\x08."),
        ("a memo put on nothing that torch shares", b"](Nq\x00e."),
        ("a container filled twice", b"](e(Ne."),
        ("a list that holds itself", b"]q\x00(h\x00e."),
        ("an integer of another length", b"](\x8a\x09" + b"\x01" * 9 + b"e."),
        ("a tuple of a tuple", b"](" + text("a") + b"q\x00h\x00\x86h\x00\x86e."),
        ("a tuple of a tuple, after a string", b"](" + text("a") + b"q\x00h\x00\x86" + text("b") + b"\x86e."),
        ("a tuple of other things than texts", b"](NN\x86e."),
    ],
)
def test_an_opcode_out_of_its_place_is_refused(what: str, body: bytes) -> None:
    assert "has an argument or a position that does not occur in a dump" in refusal(HEAD + body), what


@pytest.mark.parametrize(
    "pair",
    [
        text("a") + b"q\x00" + text("b") + b"q\x01\x86",
        text("a") + b"q\x00h\x00\x86",
        text("a") + b"q\x00h\x00" + text("b") + b"q\x01\x86",
        text("a") + b"q\x00h\x00h\x00h\x00\x86",
        text("a") + b"q\x00h\x00j\x00\x00\x00\x00\x86",
        text("a") + b"q\x00j\x00\x00\x00\x00h\x00\x86",
    ],
)
def test_a_pair_of_texts_is_a_tuple_whether_they_are_new_or_known(pair: bytes) -> None:
    data = HEAD + b"](" + pair + b"e."
    assert pickles.load(data, "dump").content == pickle.loads(data)


@pytest.mark.parametrize(
    "body", [b"](ue.", b"e.", b"](", b"h\x05.", b"}(Nu.", b"](N", b"](NNu.", b"}(](eNu."]
)
def test_opcodes_that_make_no_sense_together_are_an_error(body: bytes) -> None:
    assert refusal(HEAD + body).startswith("dump")


def test_a_string_that_is_not_utf8_is_named_by_its_byte() -> None:
    assert refusal(HEAD + b"](X\x03\x00\x00\x00ab\xffe.").startswith("dump, byte 11: a string is not UTF-8")


def test_a_lone_surrogate_is_not_utf8() -> None:
    assert "byte 9: a string is not UTF-8" in refusal(HEAD + b"](X\x03\x00\x00\x00\xed\xa0\x80e.")


def test_a_string_longer_than_the_file_is_a_cut() -> None:
    assert refusal(HEAD + b"](X\xff\xff\xff\xffabc").startswith(
        "dump, byte 4: a string of 4294967295 bytes starts here, but the file ends after 12 bytes"
    )


def test_bytes_after_the_end_are_an_error() -> None:
    assert "the pickle ends here, but 3 more bytes follow" in refusal(DUMP + b"abc")


@pytest.mark.parametrize("protocol", [0, 1, 3, 4, 5])
def test_other_protocols_are_refused_unread(protocol: int) -> None:
    assert "a dump starts with 80 02" in refusal(pickle.dumps({"entries": [RunsCode()]}, protocol))


def test_code_in_protocol_2_never_runs() -> None:
    assert "no code in it was run" in refusal(pickle.dumps([RunsCode()], 2))


def survive(data: bytes) -> None:
    """A rank trace with all its payloads, or an error: nothing else may come of any bytes."""
    try:
        trace = FlightRecorderReader().read(as_source(data), Processes())
    except UnreadableError:
        return
    for first, run in trace.payloads[0].batches():
        assert first >= 0
        assert len(run) > 0


@given(st.binary(max_size=400))
@example(b"")
def test_arbitrary_bytes_are_a_trace_or_an_error(data: bytes) -> None:
    survive(data)
    survive(HEAD + data)
    survive(b"{" + data)


OPCODES = st.sampled_from([bytes([op]) for op in b"](}eu.NKMJXhjqrG\x86\x88\x8a(cRb02tp"])


@settings(max_examples=600)
@given(
    st.integers(2, len(DUMP) - 1), st.integers(0, 12), st.lists(OPCODES | st.binary(max_size=3), max_size=5)
)
def test_a_damaged_dump_is_a_trace_or_an_error(at: int, removed: int, put: list[bytes]) -> None:
    survive(DUMP[:at] + b"".join(put) + DUMP[at + removed :])


@given(st.integers(0, len(DUMP)))
def test_a_dump_cut_anywhere_is_a_trace_or_an_error(at: int) -> None:
    survive(DUMP[:at])


@given(st.lists(OPCODES, max_size=200))
@example([b"J", b"]", b"]", b"]", b"]", b"("])
def test_opcodes_in_any_order_are_a_trace_or_an_error(opcodes: list[bytes]) -> None:
    survive(HEAD + b"".join(opcodes) + b".")


def doubling(levels: int) -> bytes:
    """A list whose last element, written out, has ten to the power of `levels` elements."""
    chain = b"".join(
        b"](" + (b"h" + bytes([level])) * 10 + b"eq" + bytes([level + 1]) for level in range(levels)
    )
    return b"](](K\x01eq\x00" + chain + b"e"


KEYS = text("profiling_name") + text("x") + text("time_created_ns") + b"K\x01"
BOMBS: dict[str, Callable[[], bytes]] = {
    "nine bytes": lambda: HEAD + b"}r\x00\x00\x00\x08.",
    "memo index": lambda: HEAD + b"}(ur\x00\x00\x00\x08.",
    "shared lists in the header": lambda: (
        HEAD + b"}(" + text("pg_status") + doubling(60) + text("entries") + b"](eu."
    ),
    "shared lists in an entry": lambda: HEAD + b"](}(" + KEYS + text("input_sizes") + doubling(60) + b"ue.",
    "one entry many times": lambda: HEAD + b"](}(" + KEYS + b"uq\x00" + b"h\x00" * (1 << 20) + b"e.",
    "lists": lambda: HEAD + b"](" + b"](e" * (10 << 20) + b"e.",
    "lists of one": lambda: HEAD + b"](" + b"](Ne" * (750 << 10) + b"e.",
    "dicts": lambda: HEAD + b"](" + b"}(u" * (1 << 20) + b"e.",
    "nones": lambda: HEAD + b"](" + b"N" * (2 << 20) + b"e.",
    "depth": lambda: HEAD + b"](" * (1 << 20) + b"e" * (1 << 20) + b".",
    "openings": lambda: HEAD + b"](" * (15 << 20),
    "wide characters": lambda: HEAD + b"](" + text("\U0001f600" + "a" * (31 << 20)) + b"e.",
    "no end": lambda: HEAD + b"\x00" * (40 << 20),
    "JSON lists": lambda: b'{"entries":[' + b"[]," * (10 << 20) + b"0]}",
    "JSON depth": lambda: b'{"entries":' + b"[" * (2 << 20),
}
MEASURED = """
import resource, sys
from pathlib import Path
from tracelink.converters.flight_recorder.reader import FlightRecorderReader
from tracelink._run.processes import Processes
from tracelink._model.errors import UnreadableError
from tracelink._io.sources import Source
path = Path(sys.argv[1])
source = Source(str(path), lambda: path.open("rb", buffering=0), path.stat().st_size, path)
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
try:
    trace = FlightRecorderReader().read(source, Processes())
    [None for batch in trace.payloads[0].batches()]
except UnreadableError:
    pass
(peak,) = (line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(int(peak.split()[1]) >> 10)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the peak memory of a process")
@pytest.mark.parametrize("bomb", BOMBS)
def test_no_bomb_takes_more_memory_than_granted(bomb: str, tmp_path: Path) -> None:
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(BOMBS[bomb]())

    measured = subprocess.run(
        [sys.executable, "-c", MEASURED, str(path)], check=True, capture_output=True, text=True
    )

    assert int(measured.stdout) < MEGABYTES


# Decoded values as JSON.


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"sizes": [(1, 2)], 3: None}, b'{"sizes":[[1,2]],"3":null}'),
        (
            {"name": "a\ud800b", "c\udfff": ["\ud800", {"d": ("\ud800", 1)}]},
            b'{"name":"a?b","c?":["?",{"d":["?",1]}]}',
        ),
    ],
)
def test_what_json_cannot_hold_is_replaced(value: object, text: bytes) -> None:
    assert json_bytes(value) == text


def test_a_copy_shares_nothing() -> None:
    shared = [1]
    copy = json_copy([shared, shared])
    assert copy == [[1], [1]]
    assert copy[0] is not copy[1]


# Dumps that Python pickled again: fast decoding, where that is safe, gives the same as the replay


PROTOCOLS = st.integers(2, 5)
LONG_STACK = [frame("all_reduce"), frame("main", line=70_000)]
FIRST = dump(*(collective("nccl:x", number, frames=LONG_STACK, duration_ms=0.5) for number in range(1, 4)))
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
    content = pickles.load_fast(data)
    assert content is not None, "left to the replay"
    return content.value


def replayed(data: bytes) -> Any:
    try:
        return repr(replay(data))
    except UnreadableError as refused:
        return ONLY_FAST if refused.problem.startswith(ONLY_FAST) else str(refused)


def is_left(data: bytes) -> bool:
    return pickles.load_fast(data) is None


@given(dumps() | PLAIN, PROTOCOLS)
def test_whatever_python_writes_of_a_dump_is_read_at_once(content: Any, protocol: int) -> None:
    data = pickle.dumps(content, protocol)
    assert fast(data) == content
    assert repr(fast(data)) == repr(replay(data))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_so_are_dumps_of_many_frames(protocol: int) -> None:
    entries = [
        collective(f"nccl:{number % 7}", number, frames=LONG_STACK, group=(str(number % 5), "tp"))
        for number in range(3000)
    ]
    assert fast(pickle.dumps(dump(*entries), protocol)) == dump(*entries)


def test_what_is_shared_stays_one_object() -> None:
    first, second, _ = fast(pickle.dumps(FIRST))["entries"]
    assert first["frames"] is second["frames"]


PYTHON_OPCODES = st.sampled_from([bytes([op]) for op in b"](}eusa.NKMXhjqr\x86\x88\x8a\x8c\x94\x95(cRb02t"])


@settings(max_examples=800)
@given(
    PROTOCOLS,
    st.integers(0, 2000),
    st.integers(0, 12),
    st.lists(PYTHON_OPCODES | st.binary(max_size=3), max_size=5),
)
@example(4, 2000, 0, [b"."])
def test_damaged_it_comes_out_as_the_replay_has_it(
    protocol: int, at: int, removed: int, put: list[bytes]
) -> None:
    whole = pickle.dumps(FIRST, protocol)
    data = whole[: at % len(whole)] + b"".join(put) + whole[at % len(whole) + removed :]
    content = pickles.load_fast(data)
    assert content is None or replayed(data) in (repr(content.value), ONLY_FAST)


@given(PROTOCOLS, st.lists(PYTHON_OPCODES, max_size=100))
@example(2, [b"N", b"("])
def test_opcodes_in_any_order_are_read_or_left(protocol: int, opcodes: list[bytes]) -> None:
    pickles.load_fast(bytes([0x80, protocol]) + b"".join(opcodes) + b".")


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
