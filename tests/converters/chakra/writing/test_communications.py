"""Communication as nodes: types, sizes, groups, peers, and the shared order."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders.chakra import only, traces
from builders.job import JobBuilder
from tracelink._model.columns import NO_TIME, UNKNOWN, Int64s
from tracelink._model.communications import Evidence
from tracelink._model.events import EventKind, Key, Relation, TrackKind
from tracelink.converters.chakra.schema import CollectiveType, NodeType
from tracelink.converters.chakra.writing.communications import Communication, consumer_sizes, usable


def column(values: list[int]) -> Int64s:
    return np.array(values, np.int64)


US = 1000


def test_a_kernel_of_a_collective_says_what_it_is(tmp_path: Path) -> None:
    job = JobBuilder(unit=US)
    rows = [job.work("ncclDevKernel_Generic", 0, 5, rank=rank, device=0) for rank in (0, 1)]
    world = job.group(0, 1, name="0", description="default_pg")
    job.together(
        world, *rows, operation="reduce", root=1, sequence=9, type=job.texts["Float"], elements=(64, 64)
    )
    for trace in traces(job.build(), tmp_path).values():
        assert trace.type("ncclDevKernel_Generic") == NodeType.COMM_COLL
        said = trace.attributes_of("ncclDevKernel_Generic")
        assert {name: said[name] for name in said if name not in ("start_ns", "duration_ns", "stream")} == {
            "is_cpu_op": False,
            "cat": "kernel",
            "device": 0,
            "comm_type": CollectiveType.REDUCE,
            "comm_size": 64,
            "root": 1,
            "bytes_in": 64,
            "bytes_out": 64,
            "collective_id": 0,
            "collective_seq": 9,
            "collective": "reduce",
            "dtype": "Float",
            "pg_name": "0",
            "group_name": "0",
        }


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        ("all_reduce", CollectiveType.ALL_REDUCE),
        ("reduce", CollectiveType.REDUCE),
        ("all_gather", CollectiveType.ALL_GATHER),
        ("gather", CollectiveType.GATHER),
        ("scatter", CollectiveType.SCATTER),
        ("broadcast", CollectiveType.BROADCAST),
        ("all_to_all", CollectiveType.ALL_TO_ALL),
        ("reduce_scatter", CollectiveType.REDUCE_SCATTER),
        ("barrier", CollectiveType.BARRIER),
    ],
)
def test_every_operation_has_its_type(operation: str, kind: CollectiveType, tmp_path: Path) -> None:
    job = JobBuilder(unit=US)
    row = job.work("kernel", 0, 5)
    job.together(job.group(0, 1, name="0"), row, operation=operation, elements=(64, 64))
    assert only(job.build(), tmp_path).attributes_of("kernel")["comm_type"] == kind


def test_what_cannot_be_said_as_communication_is_computation_and_counted(tmp_path: Path) -> None:
    job = JobBuilder(unit=US)
    rows = [job.work(name, at, at + 5) for at, name in enumerate(("no size", "no type", "good"))]
    group = job.group(0, 1, name="0")
    job.together(group, rows[0], elements=(-1, -1))
    job.together(group, rows[1], operation="coalesced", elements=(64, 64))
    job.together(group, rows[2], elements=(64, 64))
    trace = only(job.build(), tmp_path)
    assert [trace.type(name) for name in ("no size", "no type", "good")] == [
        NodeType.COMP,
        NodeType.COMP,
        NodeType.COMM_COLL,
    ]
    assert trace.reasons["not_communication"] == 1
    assert trace.output is not None
    assert sum(finding.reason == "not_communication" for finding in trace.output.findings) == 2


class TestMessages:
    def test_both_ends_say_peer_tag_and_bytes(self, tmp_path: Path) -> None:
        job = JobBuilder(unit=US)
        send, receive = job.work("send", 0, 5), job.work("receive", 1, 6, rank=3)
        job.message(job.group(0, 3, name="0"), send, receive, bytes=256, tag=4)
        found = traces(job.build(), tmp_path)
        names = ("comm_src", "comm_dst", "comm_tag", "comm_size")
        assert found[0].type("send") == NodeType.COMM_SEND
        assert found[3].type("receive") == NodeType.COMM_RECV
        for trace, name in ((found[0], "send"), (found[3], "receive")):
            said = trace.attributes_of(name)
            assert [said[attribute] for attribute in names] == [0, 3, 4, 256]

    def test_a_tag_that_is_not_known_is_0_on_both_ends(self, tmp_path: Path) -> None:
        job = JobBuilder(unit=US)
        send, receive = job.work("send", 0, 5), job.work("receive", 1, 6, rank=1)
        job.message(job.group(0, 1, name="0"), send, receive, bytes=8)
        found = traces(job.build(), tmp_path)
        assert (
            found[0].attributes_of("send")["comm_tag"],
            found[1].attributes_of("receive")["comm_tag"],
        ) == (0, 0)

    def test_a_message_with_an_unknown_peer_is_computation(self, tmp_path: Path) -> None:
        job = JobBuilder(unit=US)
        send = job.work("send", 0, 5)
        job.message(job.group(0, 1, name="0"), send, send, bytes=8, target=-1)
        job.messages[-1]["receive"] = -1
        trace = only(job.build(), tmp_path)
        assert trace.type("send") == NodeType.COMP
        assert trace.reasons["not_communication"] == 1

    def test_messages_that_share_a_kernel_are_nodes_with_the_same_dependencies(self, tmp_path: Path) -> None:
        job = JobBuilder(unit=US)
        job.work("before", 0, 5)
        batch = job.work("batch", 10, 15)
        job.work("after", 20, 25)
        other = job.work("batch", 10, 15, rank=1)
        group = job.group(0, 1, name="0")
        job.message(group, batch, other, bytes=8)
        job.message(group, other, batch, bytes=16)
        job.message(group, batch, other, bytes=32)
        found = traces(job.build(), tmp_path)
        assert found[0].communication() == [
            ("COMM_SEND", -1, 8, "0"),
            ("COMM_RECV", -1, 16, "0"),
            ("COMM_SEND", -1, 32, "0"),
        ]
        nodes = found[0].decoded.nodes
        rows = [row for row, name in enumerate(found[0].names) if name == "batch"]
        assert [nodes.data[row] for row in rows] == [[1], [1], [1]]
        assert found[0].waits("after") == ["batch"] * 3
        assert [kind for kind, *_ in found[1].communication()] == ["COMM_RECV", "COMM_SEND", "COMM_RECV"]


class TestOneOrder:
    """Ranks whose communication is in different orders wait for each other for ever."""

    def two_groups(self, **said: Any) -> JobBuilder:
        """Rank 1 begins what it does with 0 before what it does with 2, and its clock says otherwise."""
        job = JobBuilder(unit=US)
        first, second = job.work("first", 10, 15), job.work("second", 30, 35)
        swapped = job.work("second", 8, 13, rank=1), job.work("first", 20, 25, rank=1)
        group = job.group(0, 1, name="0")
        job.together(group, first, swapped[1], **said, elements=(64, 64))
        job.together(group, second, swapped[0], **said, elements=(64, 64))
        return job

    @pytest.mark.parametrize("variant", ["full", "astra-sim"])
    def test_collectives_of_a_group_are_in_one_order_on_all_ranks(self, variant: str, tmp_path: Path) -> None:
        found = traces(self.two_groups().build(), tmp_path, variant=variant)
        for trace in found.values():
            assert trace.names == ["first", "second"]
            assert trace.waits("second") == ["first"]

    def test_for_astra_sim_all_communication_is_in_one_order(self, tmp_path: Path) -> None:
        job = JobBuilder(unit=US)
        starts = {0: (10, 20, 30), 1: (11, 29, 19)}
        rows = {
            rank: [job.work(name, at, at + 5, rank=rank) for name, at in zip("abc", times, strict=True)]
            for rank, times in starts.items()
        }
        several = [job.group(0, 1, name=name) for name in ("1", "2")]
        for place in range(3):
            job.together(several[place % 2], rows[0][place], rows[1][place], elements=(64, 64))
        found = traces(job.build(), tmp_path, variant="astra-sim")
        order = [trace.names for trace in found.values()]
        assert order[0] == order[1]
        for trace in found.values():
            for before, after in pairwise(trace.names):
                assert before in trace.waits(after)

    def test_collectives_that_nobody_timed_are_in_the_order_of_the_programs(self, tmp_path: Path) -> None:
        """Of three groups, in the execution traces alone: a, b, c on one rank and b, c, a2 on another."""
        builder = JobBuilder()
        programs = {0: ("a", "b", "a2"), 1: ("a", "b", "c", "a2"), 2: ("b", "c")}
        rows = {}
        for rank, names in programs.items():
            track = builder.track(TrackKind.NODES, rank)
            for number, name in enumerate(names):
                keys = {Key.NODE_ID: number + 2, Key.NODE_PARENT: 1, Key.LOGICAL_THREAD: 1}
                rows[rank, name] = builder.add(track, name, None, -1, EventKind.NODE, b"{}", dict(keys))
        groups_of = {"a": builder.group(0, 1, name="5"), "b": builder.group(0, 1, 2, name="6")}
        groups_of |= {"a2": groups_of["a"], "c": builder.group(1, 2, name="7")}
        for name in ("a", "a2", "b", "c"):
            mine = [rank for rank, names in programs.items() if name in names]
            builder.together(
                groups_of[name],
                *(rows[rank, name] for rank in mine),
                as_what="node",
                start=NO_TIME,
                skew=-1,
            )
            for part in builder.participations[-len(mine) :]:
                part |= {"start": NO_TIME, "end": NO_TIME, "wait": -1, "bytes_in": 64}
        found = traces(builder.build(), tmp_path, variant="astra-sim")
        assert {rank: tuple(trace.names) for rank, trace in found.items()} == programs


class TestOnThreads:
    """Gloo and other CPU backends: the work runs on a thread of its own."""

    @pytest.fixture
    def gloo(self) -> JobBuilder:
        builder = JobBuilder()
        for rank in (0, 1):
            main = builder.track(rank=rank, identity="1")
            worker = builder.track(rank=rank, identity="2")
            asked = builder.add(main, f"c10d::allreduce_ {rank}", 0, 5 * US)
            builder.add(main, f"waited {rank}", 40 * US, 5 * US)
            ran = builder.add(worker, f"gloo:all_reduce {rank}", 10 * US, 25 * US, EventKind.ANNOTATION)
            builder.add(worker, f"copy {rank}", 12 * US, 5 * US)
            builder.edge(ran, Relation.CALLS, ran + 1)
            builder.participations.append({"asked": asked, "ran": ran})
        ends = [(part["asked"], part["ran"]) for part in builder.participations]
        builder.participations.clear()
        builder.together(builder.group(0, 1, name="0"), *(ran for _, ran in ends), as_what="annotation")
        for part, (asked, _) in zip(builder.participations, ends, strict=True):
            part |= {"operator": asked, "bytes_in": 400, "bytes_out": 400}
        return builder

    def test_the_annotation_is_the_communication_after_the_operator_that_asked(
        self, gloo: JobBuilder, tmp_path: Path
    ) -> None:
        for rank, trace in traces(gloo.build(), tmp_path).items():
            name = f"gloo:all_reduce {rank}"
            assert trace.type(name) == NodeType.COMM_COLL
            assert trace.attributes_of(name)["is_cpu_op"] is False
            assert trace.waits(name) == [f"c10d::allreduce_ {rank}"]
            assert trace.type(f"c10d::allreduce_ {rank}") == NodeType.COMP
            assert trace.inside(f"copy {rank}") == [name]

    def test_the_thread_goes_on_after_it(self, gloo: JobBuilder, tmp_path: Path) -> None:
        for rank, trace in traces(gloo.build(), tmp_path).items():
            assert f"gloo:all_reduce {rank}" in trace.waits(f"waited {rank}")

    def test_for_astra_sim_only_the_communication_is_left(self, gloo: JobBuilder, tmp_path: Path) -> None:
        for rank, trace in traces(gloo.build(), tmp_path, variant="astra-sim").items():
            assert trace.names == [f"gloo:all_reduce {rank}"]
            assert trace.communication() == [("COMM_COLL", 0, 400, "0")]


class TestWhichEvent:
    """A communication has the node of its kernel, else annotation, operator, node of the trace, or entry."""

    def rank(self, **events: int) -> JobBuilder:
        builder = JobBuilder()
        thread, stream = builder.track(), builder.track(TrackKind.STREAM, identity="7")
        nodes, entries = builder.track(TrackKind.NODES), builder.track(TrackKind.COMMUNICATOR)
        keys = {Key.NODE_ID: 5, Key.LOGICAL_THREAD: 1}
        rows = {
            "operator": builder.add(thread, "operator", 0, 10),
            "annotation": builder.add(thread, "annotation", 20, 10, EventKind.ANNOTATION),
            "kernel": builder.add(stream, "kernel", 40, 10, EventKind.KERNEL),
            "node": builder.add(nodes, "node", None, -1, EventKind.NODE, b"{}", dict(keys)),
            "record": builder.add(entries, "record", 0, 10, EventKind.RECORD),
        }
        group = builder.group(0, 1, name="0")
        builder.together(group, rows["operator"], as_what="operator")
        part = builder.participations[-1] | {"bytes_in": 8, "operator": -1}
        builder.participations[-1] = part | {name: rows[name] for name in events}
        return builder

    @pytest.mark.parametrize(
        ("known", "chosen"),
        [
            (("operator", "annotation", "kernel", "node", "record"), "kernel"),
            (("operator", "annotation", "node", "record"), "annotation"),
            (("operator", "node", "record"), "operator"),
            (("node", "record"), "node"),
            (("node",), "node"),
        ],
    )
    def test_the_one_that_is_nearest_to_the_work(
        self, known: tuple[str, ...], chosen: str, tmp_path: Path
    ) -> None:
        trace = only(self.rank(**dict.fromkeys(known, 1)).build(), tmp_path)
        assert [name for name in trace.names if trace.type(name) == NodeType.COMM_COLL] == [chosen]

    def test_what_only_the_recorder_tells_of_beside_a_profile_is_counted(self, tmp_path: Path) -> None:
        trace = only(self.rank(record=1).build(), tmp_path)
        assert trace.communication() == []
        assert trace.reasons["outside_profile"] == 1

    def test_where_times_are_those_of_the_recorder_the_operator_still_is_the_node(
        self, tmp_path: Path
    ) -> None:
        builder = self.rank(operator=1, record=1)
        builder.participations[-1]["evidence"] = Evidence.RECORDER
        trace = only(builder.build(), tmp_path)
        assert trace.type("operator") == NodeType.COMM_COLL


def test_messages_of_execution_traces_alone(tmp_path: Path) -> None:
    builder = JobBuilder()
    keys = {Key.NODE_ID: 5, Key.LOGICAL_THREAD: 1}
    send, receive = (
        builder.add(builder.track(TrackKind.NODES, rank), name, None, -1, EventKind.NODE, b"{}", dict(keys))
        for rank, name in enumerate(("send", "receive"))
    )
    builder.message(builder.group(0, 1, name="0"), send, receive, bytes=16, sent=NO_TIME, received=NO_TIME)
    builder.messages[-1] |= {"send": -1, "receive": -1, "send_node": send, "receive_node": receive}
    found = traces(builder.build(), tmp_path)
    assert found[0].communication() == [("COMM_SEND", -1, 16, "0")]
    assert found[1].communication() == [("COMM_RECV", -1, 16, "0")]


def test_communication_that_lacks_several_things_is_counted_once() -> None:
    told = Communication.of(
        4,
        type=np.array(
            [NodeType.COMM_COLL, NodeType.COMM_COLL, NodeType.COMM_SEND, NodeType.COMM_COLL], np.uint8
        ),
        collective=column([0, 1, -1, 2]),
        collective_type=column([-1, 0, -1, 0]),
        size=column([-1, -1, 8, 8]),
        source=column([-1, -1, 0, -1]),
    )
    kept, counts = usable(told)
    assert kept.collective.tolist() == [2]
    assert counts == {"operation": 1, "size": 1, "peer": 1}


Said = Mapping[int, tuple[int, int]]
"""For each rank how many bytes it gives and gets."""


def sizes(operation: str, said: Said, members: int | None = None) -> list[int]:
    """The size for each rank."""
    builder = JobBuilder()
    group = builder.group(*range(members or len(said)), name="0")
    builder.collective(group, dict.fromkeys(said, (0, 10)), operation)
    for part in builder.participations:
        part["bytes_in"], part["bytes_out"] = said[part["rank"]]
    return consumer_sizes(builder.job()).tolist()


@pytest.mark.parametrize(
    ("operation", "given", "gotten", "size"),
    [
        ("all_reduce", 64, 64, 64),
        ("reduce", 64, 64, 64),
        ("broadcast", 64, 64, 64),
        ("all_gather", 16, 64, 16),
        ("gather", 16, 64, 16),
        ("reduce_scatter", 64, 16, 64),
        ("scatter", 64, 16, 16),
        ("all_to_all", 64, 64, 64),
        ("barrier", 0, 0, 0),
        ("all_reduce", 0, 0, 0),
    ],
)
def test_what_one_rank_puts_in(operation: str, given: int, gotten: int, size: int) -> None:
    assert sizes(operation, dict.fromkeys(range(4), (given, gotten))) == [size] * 4


@pytest.mark.parametrize(
    ("operation", "given", "gotten", "size"),
    [
        ("all_gather", UNKNOWN, 64, 16),
        ("reduce_scatter", UNKNOWN, 16, 64),
        ("all_to_all", UNKNOWN, 64, 64),
        ("all_reduce", UNKNOWN, 64, 64),
        ("broadcast", 64, UNKNOWN, 64),
        ("gather", UNKNOWN, 64, UNKNOWN),
        ("scatter", 64, UNKNOWN, UNKNOWN),
        ("all_gather", UNKNOWN, UNKNOWN, UNKNOWN),
        ("barrier", UNKNOWN, UNKNOWN, 0),
        ("_object_of_another_kind", UNKNOWN, 64, UNKNOWN),
    ],
)
def test_where_only_one_side_is_recorded(operation: str, given: int, gotten: int, size: int) -> None:
    assert sizes(operation, dict.fromkeys(range(4), (given, gotten))) == [size] * 4


@pytest.mark.parametrize("operation", ["all_to_all", "all_gather", "reduce_scatter", "gather"])
def test_of_uneven_parts_the_most_counts_for_all(operation: str) -> None:
    said = {0: (16, 64), 1: (48, 64), 2: (0, 64), 3: (32, 64)}
    assert sizes(operation, said) == [48] * 4


def test_of_uneven_parts_to_scatter_the_most_that_anybody_gets() -> None:
    assert sizes("scatter", {0: (64, 16), 1: (UNKNOWN, 40), 2: (UNKNOWN, 8)}) == [40] * 3


def test_ranks_that_do_not_say_it_have_what_others_say() -> None:
    assert sizes("all_reduce", {0: (64, 64), 1: (UNKNOWN, UNKNOWN)}) == [64, 64]


def test_a_mismatch_stays_one() -> None:
    assert sizes("all_reduce", {0: (64, 64), 1: (128, 128)}) == [64, 128]


def test_ranks_without_files_count_as_members() -> None:
    assert sizes("all_gather", {0: (UNKNOWN, 64)}, members=8) == [8]


def test_of_several_collectives_each_has_its_own() -> None:
    builder = JobBuilder()
    for name, ranks in (("0", (0, 1)), ("1", (1, 2))):
        builder.collective(builder.group(*ranks, name=name), dict.fromkeys(ranks, (0, 1)), "all_to_all")
    for number, part in enumerate(builder.participations):
        part["bytes_in"] = 10 * (number + 1)
    assert consumer_sizes(builder.job()).tolist() == [20, 20, 40, 40]


def test_nothing() -> None:
    assert consumer_sizes(JobBuilder().job()).tolist() == []
