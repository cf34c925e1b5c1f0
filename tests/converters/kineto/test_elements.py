"""Elements of the event array: communication, exact times, shapes."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from builders.data import foreign, plain, traces
from builders.inputs import reasons
from builders.kineto import (
    PROCESS,
    cpu_op,
    instant,
    kernel,
    launch,
    payloads,
    python_frame,
    read,
    seen,
    slice_,
    trace,
    with_texts,
)
from builders.trace import stated, statements
from tracelink._io.sources import Request, discover
from tracelink._model.columns import UNKNOWN
from tracelink._model.communications import Statement
from tracelink._model.events import EventKind
from tracelink._model.trace import RankTrace
from tracelink._run.processes import Processes
from tracelink.converters.kineto.elements import LOOSE, Decoded, ElementDecoder
from tracelink.converters.kineto.reader import KinetoReader

# What events of a profile say of communication.


ALL_REDUCE = {
    "Collective name": "allreduce",
    "Process Group Name": "5",
    "Process Group Description": "dp",
    "Process Group Ranks": "[0, 2, 4, 6]",
    "In msg nelems": 2048,
    "Out msg nelems": 2048,
    "Group size": 4,
    "dtype": "BFloat16",
    "In split size": "[]",
    "Out split size": "[]",
}
ALL_REDUCED = Statement(
    "allreduce", "5", elements_in=2048, elements_out=2048, type="BFloat16", size=4, members="[0, 2, 4, 6]"
)


def record(**changes: Any) -> dict[str, Any]:
    """`record_param_comms` around an all-reduce, with other arguments where they are given."""
    return with_arguments(cpu_op("record_param_comms"), ALL_REDUCE | spelt(changes))


def with_arguments(element: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    return element | {"args": element.get("args", {}) | arguments}


def spelt(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("_", " "): value for name, value in arguments.items()}


def operator(name: str, *inputs: tuple[Any, str, str], category: str = "cpu_op") -> dict[str, Any]:
    """An operator or an annotation with (dims, type, value) of each input."""
    arguments = {
        "External id": 7,
        "Input Dims": [dims for dims, _, _ in inputs],
        "Input type": [kind for _, kind, _ in inputs],
        "Concrete Inputs": [value for _, _, value in inputs],
    }
    return slice_(category, name) | {"args": arguments}


def alone(element: dict[str, Any]) -> Statement:
    """What a file with this one event says."""
    (statement,) = statements(read(trace(element)))
    return statement


GROUP, NONE = ([], "", ""), ([], "", "")


def number(value: int) -> tuple[list[int], str, str]:
    return [], "Scalar", str(value)


def tensors(*dims: list[int]) -> tuple[Any, str, str]:
    return list(dims), "TensorList", ""


def tensor(*dims: int, kind: str = "float") -> tuple[Any, str, str]:
    return list(dims), kind, ""


def test_a_record_says_everything() -> None:
    assert alone(record()) == ALL_REDUCED
    assert alone(record(Seq=41)).sequence == 41


def test_a_kernel_repeats_the_record_that_it_is_of() -> None:
    element = with_arguments(kernel("ncclDevKernel_Generic", correlation=9), ALL_REDUCE)
    assert alone(element) == ALL_REDUCED


def test_a_kernel_of_any_name_is_of_communication_by_its_arguments() -> None:
    result = read(trace(kernel("gemm", 1), with_arguments(kernel("ring_42", 2), ALL_REDUCE)))
    assert stated(result) == [(1, ALL_REDUCED)]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"Dst_Rank": 6}, {"target": 6, "global_ranks": True}),
        ({"Dst_Rank": 6, "Rank": 3}, {"target": 6, "global_ranks": True}),
        ({"Rank": 3}, {"target": 3}),
        ({}, {}),
    ],
    ids=["global rank", "both", "rank in the group", "neither"],
)
def test_a_send_names_its_receiver(arguments: dict[str, Any], expected: dict[str, Any]) -> None:
    said = alone(record(**{"Collective name": "send", "Seq": 3, **arguments}))
    assert said == Statement(
        "send",
        "5",
        sequence=3,
        point_to_point=True,
        elements_in=2048,
        elements_out=2048,
        type="BFloat16",
        size=4,
        members="[0, 2, 4, 6]",
        **expected,
    )


def test_a_receive_names_its_sender() -> None:
    said = alone(record(**{"Collective name": "recv", "Src Rank": 4, "Rank": 2}))
    assert (said.source, said.target, said.global_ranks, said.point_to_point) == (4, -1, True, True)


@pytest.mark.parametrize("operation", ["broadcast", "_reduce_oop", "gather", "scatter"])
def test_the_rank_of_what_has_a_root_is_the_root(operation: str) -> None:
    said = alone(record(**{"Collective name": operation, "Rank": 2}))
    assert (said.source, said.target, said.global_ranks) == (2, -1, False)


def test_the_rank_of_other_collectives_is_the_rank_itself() -> None:
    assert alone(record(Rank=2)) == ALL_REDUCED


def test_a_wait_says_only_whom_it_waits_for() -> None:
    said = alone(
        record(**{"Collective name": "wait", "Seq": 9, "dtype": "Byte", "Group size": 1, "In msg nelems": 0})
    )
    assert said == Statement("wait", "5", sequence=9)


def test_a_group_of_uneven_ranks_does_not_list_them() -> None:
    assert alone(record(Process_Group_Ranks="[]")).members == ""


@pytest.mark.parametrize(
    ("name", "value", "column", "expected"),
    [
        ("Seq", "17", "sequence", 17),
        ("Seq", 2**64 - 1, "sequence", -1),
        ("Seq", -1, "sequence", -1),
        ("Seq", None, "sequence", -1),
        ("Seq", 1.5, "sequence", -1),
        ("Seq", True, "sequence", -1),
        ("In msg nelems", "2048", "elements_in", 2048),
        ("In msg nelems", [1], "elements_in", -1),
        ("Group size", 2**31, "size", -1),
        ("dtype", 7, "type", ""),
        ("Process Group Name", 5, "group", ""),
        ("Process Group Ranks", [0, 1], "members", ""),
        ("Dst Rank", "x", "target", -1),
        ("Comms Id", 2**64 - 1, "operation", "allreduce"),
    ],
)
def test_what_is_no_number_or_text_is_unknown(name: str, value: Any, column: str, expected: Any) -> None:
    assert getattr(alone(record(**{name: value})), column) == expected


def test_a_record_whose_operation_is_no_text_keeps_its_own_name() -> None:
    said = statements(read(trace(record(**{"Collective name": 7}), cpu_op("aten::add", 3), record(Seq=2))))
    assert [(statement.operation, statement.group, statement.sequence) for statement in said] == [
        ("record_param_comms", "5", -1),
        ("allreduce", "5", 2),
    ]


@pytest.mark.parametrize(
    ("element", "expected"),
    [
        (
            operator("c10d::allreduce_", tensors([8, 4], [2]), GROUP, NONE, NONE, number(-1)),
            Statement("c10d::allreduce_", elements_in=34, elements_out=34, shape="[[8,4],[2]]"),
        ),
        (
            operator("c10d::_allgather_base_", tensor(64, 4), tensor(32, 4, kind="long int"), GROUP),
            Statement(
                "c10d::_allgather_base_", elements_in=128, elements_out=256, type="Long", shape="[[32,4]]"
            ),
        ),
        (
            operator("c10d::allgather_", NONE, tensors([8]), GROUP),
            Statement("c10d::allgather_", elements_in=8, shape="[[8]]"),
        ),
        (
            operator("c10d::alltoall_base_", tensor(6), tensor(9, kind="c10::Half"), GROUP),
            Statement("c10d::alltoall_base_", elements_in=9, elements_out=6, type="Half", shape="[[9]]"),
        ),
        (
            operator("c10d::broadcast_", tensors([7]), GROUP, number(0), number(0), number(-1)),
            Statement("c10d::broadcast_", source=0, elements_in=7, elements_out=7, shape="[[7]]"),
        ),
        (
            operator("c10d::reduce_", tensors([7]), GROUP, NONE, number(3), number(0)),
            Statement("c10d::reduce_", source=3, elements_in=7, elements_out=7, shape="[[7]]"),
        ),
        (
            operator("c10d::send", tensors([10]), GROUP, number(1), number(12)),
            Statement(
                "c10d::send",
                point_to_point=True,
                target=1,
                tag=12,
                elements_in=10,
                elements_out=10,
                shape="[[10]]",
            ),
        ),
        (
            operator("c10d::recv_", tensors([10]), GROUP, number(7), number(0)),
            Statement(
                "c10d::recv_",
                point_to_point=True,
                source=7,
                tag=0,
                elements_in=10,
                elements_out=10,
                shape="[[10]]",
            ),
        ),
        (
            operator("c10d::barrier", tensor(1, kind="unsigned char"), GROUP),
            Statement("c10d::barrier"),
        ),
        (
            operator("c10d::allreduce_", ([], "TensorList", ""), GROUP),
            Statement("c10d::allreduce_"),
        ),
        (
            operator("_c10d_functional::all_reduce", tensor(5), NONE, NONE),
            Statement("_c10d_functional::all_reduce", elements_in=5, type="Float", shape="[[5]]"),
        ),
        (
            operator("gloo:all_reduce", tensor(), category="user_annotation"),
            Statement("gloo:all_reduce", elements_in=1, type="Float", shape="[[]]"),
        ),
        (
            operator("gloo:all_reduce", tensor(3), tensor(2, 2), category="user_annotation"),
            Statement("gloo:all_reduce", elements_in=7, type="Float", shape="[[3],[2,2]]"),
        ),
        (slice_("user_annotation", "gloo:barrier"), Statement("gloo:barrier")),
        (
            slice_("user_annotation", "nccl:send 1->2"),
            Statement("nccl:send 1->2", point_to_point=True, source=1, target=2),
        ),
        (
            slice_("gpu_user_annotation", "nccl:all_reduce", pid=0, tid=7, External_id=7),
            Statement("nccl:all_reduce"),
        ),
        (cpu_op("record_param_comms"), Statement("record_param_comms")),
        (
            operator("record_param_comms", tensor(6144), number(147), number(1)),
            Statement("record_param_comms", elements_in=6144, type="Float", shape="[[6144]]"),
        ),
        (kernel("ncclKernel_AllReduce_RING"), Statement("ncclKernel_AllReduce_RING")),
    ],
    ids=lambda value: value["name"] if isinstance(value, dict) else "",
)
def test_events_say_what_their_names_and_inputs_say(element: dict[str, Any], expected: Statement) -> None:
    assert alone(element) == expected


@pytest.mark.parametrize(
    "element",
    [
        cpu_op("aten::allreduce"),
        python_frame("torch/distributed/distributed_c10d.py(2773): all_reduce"),
        launch(name="ncclGroupEnd"),
        kernel("reduce_kernel"),
        slice_("user_annotation", "DDP:forward"),
        slice_("cuda_driver", "c10d::allreduce_"),
    ],
    ids=lambda element: element["name"],
)
def test_other_events_say_nothing(element: dict[str, Any]) -> None:
    assert statements(read(trace(element))) == []


def test_rows_are_those_of_the_events_wherever_other_elements_stand() -> None:
    elements = [
        {"ph": "M", "name": "process_name", "pid": PROCESS, "tid": 0, "ts": 0, "args": {"name": "python"}},
        cpu_op("aten::add", 1),
        record(Seq=1),
        {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 3, "pid": PROCESS, "tid": 1, "ts": 2},
        record(Seq=2),
    ]
    said = stated(read(trace(*elements)))
    assert [(row, statement.sequence) for row, statement in said] == [(1, 1), (2, 2)]


TRICKY = [
    {"Note": '"record_param_comms"'},
    {"Note": "record_param_comms"},
    {"Note": "a { that never closes"},
    {"Note": "} that was never open"},
    {"Call stack": 'train.py(1): "c10d::allreduce_" {"args": {}}'},
    {"Nested": {"Collective name": "broadcast"}},
    {},
]


@given(
    st.lists(
        st.tuples(st.sampled_from(["record", "bare", "op", "kernel", "other"]), st.sampled_from(TRICKY)),
        max_size=24,
    ),
    st.booleans(),
)
def test_arguments_are_never_those_of_another_event(kinds: list[tuple[str, Any]], pretty: bool) -> None:
    elements, expected = [], []
    for place, (kind, tricky) in enumerate(kinds):
        numbered = ALL_REDUCE | {"Seq": place, "External id": place // 3} | tricky
        match kind:
            case "record":
                elements.append(with_arguments(cpu_op("record_param_comms", place), tricky | numbered))
                expected.append((place, "allreduce", place))
            case "bare":
                elements.append(with_arguments(cpu_op("record_param_comms", place), tricky))
                expected.append((place, "record_param_comms", -1))
            case "kernel":
                elements.append(with_arguments(kernel("ncclKernel", place, correlation=place), numbered))
                expected.append((place, "allreduce", place))
            case "op":
                elements.append(with_arguments(cpu_op("c10d::allreduce_", place), tricky))
                expected.append((place, "c10d::allreduce_", -1))
            case _:
                elements.append(with_arguments(cpu_op("aten::add", place), tricky))
    said = stated(read(trace(*elements, pretty=pretty)))
    assert [(row, statement.operation, statement.sequence) for row, statement in said] == expected


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 5),
    st.sampled_from(
        [2**31, 2**63, 2**64, 10**30, 1.0, 0.5, "3", "", "[0, 1]", "Float", [], [[2, 3]], {"a": 1}]
    ),
)
STATING = st.dictionaries(
    st.sampled_from(
        [
            "Collective name",
            "Process Group Name",
            "Seq",
            "In msg nelems",
            "Out msg nelems",
            "dtype",
            "Group size",
            "Process Group Ranks",
            "Src Rank",
            "Dst Rank",
            "Rank",
            "Input Dims",
            "Input type",
            "Concrete Inputs",
            "External id",
            "correlation",
            "Note",
        ]
    ),
    VALUES,
)
USUAL = st.fixed_dictionaries(
    {"External id": st.integers(0, 2)},
    optional={
        "Collective name": st.sampled_from(["allreduce", "send", "broadcast", "wait", ""]),
        "Seq": st.integers(0, 2) | st.just("7"),
        "Group size": st.sampled_from([2, 8]),
        "Dst Rank": st.integers(-1, 1),
        "Rank": st.integers(0, 1),
        "Input Dims": st.sampled_from([[], [[2, 3]], [[[2, 3], [4]]], [[4], [], [], [1]]]),
        "Input type": st.sampled_from([["float"], ["TensorList", "", "Scalar", "Scalar"]]),
        "Concrete Inputs": st.sampled_from([["", "", "1", "2"], ["", "", "0"]]),
    },
)
STATING_EVENTS = st.lists(
    st.builds(
        lambda name, category, arguments: slice_(category, name) | {"args": arguments},
        st.sampled_from(
            ["record_param_comms", "c10d::send", "nccl:send 0->1", "nccl:all_reduce", "ncclKernel"]
        ),
        st.sampled_from(["cpu_op", "user_annotation", "gpu_user_annotation", "kernel"]),
        USUAL | STATING,
    ),
    max_size=12,
)


def stated_by(decoder: ElementDecoder, piece: Decoded) -> list[tuple[int, Statement]]:
    """What the events of a piece state, one by one."""
    table = piece.stated
    rows = zip(table.event.tolist(), table.statement.tolist(), table.sequence.tolist(), strict=True)
    stated_here = decoder.communication.statements
    return [(event, replace(stated_here[code], sequence=sequence)) for event, code, sequence in rows]


def states_the_same(text: bytes) -> bool:
    """Whether text has the same statements by its types and by the lenient parser."""
    by_type, lenient = ElementDecoder(), ElementDecoder()
    try:
        fast = by_type.decode(memoryview(text))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return True
    return stated_by(by_type, fast) == stated_by(lenient, lenient.convert(LOOSE.decode(text)))


@given(STATING_EVENTS, st.booleans())
def test_a_statement_is_the_same_however_it_is_read(events: list[dict[str, Any]], pretty: bool) -> None:
    assert states_the_same(json.dumps(events, indent=2 if pretty else None).encode())


@given(st.lists(USUAL, min_size=1, max_size=8), st.data())
def test_damaged_text_that_still_parses_says_the_same(
    arguments: list[dict[str, Any]], data: st.DataObject
) -> None:
    events = [slice_("cpu_op", "record_param_comms") | {"args": each} for each in arguments]
    text = bytearray(json.dumps(events).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text) - 1))
        end = start + data.draw(st.integers(0, 3))
        text[start:end] = data.draw(
            st.sampled_from([b"", b'"', b"{", b"}", b",", b"1", b".", b"\\", b"null"])
        )
    assert states_the_same(bytes(text))


@pytest.mark.parametrize(
    "path",
    [
        *("cpu_job/kineto_0.json.gz", "gpu_pair/kineto_0.json.gz", "gpu_2023/kineto_0.json"),
        *foreign("kineto/pair_rank0.json.gz", "kineto/nccl_data.json.gz", "pairs/dlrm8/device.0.json.gz"),
    ],
)
def test_a_recorded_file_states_the_same_however_it_is_read(path: str) -> None:
    """Around each event on communication, because the lenient parser takes long."""
    elements = json.loads(plain(path))["traceEvents"]
    names = ("record_param_comms", "c10d::", "gloo:", "nccl")
    here = [place for place, element in enumerate(elements) if element.get("name", "").startswith(names)]
    assert here
    for place in here[:40]:
        assert states_the_same(json.dumps(elements[max(place - 20, 0) : place + 20]).encode())


@pytest.mark.parametrize("stored", ["plain", "gzip", "truncated gzip", "two members"])
def test_a_file_read_in_parts_says_the_same(
    stored: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trace.json"
    text = trace(*(record(Seq=place) for place in range(9000)))
    path.write_bytes(
        {
            "plain": text,
            "gzip": gzip.compress(text),
            "truncated gzip": gzip.compress(text)[:-9000],
            "two members": gzip.compress(text[:3_000_000]) + gzip.compress(text[3_000_000:]),
        }[stored]
    )
    monkeypatch.setattr("tracelink.converters.kineto.reader.WORTH_SPLITTING", 1)
    (source,) = discover(Request([(str(path), "")])).sources
    whole, parts = (KinetoReader().read(source, Processes(jobs)) for jobs in (1, 3))
    assert stated(parts) == stated(whole)
    assert parts.findings == whole.findings
    assert list(payloads(parts, 8, 12)) == list(payloads(whole, 8, 12))
    sequences = [statement.sequence for statement in statements(whole)]
    assert sequences == list(range(len(sequences)))
    assert (len(sequences) == 9000) == (stored != "truncated gzip")


def test_a_damaged_file_says_the_same_of_what_is_left() -> None:
    text = trace(record(Seq=1), record(Seq=2), record(Seq=3)).replace(b'"Seq":2', b'"Seq":,2')
    assert [statement.sequence for statement in statements(read(text))] == [1, 3]


def kinds(result: RankTrace) -> Counter[str]:
    """How many rows are of events of each kind."""
    return Counter(EventKind(kind).name for kind in result.events.kind[result.communications.row].tolist())


def of_file(path: str) -> RankTrace:
    (source,) = discover(Request([(str(traces(path)), "")])).sources
    return KinetoReader().read(source, Processes())


def test_a_gloo_job() -> None:
    result = of_file("cpu_job/kineto_0.json.gz")
    said = Counter(statement.operation for statement in statements(result))
    assert kinds(result) == {"OPERATOR": 12, "ANNOTATION": 12}
    assert (said["c10d::send"], said["gloo:send"], said["c10d::recv_"], said["gloo:recv"]) == (2, 2, 2, 2)
    assert Statement(
        "c10d::recv_", point_to_point=True, source=1, tag=0, elements_in=32, elements_out=32, shape="[[32]]"
    ) in statements(result)
    assert [(group.name, group.size) for group in result.groups] == [("0", 2), ("1", 2)]


def test_an_nccl_job() -> None:
    result = of_file("gpu_pair/kineto_0.json.gz")
    assert kinds(result) == {"OPERATOR": 42, "ANNOTATION": 16, "GPU_ANNOTATION": 16, "KERNEL": 16}
    recorded = Counter(said.operation for said in statements(result) if said.members == "[0, 1]")
    assert recorded == {"allreduce": 24, "_allgather_base": 4, "send": 4}


def test_an_rccl_job_with_kernels_from_before_the_profile() -> None:
    result = of_file("gpu_rocm/kineto_0.json")
    kernels = result.events.kind[result.communications.row] == EventKind.KERNEL
    said = [statement for statement, of_kernel in zip(statements(result), kernels, strict=True) if of_kernel]
    assert Counter(statement.size for statement in said) == {2: 14, -1: 2}


@pytest.mark.parametrize(("rank", "message"), [(0, "nccl:send 0->1"), (1, "nccl:recv 1<-0")])
def test_a_job_of_2023_says_sizes_in_its_annotations(rank: int, message: str) -> None:
    result = of_file(f"gpu_2023/kineto_{rank}.json")
    in_time = sorted(stated(result), key=lambda row: result.events.start[row[0]])
    said = [statement for _, statement in in_time if statement.operation.startswith("nccl:")]
    assert {statement.type for statement in said} == {"Float"}
    assert [(s.operation, s.elements_in) for s in said] == 2 * [
        *(("nccl:all_reduce", 65536), ("nccl:_all_gather_base", 65536)),
        *(("nccl:all_reduce", 65536), ("nccl:all_reduce", 65536), (message, 65536)),
        *(("nccl:all_reduce", 1048576),) * 3,
    ]


def test_a_name_may_be_spelt_with_escapes() -> None:
    assert statements(read(trace(record()).replace(b"param_comms", b"param\\u005fcomms"))) == [ALL_REDUCED]


# Times are exact to the nanosecond, however they are written.


BASE = 1_782_967_788_000_000_000
LATEST_RELATIVE_NS = (2**43 - 1) * 1000
EPOCH_US = st.integers(1_500_000_000_000_000, 3_000_000_000_000_000)

LAST = '{"ph": "X", "cat": "cpu_op", "name": "last", "pid": 1, "tid": 1, "ts": 0, "dur": 1}'


def event(ts: str, dur: str = "1") -> str:
    """A slice whose times are given as text."""
    return f'{{"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 1, "ts": {ts}, "dur": {dur}}}'


def decimal(nanoseconds: int) -> str:
    """Microseconds with three decimals, as the profiler writes them."""
    return f"{nanoseconds // 1000}.{nanoseconds % 1000:03}"


def starts(data: bytes) -> list[int]:
    return [one.start for one in seen(read(data))][:-1]


@given(st.lists(st.integers(0, LATEST_RELATIVE_NS), min_size=1, max_size=8))
@settings(max_examples=200, deadline=None)
def test_relative_times_below_102_days_are_exact(times: list[int]) -> None:
    texts = [event(decimal(time)) for time in times]
    assert starts(with_texts(*texts, LAST, base=BASE)) == [BASE + time for time in times]


@given(
    EPOCH_US.flatmap(lambda us: st.lists(st.integers(us * 1000, us * 1000 + 10**9), min_size=1, max_size=8))
)
@settings(max_examples=200, deadline=None)
def test_absolute_times_keep_every_fraction(times: list[int]) -> None:
    assert starts(with_texts(*map(event, map(decimal, times)), LAST)) == times


@given(st.lists(EPOCH_US, min_size=1, max_size=8))
@settings(max_examples=100, deadline=None)
def test_absolute_whole_microseconds(times: list[int]) -> None:
    assert starts(with_texts(*map(event, map(str, times)), LAST)) == [1000 * time for time in times]


@given(st.lists(st.integers(0, LATEST_RELATIVE_NS), min_size=1, max_size=8))
@settings(max_examples=100, deadline=None)
def test_durations_are_exact(times: list[int]) -> None:
    result = read(with_texts(*(event("5", decimal(time)) for time in times), LAST))
    assert [one.duration for one in seen(result)][:-1] == times


@pytest.mark.parametrize("text", ["1e3", '"1000"', "1000.0", "1.0E+3", "999.9999999", "1000.0001"])
def test_unusual_spellings_of_a_time(text: str) -> None:
    assert starts(with_texts(event(text), LAST)) == [1_000_000]


def test_a_time_before_the_base() -> None:
    assert starts(with_texts(event("-0.001"), LAST, base=BASE)) == [BASE - 1]


@pytest.mark.parametrize("base", ["1775078550000000000", 1775078550000000000, 1.77507855e18])
def test_the_base_may_be_text_or_any_number(base: object) -> None:
    result = read(trace(cpu_op(ts=1), cpu_op(ts=2), baseTimeNanoseconds=base))
    assert [one.start for one in seen(result)] == [1775078550000001000, 1775078550000002000]


@pytest.mark.parametrize("base", ["", "noon", None, [], 1e30, float("inf"), float("nan")])
def test_a_base_that_is_no_time_is_told_and_left_out(base: object) -> None:
    result = read(trace(cpu_op(ts=1), cpu_op(ts=2), baseTimeNanoseconds=base))
    assert [one.start for one in seen(result)] == [1000, 2000]
    assert reasons(result) == {"unusable_base_time": 1}


@pytest.mark.parametrize(
    "text", ["null", '"noon"', "[]", "NaN", "-Infinity", "1e300", "1" * 40, '"1e99999999"']
)
def test_an_event_without_a_usable_time_is_told_and_costs_only_itself(text: str) -> None:
    result = read(with_texts(event("1"), event(text), event("2.5"), LAST))
    assert [one.start for one in seen(result)] == [1000, 2500, 0]
    assert reasons(result) == {"not_an_event": 1}


@pytest.mark.parametrize("text", ["-5", "1e17", "18446744073709551", "NaN", "Infinity", '"long"', "null"])
def test_a_duration_that_is_none_leaves_the_event_unfinished(text: str) -> None:
    result = read(with_texts(event("1", "3"), event("2", text), LAST))
    assert [one.duration for one in seen(result)] == [3000, UNKNOWN, 1000]
    assert reasons(result) == {"unusable_duration": 1}


def test_an_instant_needs_no_duration() -> None:
    result = read(trace(instant("now", 3), slice_("cpu_op", "op", 4), instant("then", 5)))
    assert [one.duration for one in seen(result)] == [0, 1000, 0]
    assert reasons(result) == {}


def test_spans_of_the_profiler_do_not_stretch_the_time_of_the_file() -> None:
    result = read(
        trace(
            slice_("Trace", "PyTorch Profiler (0)", 0, 900, pid="Spans", tid="PyTorch Profiler"),
            cpu_op(ts=100, dur=50),
            slice_("overhead", "Buffer Flush", 700, 9, pid=-1, tid=0),
        )
    )
    assert (result.source.start_ns, result.source.end_ns) == (100_000, 150_000)


def test_decimals_beyond_nanoseconds_are_rounded_not_cut() -> None:
    text = "1689360788493697.1239"
    assert starts(with_texts(event(text), LAST)) == [round(Decimal(text) * 1000)]


@pytest.mark.parametrize("ph", ["X", "i", "B", "b", "C", "s"])
@pytest.mark.parametrize("ts", ["", '"ts": null, ', '"ts": "noon", ', '"ts": 1e300, '])
@pytest.mark.parametrize("first", ["1", "1700000000000000.5"])
def test_nothing_but_metadata_goes_without_a_time(ph: str, ts: str, first: str) -> None:
    timeless = f'{{"ph": "{ph}", "name": "x", "pid": 1, "tid": 1, {ts}"id": 1, "args": {{"value": 1}}}}'
    result = read(with_texts(event(first), timeless, LAST))
    assert [one.name for one in seen(result)] == ["op", "last"]
    assert reasons(result) == {"not_an_event": 1}
    assert len(result.counters) == 0
