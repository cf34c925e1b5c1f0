"""Communications that nodes of execution traces describe."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.data import traces
from builders.execution_trace import (
    FLAT,
    NEWEST,
    VERSIONS,
    Node,
    as_source,
    groups_node,
    node,
    process_root,
    tensor,
    thread_root,
    trace,
)
from builders.trace import stated, statements
from tracelink._io.sources import Request, discover
from tracelink._model.communications import Statement
from tracelink._model.trace import RankTrace
from tracelink._run.processes import Processes
from tracelink.converters.execution_trace.reader import ExecutionTraceReader

GROUP = ["5", "dp"]
Input = tuple[Any, Any, str]


def read(*nodes: Node, version: str = NEWEST) -> RankTrace:
    return ExecutionTraceReader().read(
        as_source(trace(thread_root(2), *nodes, process_root(), version=version)), Processes()
    )


def alone(single: Node, version: str = NEWEST) -> Statement:
    """What a file with this one node says."""
    (statement,) = statements(read(single, version=version))
    return statement


def value(given: Any) -> Input:
    """An input that is no tensor."""
    kinds: dict[type, str] = {int: "Int", str: "String", bool: "Bool", list: "GenericList[]"}
    return given, [], kinds[type(given)]


def sized(*dims: int, kind: str = "float") -> Input:
    """A tensor of these dimensions."""
    return [7, 8, 0, 1, 4, "cuda:0"], list(dims), f"Tensor({kind})"


def listed(*tensors: Input) -> Input:
    """A list of tensors."""
    kinds = ",".join(kind for _, _, kind in tensors)
    return [held for held, _, _ in tensors], [dims for _, dims, _ in tensors], f"GenericList[{kinds}]"


def record(*inputs: Input, outputs: tuple[Input, ...] = (), **attributes: Any) -> Node:
    return node(5, "record_param_comms", handle=9, inputs=inputs, outputs=outputs, extra=attributes)


DESCRIBED = {
    "collective_name": "allreduce",
    "dtype": "BFloat16",
    "in_msg_nelems": 64,
    "out_msg_nelems": 64,
    "pg_name": "5",
    "pg_desc": "dp",
    "pg_size": 4,
}


def inputs_of(*, sequence: Any, group: Any, rank: int, operation: str, rest: tuple[Any, ...]) -> list[Input]:
    return [value(given) for given in (sequence, group, rank, operation, [], [], *rest)]


def all_reduce(version: str, *, tensors: bool = True) -> Node:
    """The same all-reduce as each schema records it."""
    leading = [listed(sized(8, 8, kind="c10::BFloat16"))] if tensors else []
    match version.split("-")[0]:
        case "1.0.1":
            group, rest, attributes = 94594108284448, (), {}
        case "1.0.2":
            group, rest, attributes = 94594108284448, (4,), {}
        case "1.0.3" | "1.0.4":
            group, rest, attributes = GROUP, (0, 2, 4), {}
        case _:
            group, rest, attributes = GROUP, (0, 2, 4), DESCRIBED
    inputs = inputs_of(sequence=33, group=group, rank=1, operation="allreduce", rest=rest)
    return record(*leading, *inputs, outputs=tuple(leading), **attributes)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_record_of_every_schema(version: str) -> None:
    named = version.split("-")[0] > "1.0.2"
    sized_group = version != FLAT
    assert alone(all_reduce(version), version) == Statement(
        "allreduce",
        "5" if named else "94594108284448",
        sequence=33,
        elements_in=64,
        elements_out=64,
        type="BFloat16",
        size=4 if sized_group else -1,
        members="[0, 2, 4, 6]" if named else "",
        shape="[[8,8]]",
    )


def test_a_record_without_tensors_has_everything_one_place_earlier() -> None:
    assert alone(all_reduce(NEWEST, tensors=False)) == Statement(
        "allreduce",
        "5",
        sequence=33,
        elements_in=64,
        elements_out=64,
        type="BFloat16",
        size=4,
        members="[0, 2, 4, 6]",
    )


@pytest.mark.parametrize("flag", [[], [True]], ids=["2.11", "2.12"])
@pytest.mark.parametrize(
    ("sequence", "expected"),
    [(33, (33, False)), ([33, False], (33, False)), ([33, True], (33, True)), ([33], (-1, False))],
)
def test_a_number_may_say_what_it_counts(sequence: Any, expected: tuple[int, bool], flag: list[bool]) -> None:
    inputs = inputs_of(sequence=sequence, group=GROUP, rank=0, operation="coalesced", rest=(0, 2, 4, *flag))
    said = alone(record(*inputs))
    assert (said.sequence, said.point_to_point) == expected


@pytest.mark.parametrize(
    ("sequence", "number"),
    [(33, -1), ([33, True], 33)],
    ids=["that of the next collective", "its own"],
)
def test_a_message_names_the_other_end(sequence: Any, number: int) -> None:
    inputs = inputs_of(sequence=sequence, group=GROUP, rank=3, operation="send", rest=(0, 2, 4))
    attributes = DESCRIBED | {"collective_name": "send"}
    assert alone(record(listed(sized(64)), *inputs, **attributes)) == Statement(
        "send",
        "5",
        sequence=number,
        point_to_point=True,
        target=3,
        elements_in=64,
        elements_out=64,
        type="BFloat16",
        size=4,
        members="[0, 2, 4, 6]",
        shape="[[64]]",
    )


@pytest.mark.parametrize(("attributes", "root"), [(DESCRIBED, 1), ({}, -1)], ids=["1.1.0", "before"])
def test_the_rank_of_a_broadcast_is_its_root_since_1_1_0(attributes: dict[str, Any], root: int) -> None:
    inputs = inputs_of(sequence=33, group=GROUP, rank=1, operation="broadcast", rest=(0, 2, 4))
    assert alone(record(listed(sized(64)), *inputs, **attributes)).source == root


@pytest.mark.parametrize(
    ("group", "rest"),
    [(0, ()), (["", ""], (-1, -1, 1))],
    ids=["1.0.1", "1.1.0"],
)
def test_a_wait_says_only_whom_it_waits_for(group: Any, rest: tuple[int, ...]) -> None:
    inputs = inputs_of(sequence=141, group=group, rank=1, operation="wait", rest=rest)
    attributes = {"collective_name": "wait", "dtype": "Byte", "in_msg_nelems": 0, "pg_size": 1}
    assert alone(record(*inputs, **attributes)) == Statement("wait", sequence=141)


@pytest.mark.parametrize(("start", "stride"), [(-1, -1), (0, 0), (0, -1)])
def test_a_group_of_uneven_ranks_does_not_list_them(start: int, stride: int) -> None:
    inputs = inputs_of(sequence=3, group=GROUP, rank=1, operation="allreduce", rest=(start, stride, 4))
    said = alone(record(*inputs))
    assert (said.members, said.size) == ("", 4)


def test_uneven_parts_are_counted_as_given_and_as_got() -> None:
    inputs = inputs_of(sequence=147, group=94594108284448, rank=0, operation="all_to_allv", rest=())
    given, got = sized(3392, kind="long int"), sized(768, kind="long int")
    assert alone(record(given, *inputs, outputs=(got,)), FLAT) == Statement(
        "all_to_allv",
        "94594108284448",
        sequence=147,
        elements_in=3392,
        elements_out=768,
        type="Long",
        shape="[[3392]]",
    )


OBJECT: Input = ("<Object>", [], "Object")


@pytest.mark.parametrize(
    ("name", "inputs", "expected"),
    [
        (
            "c10d::allreduce_",
            [listed(sized(8), sized(2, 2)), OBJECT, OBJECT],
            Statement("c10d::allreduce_", elements_in=12, elements_out=12, type="Float", shape="[[8],[2,2]]"),
        ),
        (
            "c10d::allgather_",
            [
                ([[1, 2]], [[[8], [8]]], "GenericList[GenericList[]]"),
                listed(sized(8, kind="c10::Half")),
                OBJECT,
            ],
            Statement("c10d::allgather_", elements_in=8, elements_out=16, type="Half", shape="[[8]]"),
        ),
        (
            "c10d::_reduce_scatter_base_",
            [sized(16), sized(64), OBJECT],
            Statement(
                "c10d::_reduce_scatter_base_", elements_in=64, elements_out=16, type="Float", shape="[[64]]"
            ),
        ),
        (
            "c10d::broadcast_",
            [listed(sized(7)), OBJECT, value(2), value(0), value(True), value(-1)],
            Statement(
                "c10d::broadcast_", source=2, elements_in=7, elements_out=7, type="Float", shape="[[7]]"
            ),
        ),
        (
            "c10d::send",
            [listed(sized(10)), OBJECT, value(1), value(5)],
            Statement(
                "c10d::send",
                point_to_point=True,
                target=1,
                tag=5,
                elements_in=10,
                elements_out=10,
                type="Float",
                shape="[[10]]",
            ),
        ),
        (
            "c10d::recv_any_source_",
            [listed(sized(10)), OBJECT, value(5)],
            Statement(
                "c10d::recv_any_source_",
                point_to_point=True,
                tag=5,
                elements_in=10,
                elements_out=10,
                type="Float",
                shape="[[10]]",
            ),
        ),
        ("c10d::barrier", [sized(1, kind="unsigned char"), OBJECT], Statement("c10d::barrier")),
        (
            "_c10d_functional::all_reduce",
            [sized(5), value("sum"), value("7")],
            Statement("_c10d_functional::all_reduce", "7", elements_in=5, type="Float", shape="[[5]]"),
        ),
        (
            "gloo:all_reduce",
            [sized()],
            Statement("gloo:all_reduce", elements_in=1, type="Float", shape="[[]]"),
        ),
        ("gloo:barrier", [], Statement("gloo:barrier")),
        (
            "nccl:recv 2<-1",
            [sized(4)],
            Statement(
                "nccl:recv 2<-1",
                point_to_point=True,
                source=1,
                target=2,
                elements_in=4,
                type="Float",
                shape="[[4]]",
            ),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("version", [FLAT, NEWEST])
def test_operators_and_annotations(name: str, inputs: list[Input], expected: Statement, version: str) -> None:
    assert alone(node(5, name, inputs=inputs), version) == expected


def test_other_nodes_say_nothing() -> None:
    listing = groups_node(3, {"pg_name": "0", "ranks": [0, 1]})
    result = read(listing, node(5, "aten::add", inputs=[tensor()]), node(6, "## nccl: forward ##"))
    assert (statements(result), [(group.name, group.size) for group in result.groups]) == ([], [("0", 2)])


def test_rows_are_those_of_the_nodes_wherever_what_is_none_stands() -> None:
    text = trace(thread_root(2), all_reduce(NEWEST), node(6, "c10d::barrier"), process_root())
    broken = text.replace(b'{"id": 2,', b'null, {"id": 2,')
    result = ExecutionTraceReader().read(as_source(broken), Processes())
    names = result.strings.texts()
    told = [(names[result.events.name[row]], said.operation) for row, said in stated(result)]
    assert told == [("record_param_comms", "allreduce"), ("c10d::barrier", "c10d::barrier")]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2**65) | st.text(max_size=4) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=8,
)


@given(
    st.sampled_from(["record_param_comms", "c10d::send", "c10d::allgather_", "gloo:send"]),
    st.lists(st.tuples(JSON, JSON, st.sampled_from(["Int", "Tensor(float)", "GenericList[]"])), max_size=9),
    st.dictionaries(st.sampled_from(sorted(DESCRIBED)), JSON),
)
def test_nodes_of_any_content_are_read(name: str, inputs: list[Input], attributes: dict[str, Any]) -> None:
    result = read(node(5, name, inputs=inputs, extra=attributes))
    assert [row for row, _ in stated(result)] == [1]
    assert len(result.events) == 3


def of_file(path: str) -> RankTrace:
    (source,) = discover(Request([(str(traces(path)), "")])).sources
    return ExecutionTraceReader().read(source, Processes())


def test_a_gloo_job() -> None:
    result = of_file("cpu_job/et_0.json.gz")
    said = Counter(statement.operation for statement in statements(result))
    assert (sum(said.values()), said["c10d::send"], said["gloo:recv"]) == (24, 2, 2)
    assert {(s.target, s.tag, s.elements_in) for s in statements(result) if s.operation == "c10d::send"} == {
        (1, 0, 32)
    }
    assert [(group.name, group.size, len(group.ranks)) for group in result.groups] == [
        ("0", 2, 0),
        ("1", 2, 0),
    ]


@pytest.mark.parametrize("rank", range(8))
def test_eight_ranks_number_their_collectives_alike(rank: int) -> None:
    result = of_file(f"cluster/et_{rank}.json")
    said = [s for s in statements(result) if s.sequence >= 0 and s.operation != "wait"]
    assert [(s.sequence, s.operation) for s in said if s.group == "0"] == [
        *((1, "broadcast"), (2, "barrier"), (3, "broadcast"), (4, "barrier"))
    ]
    assert [(group.name == "0", group.size, len(group.ranks)) for group in result.groups] == [
        *((True, 8, 0), (False, 2, 2), (False, 2, 2), (False, 2, 2))
    ]


def test_an_nccl_job_of_two_ranks() -> None:
    said = statements(of_file("gpu_pair/et_0.json.gz"))
    recorded = Counter((s.operation, s.group, s.members, s.source) for s in said if s.sequence >= 0)
    assert recorded == {
        ("allreduce", "0", "[0, 1]", -1): 6,
        ("allreduce", "1", "[0, 1]", -1): 6,
        ("_allgather_base", "1", "[0, 1]", -1): 2,
        ("wait", "", "", -1): 10,
    }
