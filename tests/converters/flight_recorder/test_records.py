"""Communications of the entries of dumps."""

from __future__ import annotations

import math
import pickle
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.data import foreign, traces
from builders.recorder import as_json, as_source, collective, dump, pickled, process_group
from builders.trace import stated, statements
from tracelink._io.sources import Request, discover
from tracelink._model.communications import Statement
from tracelink._model.findings import Finding, Severity
from tracelink._model.trace import RankTrace
from tracelink._run.processes import Processes
from tracelink.converters.flight_recorder.reader import FlightRecorderReader

BARRED = {"input_sizes": [], "input_dtypes": [], "output_sizes": [], "output_dtypes": []}
UNREADABLE = "unreadable_sizes"


def read(data: bytes) -> RankTrace:
    return FlightRecorderReader().read(as_source(data), Processes())


def statements_of(*entries: Any, **top_level: Any) -> list[Statement]:
    """The statements of a dump of these entries; groups are described only if they are given."""
    return statements(read(pickled(dump(*entries, **{"pg_config": {}} | top_level))))


def unreadable(result: RankTrace) -> int:
    """Number of entries reported for invalid sizes."""
    return sum(finding.count for finding in result.findings if finding.reason == UNREADABLE)


def test_an_entry_says_everything() -> None:
    entry = collective(
        "nccl:_all_gather_base",
        4,
        group=("5", "dp"),
        input_sizes=[[16, 2]],
        input_dtypes=["BFloat16"],
        output_sizes=[[64, 2]],
        output_dtypes=["BFloat16"],
    )
    assert statements_of(entry, pg_config=process_group("5", [0, 2, 4, 6])) == [
        Statement(
            "nccl:_all_gather_base",
            "5",
            sequence=4,
            elements_in=32,
            elements_out=128,
            type="BFloat16",
            size=4,
        )
    ]


def test_shapes_tell_operations_apart_where_other_sources_name_no_group() -> None:
    shapes = [[[32, 64]], [[]], [[2], [3, 4]]]
    entries = [collective("gloo:all_reduce", n, input_sizes=shape) for n, shape in enumerate(shapes, 1)]
    said = statements_of(*entries, collective("nccl:all_reduce", 4))
    assert [statement.shape for statement in said] == ["[[32,64]]", "[[]]", "[[2],[3,4]]", ""]
    assert [statement.elements_in for statement in said] == [2048, 1, 14, 1024]


@pytest.mark.parametrize(
    ("name", "fields", "expected"),
    [
        ("nccl:send 1->2", {"is_p2p": True}, {"source": 1, "target": 2, "point_to_point": True}),
        ("nccl:recv 3<-0", {"is_p2p": True}, {"source": 0, "target": 3, "point_to_point": True}),
        ("nccl2:recv 3<-?", {"is_p2p": True}, {"point_to_point": True}),
        ("nccl:send 1->2", {"is_p2p": False}, {"source": 1, "target": 2, "point_to_point": True}),
        ("nccl:coalesced", {"is_p2p": True}, {"point_to_point": True}),
    ],
)
def test_a_message_has_its_own_number(name: str, fields: dict[str, Any], expected: dict[str, Any]) -> None:
    entry = collective(name, 9, p2p_seq_id=31, **fields, **BARRED)
    assert statements_of(entry) == [Statement(name, "0", sequence=31, **expected)]


def test_what_closes_a_group_of_collectives_has_their_number() -> None:
    member = collective("nccl:all_reduce", 9, p2p_seq_id=31)
    closing = collective("nccl:coalesced", 9, p2p_seq_id=31, **BARRED)
    assert statements_of(member, closing)[1] == Statement("nccl:coalesced", "0", sequence=9)


def test_what_closes_a_group_that_is_forgotten_is_a_message_if_there_were_any() -> None:
    closing = collective("nccl:coalesced", 9, p2p_seq_id=31, **BARRED)
    assert statements_of(closing) == [Statement("nccl:coalesced", "0", sequence=31, point_to_point=True)]


def test_a_message_of_torch_2_3_has_no_number_of_its_own() -> None:
    entries = [
        {**entry, "seq_id": number, "pg_id": 0}
        for number, entry in enumerate(
            (collective("nccl:send 0->1", **BARRED), collective("nccl:all_reduce")), 7
        )
    ]
    for entry in entries:
        for field in ("collective_seq_id", "p2p_seq_id", "process_group", "is_p2p", "input_dtypes"):
            del entry[field]
    said = statements_of(*entries, version="1.4", pg_config={0: [0, 1]})
    assert said == [
        Statement("nccl:send 0->1", "0", point_to_point=True, source=0, target=1, size=2),
        Statement(
            "nccl:all_reduce", "0", sequence=8, elements_in=1024, elements_out=1024, type="Float", size=2
        ),
    ]


def test_json_says_the_same_as_a_pickle() -> None:
    content = dump(
        collective("gloo:all_reduce", 1), collective("nccl:send 0->1", 2, p2p_seq_id=1, is_p2p=True)
    )
    assert stated(read(as_json(content))) == stated(read(pickled(content)))


