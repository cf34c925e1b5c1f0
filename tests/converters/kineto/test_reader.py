"""Profiles of any year and hardware, and the arguments of their events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders.data import foreign, traces
from builders.inputs import reasons
from builders.kineto import (
    Element,
    Seen,
    arrow,
    as_source,
    cpu_op,
    distributed,
    half,
    instant,
    kernel,
    launch,
    memory,
    metadata,
    payloads,
    python_frame,
    seen,
    slice_,
    trace,
    with_texts,
    write,
)
from builders.kineto import read as read_bytes
from builders.kineto import read as read_trace
from tracelink._io.sources import Request, discover
from tracelink._model.columns import UNKNOWN
from tracelink._model.events import EventKind, InstantScope, Key
from tracelink._model.trace import ProcessGroup, RankTrace
from tracelink._run.processes import Processes
from tracelink.converters.kineto import is_kineto
from tracelink.converters.kineto.reader import KinetoReader
from tracelink.converters.kineto.schema import OLD_CATEGORIES

# What a trace of any year and any hardware becomes.


VOCABULARY = {
    "2020": [
        ("Operator", EventKind.OPERATOR),
        ("Runtime", EventKind.RUNTIME),
        ("Kernel", EventKind.KERNEL),
        ("Memcpy", EventKind.MEMCPY),
        ("Memset", EventKind.MEMSET),
        ("Python", EventKind.PYTHON),
    ],
    "2022": [
        ("cpu_op", EventKind.OPERATOR),
        ("cuda_runtime", EventKind.RUNTIME),
        ("kernel", EventKind.KERNEL),
        ("gpu_memcpy", EventKind.MEMCPY),
        ("gpu_memset", EventKind.MEMSET),
    ],
    "2023": [
        ("cuda_driver", EventKind.RUNTIME),
        ("user_annotation", EventKind.ANNOTATION),
        ("gpu_user_annotation", EventKind.GPU_ANNOTATION),
        ("python_function", EventKind.PYTHON),
        ("cuda_sync", EventKind.SYNCHRONIZATION),
        ("overhead", EventKind.OVERHEAD),
        ("cuda_profiler_range", EventKind.SPAN),
        ("Trace", EventKind.SPAN),
    ],
    "MTIA": [("mtia_runtime", EventKind.RUNTIME), ("mtia_ccp_events", EventKind.KERNEL)],
    "XPU": [("xpu_runtime", EventKind.RUNTIME), ("xpu_driver", EventKind.RUNTIME)],
    "other accelerators": [
        ("privateuse1_runtime", EventKind.RUNTIME),
        ("privateuse1_driver", EventKind.RUNTIME),
        ("hpu_runtime", EventKind.RUNTIME),
        ("hpu_op", EventKind.KERNEL),
    ],
    "nobody": [("", EventKind.OTHER), ("something_new", EventKind.OTHER)],
}

CATEGORIES = [
    pytest.param(category, kind, id=f"{era}-{category}")
    for era, table in VOCABULARY.items()
    for category, kind in table
]


def keys(result: RankTrace) -> dict[Key, dict[int, int]]:
    """The link keys of each event."""
    return {
        key: dict(zip(column.rows.tolist(), column.values.tolist(), strict=True))
        for key, column in result.keys.items()
    }


@pytest.mark.parametrize(("category", "kind"), CATEGORIES)
def test_a_category_of_any_year_is_one_of_a_few_kinds(category: str, kind: EventKind) -> None:
    result = read_trace(trace(slice_(category, "it", 5, 3), cpu_op(ts=9)))
    assert seen(result)[0] == Seen(kind, "it", 5000, 3000)
    assert reasons(result) == ({"old_categories": 1} if category in OLD_CATEGORIES else {})


def test_categories_and_scopes_that_do_not_follow_from_the_kind_are_kept() -> None:
    result = read_trace(
        trace(
            slice_("mtia_runtime", "runFunction"),
            cpu_op(),
            slice_("my layers", "forward"),
            slice_("cuda_driver", "cuLaunchKernel"),
            slice_("cuda_driver", "INVALID"),
            slice_("cuda_runtime", "cudaLaunchKernel"),
            slice_("cuda_runtime", "cuLaunchKernel"),
            slice_("Kernel", "add", pid=0, tid=7),
            {**instant("Record Window End", 9), "s": "g"},
            {**instant("marker", 9), "s": "p", "cat": "mine"},
            instant("plain", 9),
            memory(9, 512),
        )
    )
    texts = result.strings.texts()
    kept = {row: texts[code] for row, code in keys(result)[Key.CATEGORY].items()}
    assert kept == {0: "mtia_runtime", 2: "my layers", 4: "cuda_driver", 6: "cuda_runtime", 9: "mine"}
    assert keys(result)[Key.INSTANT_SCOPE] == {8: InstantScope.ALL, 9: InstantScope.PROCESS}


def test_scopes_of_instants_of_an_unexpected_file_are_kept() -> None:
    wide = [{**instant(str(scope), 9), "s": scope} for scope in ("g", "t", 5, None, ["g"])]
    result = read_trace(trace(None, *wide))
    assert keys(result) == {Key.INSTANT_SCOPE: {0: InstantScope.ALL}}


LAUNCH: Element = launch(12, 2, correlation=7, External_id=3)
KERNEL: Element = kernel("add", 20, 4, correlation=7, External_id=3)
ONE_STEP = [cpu_op("aten::add", 10, 5, External_id=3), LAUNCH, KERNEL, *arrow(LAUNCH, KERNEL, 7)]
SEEN_STEP = [
    Seen(EventKind.OPERATOR, "aten::add", 10_000, 5000),
    Seen(EventKind.RUNTIME, "cudaLaunchKernel", 12_000, 2000),
    Seen(EventKind.KERNEL, "add", 20_000, 4000),
]


@pytest.mark.parametrize("pretty", [False, True])
@pytest.mark.parametrize("form", ["header before", "header after", "bare array", "byte-order mark"])
def test_the_form_of_the_file_makes_no_difference(form: str, pretty: bool) -> None:
    told: dict[str, Any] = {"distributedInfo": distributed(3)}
    data = {
        "header before": trace(*ONE_STEP, pretty=pretty, **told),
        "header after": trace(*ONE_STEP, pretty=pretty, after=told),
        "bare array": trace(*ONE_STEP, pretty=pretty, bare=True),
        "byte-order mark": b"\xef\xbb\xbf" + trace(*ONE_STEP, pretty=pretty, **told),
    }[form]
    result = read_trace(data)
    assert seen(result) == SEEN_STEP
    assert keys(result) == {Key.CORRELATION: {1: 7, 2: 7}, Key.EXTERNAL_ID: {0: 3, 1: 3, 2: 3}}
    assert result.launch_flows.tolist() == [7]
    assert result.source.rank == (None if form == "bare array" else 3)
    assert reasons(result) == {}


@pytest.mark.parametrize(
    ("category", "both_ends", "linked"),
    [("ac2g", True, [7]), ("async_cpu_to_gpu", True, [7]), ("async", True, [7]), ("ac2g", False, [])],
)
def test_launch_arrows_of_any_year_count_with_both_ends(
    category: str, both_ends: bool, linked: list[int]
) -> None:
    ends = arrow(LAUNCH, KERNEL, 7, category)
    result = read_trace(trace(LAUNCH, KERNEL, *(ends if both_ends else ends[1:])))
    assert result.launch_flows.tolist() == linked
    assert reasons(result) == {}


def test_arrows_of_2021_have_texts_as_ids() -> None:
    result = read_trace(trace(LAUNCH, KERNEL, *arrow(LAUNCH, KERNEL, "seven"), *arrow(LAUNCH, KERNEL, 8)))
    assert len(result.launch_flows) == 2
    assert 8 in result.launch_flows


def test_backward_arrows_stand_at_the_operators_with_a_sequence_number() -> None:
    wrapper = cpu_op("aten::linear", 10, 9)
    forward = cpu_op("aten::addmm", 10, 5, Sequence_number=4)
    backward = cpu_op("AddmmBackward0", 50, 5, Sequence_number=4, Fwd_thread_id=1)
    result = read_trace(trace(wrapper, forward, backward, *arrow(forward, backward, 1, "fwdbwd")))
    assert keys(result) == {
        Key.SEQUENCE: {1: 4, 2: 4},
        Key.FORWARD_THREAD: {2: 1},
        Key.BACKWARD_FLOW_OUT: {1: 1},
        Key.BACKWARD_FLOW_IN: {2: 1},
    }


def test_other_flows_are_at_their_events_and_loose_ones_are_counted() -> None:
    one, other = cpu_op("one", 10, 5), cpu_op("other", 30, 5, tid=8)
    nowhere = cpu_op("nowhere", 77)
    result = read_trace(trace(one, other, *arrow(one, other, 5, "drawn"), arrow(one, nowhere, 6, "drawn")[1]))
    assert keys(result) == {Key.FLOW_OUT: {0: 5}, Key.FLOW_IN: {1: 5}}
    assert reasons(result) == {"loose_flow": 1}


def test_link_keys_are_told_only_where_the_producer_gave_one() -> None:
    result = read_trace(
        trace(
            cpu_op("none", 1, Record_function_id=0, Sequence_number=-1, Fwd_thread_id=0),
            cpu_op("some", 2, Record_function_id=9, Sequence_number=0, External_id=4),
            python_frame("root", 3, Python_id=0, Python_parent_id=None),
            python_frame("child", 4, Python_id=1, Python_parent_id=0),
            slice_("Kernel", "2021", 5, pid=0, tid="stream 7", external_id=6, correlation=8),
            cpu_op("2022", 6, Profiler_Event_Index=0),
            python_frame("2023", 7, Ev_Idx=1),
        )
    )
    assert keys(result) == {
        Key.RECORD_FUNCTION: {1: 9},
        Key.SEQUENCE: {1: 0},
        Key.EXTERNAL_ID: {1: 4, 4: 6},
        Key.PYTHON_ID: {2: 0, 3: 1},
        Key.PYTHON_PARENT: {3: 0},
        Key.CORRELATION: {4: 8},
        Key.EVENT_INDEX: {5: 0, 6: 1},
    }


def test_rocm_names_its_calls_differently_and_nothing_else() -> None:
    call = launch(1, 2, "hipLaunchKernel", cid=1, correlation=5, stream="0x0", kernel="k", grid=[1, 1, 1])
    dispatched = kernel("Cijk", 4, 2, stream=0, correlation=5, kind="Dispatch Kernel")
    result = read_trace(trace(call, dispatched, cpu_op(ts=9)))
    assert seen(result)[:2] == [
        Seen(EventKind.RUNTIME, "hipLaunchKernel", 1000, 2000),
        Seen(EventKind.KERNEL, "Cijk", 4000, 2000),
    ]
    assert keys(result) == {Key.CORRELATION: {0: 5, 1: 5}}


@pytest.mark.parametrize("ph", ["i", "I", "R"])
def test_an_instant_has_no_duration(ph: str) -> None:
    result = read_trace(trace({**instant("Record Window End", 5, pid="", tid=""), "ph": ph}, cpu_op(ts=6)))
    assert seen(result)[0] == Seen(EventKind.INSTANT, "Record Window End", 5000, 0)
    assert reasons(result) == {}


def test_begins_and_ends_become_slices_by_lane_and_name() -> None:
    result = read_trace(
        trace(
            half("B", "outer", 10),
            half("B", "inner", 12),
            half("B", "elsewhere", 13, tid=8),
            half("E", "", 14),
            half("E", "outer", 20),
            half("B", "never ended", 30),
            half("E", "never begun", 31, tid=9),
        )
    )
    assert seen(result) == [
        Seen(EventKind.OPERATOR, "outer", 10_000, 10_000),
        Seen(EventKind.OPERATOR, "inner", 12_000, 2000),
        Seen(EventKind.OPERATOR, "elsewhere", 13_000, UNKNOWN),
        Seen(EventKind.OPERATOR, "never ended", 30_000, UNKNOWN),
    ]
    assert reasons(result) == {"end_without_begin": 1}


def test_asynchronous_slices_are_told_apart_by_their_id() -> None:
    result = read_trace(
        trace(
            half("b", "request", 10, 1, category="io"),
            half("b", "request", 11, 2, category="io"),
            half("n", "tick", 12, 1, category="io"),
            half("e", "request", 15, 2, category="io"),
            half("e", "request", 20, "0x1", category="io"),
            half("e", "request", 21, 1, category="io"),
        )
    )
    assert seen(result) == [
        Seen(EventKind.OTHER, "request", 10_000, 11_000),
        Seen(EventKind.OTHER, "request", 11_000, 4000),
        Seen(EventKind.OTHER, "tick", 12_000, 0),
    ]
    assert reasons(result) == {"end_without_begin": 1}


def test_what_the_header_says() -> None:
    groups = [
        {
            "pg_name": "0",
            "pg_desc": "default_pg",
            "backend_config": "cuda:nccl",
            "pg_size": 2,
            "ranks": [0, 1],
        },
        {"pg_name": "1", "pg_desc": "tp", "pg_size": 2, "ranks": "[0, 1]"},
        {"pg_name": "2", "ranks": "[0, 1, ...]"},
    ]
    result = read_trace(
        trace(
            cpu_op("aten::add", 10, 5),
            metadata("process_name", name="python"),
            host_name="node7",
            cupti_version=24,
            traceName="/home/somebody/trace.json",
            distributedInfo=distributed(1, 2, pg_config=groups),
        )
    )
    source = result.source
    assert (source.rank, source.world_size, source.host, source.pid) == (1, 2, "node7", 4200)
    assert (source.format, source.version, source.events, source.records) == ("kineto", "1, cupti 24", 1, 2)
    assert (source.start_ns, source.end_ns) == (10_000, 15_000)
    assert set(source.header) == {"schemaVersion", "distributedInfo"}
    assert result.groups == [
        ProcessGroup("0", "default_pg", (0, 1), 2, "cuda:nccl"),
        ProcessGroup("1", "tp", (0, 1), 2),
        ProcessGroup("2"),
    ]


def many(count: int) -> bytes:
    """More than a piece of events of every sort, with texts as ids in some."""
    elements: list[Any] = [metadata("thread_name", tid=3, name="main")]
    for number in range(count):
        call = launch(3 * number, 1, correlation=number + 1)
        work = kernel(f"kernel {number % 7}", 3 * number + 1, 1, stream=number % 3, correlation=number + 1)
        elements += [call, work, *arrow(call, work, number + 1)]
        if number % 1000 == 0:
            elements.append(slice_("Trace", f"span {number}", 3 * number, pid="Spans", tid=f"part {number}"))
            elements.append(arrow(call, work, 2**63 + number, "drawn")[0])
            elements.append(half("b", f"request {number}", 3 * number, f"id {number}", tid="requests"))
            elements.append(half("e", f"request {number}", 3 * number + 2, f"id {number}", tid="requests"))
    return trace(*elements, rank=5)


def test_many_processes_read_the_same_as_one(tmp_path: Path) -> None:
    path = tmp_path / "long.json"
    path.write_bytes(many(44_000))
    assert path.stat().st_size > 16 << 20
    (source,) = discover(Request([(str(path), "")])).sources
    one, two = (KinetoReader().read(source, Processes(jobs)) for jobs in (1, 2))
    assert seen(two) == seen(one)
    assert [two.tracks[row] for row in two.events.track] == [one.tracks[row] for row in one.events.track]
    assert sorted(two.launch_flows.tolist()) == list(range(1, 44_001))
    for key in (Key.CORRELATION, Key.FLOW_OUT):
        np.testing.assert_array_equal(two.key(key).rows, one.key(key).rows)
        np.testing.assert_array_equal(two.key(key).values, one.key(key).values)
    assert two.source == one.source
    assert reasons(two) == reasons(one) == {}


@pytest.mark.parametrize(
    ("head", "recognised"),
    [
        (trace(cpu_op()), True),
        (trace(cpu_op(), bare=True), True),
        (b'\xef\xbb\xbf {"deviceProperties": [', True),
        (b'{"schema": "1.1.1-chakra.0.0.4", "nodes": [', False),
        (b"[1, 2, 3]", False),
        (b"\x80\x02}q", False),
        (b"", False),
    ],
)
def test_recognition_by_content(head: bytes, recognised: bool) -> None:
    assert is_kineto(head, "trace.json") is recognised


@pytest.mark.parametrize(
    ("path", "rank", "found"),
    [
        ("gpu_2021/kineto_0.json", None, {"old_categories": 376}),
        ("gpu_2023/kineto_1.json", 1, {}),
        ("gpu_rocm/kineto_0.json", 0, {}),
        *foreign(
            ("kineto/resnet50_2021.json.gz", None, {"old_categories": 41905}),
            ("kineto/h100_qwen.json.gz", None, {}),
            ("kineto/mi300_resnet.json.gz", 0, {}),
            ("kineto/nccl_data.json.gz", 0, {}),
        ),
    ],
)
def test_real_traces_are_read_without_damage(path: str, rank: int | None, found: dict[str, int]) -> None:
    data = traces(path).read_bytes()
    result = KinetoReader().read(as_source(data, Path(path).name), Processes())
    kinds = {EventKind(kind) for kind in np.unique(result.events.kind).tolist()}
    assert {EventKind.OPERATOR, EventKind.RUNTIME, EventKind.KERNEL} <= kinds
    assert EventKind.OTHER not in kinds
    assert reasons(result) == found
    assert result.source.rank == rank


# Every event gives its own arguments back, byte for byte, for as long as the file is there.


LAST = '{"ph": "X", "name": "last", "pid": 1, "tid": 1, "ts": 9, "dur": 1}'
ARGUMENTS = [
    '{"External id": 5, "Input Dims": [[2, 3], []], "Ev Idx": 0}',
    '{"Comms Id":18446744073709551615,  "note" : "a \\"quoted\\" text, }, {"}',
    '{"est. achieved occupancy %": 30.500, "tiny": 1.0e-300, "empty": ""}',
    "{}",
    '{"nested": {"list": [{"ph": 1}, {"name": null}]}, "text": "\\u00e9 é"}',
]


def event(arguments: str) -> str:
    return f'{{"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 1, "ts": 1, "dur": 1, "args": {arguments}}}'


def test_the_bytes_of_the_file() -> None:
    result = read_bytes(with_texts(*map(event, ARGUMENTS), LAST))
    texts = dict(payloads(result))
    assert [texts[number].decode() for number in result.events.payload.tolist()[:-1]] == ARGUMENTS
    assert reasons(result) == {}


def test_an_event_without_arguments_has_an_empty_payload() -> None:
    result = read_bytes(trace(cpu_op("one"), cpu_op("two", External_id=3), cpu_op("three")))
    assert list(payloads(result)) == [(0, b""), (1, b'{"External id":3}'), (2, b"")]


def test_events_know_their_payload_among_elements_that_are_no_events() -> None:
    result = read_bytes(trace(metadata("process_name", name="python"), cpu_op("op", External_id=7), cpu_op()))
    assert result.events.payload.tolist() == [1, 2]
    assert dict(payloads(result))[1] == b'{"External id":7}'


NUMBERED = [f'{{"External id": {number},   "text": "{"x" * (number % 300)}"}}' for number in range(12_000)]


@pytest.fixture(scope="module")
def long_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = with_texts(*map(event, NUMBERED), LAST)
    assert len(data) > 3 << 20
    return write(tmp_path_factory.mktemp("long") / "long.json", data)


@pytest.mark.parametrize(
    ("first", "last"),
    [(0, None), (0, 1), (5, 5), (4000, 4003), (3999, 11_000), (11_999, None), (50_000, None)],
)
def test_runs_of_a_file_of_many_pieces(long_file: Path, first: int, last: int | None) -> None:
    (source,) = discover(Request([(str(long_file), "")])).sources
    result = KinetoReader().read(source, Processes())
    expected = list(enumerate([*NUMBERED, ""]))[first:last]
    assert [(number, text.decode()) for number, text in payloads(result, first, last)] == expected


def test_a_compressed_file_gives_the_same(tmp_path: Path, long_file: Path) -> None:
    (source,) = discover(Request([(str(write(tmp_path / "a.json.gz", long_file.read_bytes())), "")])).sources
    result = KinetoReader().read(source, Processes())
    assert [text.decode() for _, text in payloads(result, 9000, 9010)] == NUMBERED[9000:9010]


@pytest.mark.parametrize("place", [0, 5, 6000, 11_998, 11_999])
@pytest.mark.parametrize("damage", [b"nonsense!", b'"open text', b"}}}]]]"])
def test_payloads_stay_with_their_events_around_damage(place: int, damage: bytes) -> None:
    texts = [event(arguments).encode() for arguments in NUMBERED]
    texts[place] = texts[place].replace(b', "cat"', damage + b', "cat"')
    result = read_bytes(b'{"traceEvents": [' + b", ".join([*texts, LAST.encode()]) + b"]}")
    kept = [number for number in range(len(NUMBERED)) if number != place]
    of_event = dict(payloads(result))
    given = [of_event[number].decode() for number in result.events.payload.tolist()]
    assert [json.loads(text) if text else None for text in given] == [
        *(json.loads(NUMBERED[number]) for number in kept),
        None,
    ]
    assert set(reasons(result)) <= {"damaged", "not_an_event"}
    far = [
        (text, NUMBERED[number])
        for text, number in zip(given, kept, strict=False)
        if abs(number - place) > 8000
    ]
    assert all(text == recorded for text, recorded in far)


def test_arguments_that_only_a_lenient_parser_reads_are_given_as_plain_json() -> None:
    result = read_bytes(with_texts(event('{"a": NaN, "b": 1.50, "c": 7, "d": 1E+400, "e": Infinity}'), LAST))
    assert json.loads(dict(payloads(result))[0]) == {"a": None, "b": 1.5, "c": 7, "d": "1E+400", "e": None}


@pytest.mark.parametrize("arguments", ["null", "[]", '"text"', "5"])
def test_arguments_that_are_no_object_harm_nothing(arguments: str) -> None:
    result = read_bytes(
        with_texts(event('{"External id": 1}'), event(arguments), event('{"External id": 2}'), LAST)
    )
    texts = [text for _, text in payloads(result)]
    assert [json.loads(text) for text in (texts[0], texts[2])] == [{"External id": 1}, {"External id": 2}]
    assert reasons(result) == {}


@pytest.mark.parametrize(
    "name", ["cpu_job/kineto_0.json.gz", "gpu_2023/kineto_0.json", *foreign("kineto/pair_rank0.json.gz")]
)
def test_real_payloads_are_those_of_the_file(name: str) -> None:
    path = traces(name)
    (source,) = discover(Request([(str(path), "")])).sources
    result = KinetoReader().read(source, Processes())
    with source.open() as stream:
        elements = json.loads(stream.read_all(1 << 30))["traceEvents"]
    texts = dict(payloads(result))
    assert len(texts) == len(elements)
    assert [json.loads(texts[number] or b"null") for number in range(len(texts))] == [
        element.get("args") for element in elements
    ]


def test_a_slice_in_two_halves_has_the_arguments_of_its_begin() -> None:
    begin = {**slice_("cpu_op", "op", 1, External_id=5), "ph": "B"}
    end = {**slice_("cpu_op", "op", 3, External_id=6), "ph": "E"}
    result = read_bytes(trace(cpu_op("before"), begin, end, cpu_op("after", 9)))
    assert [dict(payloads(result))[number] for number in result.events.payload.tolist()] == [
        b"",
        b'{"External id":5}',
        b"",
    ]