def test_the_type_is_that_of_what_is_read_else_of_what_is_written() -> None:
    types = [(["Half"], ["Float"]), ([], ["Long"]), ([], []), (["Byte", "Int"], [])]
    entries = [
        collective(sequence=number, input_dtypes=given, output_dtypes=got)
        for number, (given, got) in enumerate(types, 1)
    ]
    assert [statement.type for statement in statements_of(*entries)] == ["Half", "Long", "", "Byte"]


def test_rows_are_those_of_the_entries_that_are_left() -> None:
    entries = [collective(sequence=1), {"profiling_name": 7}, collective(sequence=3)]
    result = read(pickled(dump(*entries)))
    assert [(row, statement.sequence) for row, statement in stated(result)] == [(0, 1), (1, 3)]


def test_an_empty_dump_says_nothing() -> None:
    assert statements_of() == []


SIZES = st.lists(st.lists(st.integers(0, 9), max_size=3), max_size=4)
NO_SIZES = st.sampled_from([7, "64", [7], ["64"], [None], [["x"]], [[None]], [[-1]], [[[2]]], {"a": 1}, [{}]])


@given(st.lists(st.tuples(SIZES | NO_SIZES | st.none(), SIZES | NO_SIZES), max_size=12))
def test_elements_are_counted_over_all_tensors(sizes: list[tuple[Any, Any]]) -> None:
    def count(value: Any) -> int | None:
        if value is None:
            return -1
        if type(value) is not list or not all(
            type(dims) is list and all(type(dim) is int and dim >= 0 for dim in dims) for dims in value
        ):
            return None
        return sum(map(math.prod, value)) if value else -1

    entries = [
        collective("nccl:all_reduce", number, input_sizes=given, output_sizes=got)
        for number, (given, got) in enumerate(sizes, 1)
    ]
    result = read(as_json(dump(*entries)))
    counts = [(count(given), count(got)) for given, got in sizes]
    known = [tuple(-1 if number is None else number for number in pair) for pair in counts]
    assert [(said.elements_in, said.elements_out) for said in statements(result)] == known
    assert unreadable(result) == sum(None in pair for pair in counts)


def test_sizes_that_are_none_are_told() -> None:
    result = read(pickled(dump(collective(sequence=1), collective(sequence=2, output_sizes="none"))))
    assert [finding for finding in result.findings if finding.reason == UNREADABLE] == [
        Finding(
            Severity.WARNING,
            UNREADABLE,
            "1 entry has invalid tensor sizes, which are treated as unknown",
            1,
            "comm_lib_trace_rank_0",
        )
    ]


def test_sizes_beyond_all_numbers_are_none() -> None:
    result = read(pickled(dump(collective(sequence=1, input_sizes=[[2**40, 2**40]]), collective(sequence=2))))
    assert [statement.elements_in for statement in statements(result)] == [-1, 1024]
    assert unreadable(result) == 1


def test_one_list_that_stands_in_many_places_is_not_written_out() -> None:
    sizes = [[1] * 3000] * 3000
    entries = [collective("gloo:all_reduce", number, input_sizes=sizes) for number in range(1, 200)]
    result = read(pickle.dumps(dump(*entries)))
    assert {(statement.elements_in, statement.shape) for statement in statements(result)} == {(-1, "")}
    assert unreadable(result) == len(entries)


def of_files(path: str) -> list[RankTrace]:
    reader, engine = FlightRecorderReader(), Processes()
    sources = discover(Request([(str(traces(path)), "")])).sources
    return [reader.read(source, engine) for source in sources]


def test_a_gloo_job_says_the_same_on_all_ranks_of_a_group() -> None:
    said = [statements(trace) for trace in of_files("gloo/healthy")]
    world = [[s for s in rank if s.group == "0"] for rank in said]
    assert [len(rank) for rank in said] == [44] * 8
    assert all(rank == world[0] for rank in world)
    assert {s.size for s in world[0]} == {8}
    collectives = Counter((s.group, s.sequence) for rank in said for s in rank)
    assert {(group, count) for (group, _), count in collectives.items()} == {
        *(("0", 8), ("1", 2), ("2", 2), ("3", 2), ("4", 2), ("5", 4), ("6", 4))
    }


RECORDED = ("healthy8/dumps", "skip_hang/dumps_hang", "wrapped/dumps", "straggler/dumps_end")


@pytest.mark.parametrize(
    "case", ["gloo/never_joined/settled", "cpu_job/fr", *foreign(*(f"fr/{case}" for case in RECORDED))]
)
def test_every_entry_of_a_dump_is_told(case: str) -> None:
    for result in of_files(case):
        said = statements(result)
        assert len(said) == len(result.events) > 0
        assert all(s.group and s.sequence > 0 and not s.point_to_point for s in said)
        assert unreadable(result) == 0
        assert all(
            max(s.elements_in, s.elements_out) > 0 and s.type for s in said if s.operation != "gloo:barrier"
        )


def test_only_the_root_gives_to_a_scatter() -> None:
    parts = (collective("gloo:scatter", input_sizes=sizes, output_sizes=[[4]]) for sizes in ([[4]] * 8, []))
    given = [[s.elements_in for s in statements(read(pickled(dump(part))))] for part in parts]
    assert given == [[32], [-1]]
