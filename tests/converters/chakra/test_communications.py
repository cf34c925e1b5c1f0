"""Package."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from builders.chakra import Job
from builders.chakra_written import groups, only, traces
from builders.graph import GraphBuilder
from builders.job import JobBuilder
from tracelink.converters.chakra.communications import GroupNumbers, everybody, group_numbers
from tracelink.converters.chakra.schema import SIMULATED, CollectiveType, NodeType
from tracelink.model.columns import NO_TIME
from tracelink.model.communications import Evidence
from tracelink.model.events import EventKind, Key, Relation, TrackKind
from tracelink.model.trace import ProcessGroup

# What ranks do together, as nodes: types, bytes, groups, peers, and one order for all who take part.


US = 1000


class Together:
    """Ranks that communicate: on rank after rank one kernel for each communication, or one for several."""

    def __init__(self, *ranks: int) -> None:
        self.builder = GraphBuilder()
        self.streams = {
            rank: self.builder.track(TrackKind.STREAM, rank, "0", str(20 + rank)) for rank in ranks
        }

    def kernel(self, rank: int, name: str, start: int = 0, duration: int = 5) -> int:
        """Work of a rank; that of one rank must be given before that of the next. Times are microseconds."""
        return self.builder.add(self.streams[rank], name, start * US, duration * US, EventKind.KERNEL)

    def collective(
        self, group: int, *rows: int, given: int = 64, gotten: int = 64, as_what: str = "kernel", **said: Any
    ) -> None:
        self.builder.together(group, *rows, as_what=as_what, **said)
        for part in self.builder.participations[-len(rows) :]:
            part |= {"bytes_in": given, "bytes_out": gotten}

    def build(self) -> Any:
        return self.builder.build()


def test_a_kernel_of_a_collective_says_what_it_is(tmp_path: Path) -> None:
    job = Together(0, 1)
    rows = [job.kernel(rank, "ncclDevKernel_Generic") for rank in (0, 1)]
    everybody = job.builder.group(0, 1, name="0", description="default_pg")
    job.collective(everybody, *rows, operation="reduce", root=1, sequence=9, type=job.builder.texts["Float"])
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
    job = Together(0)
    row = job.kernel(0, "kernel")
    job.collective(job.builder.group(0, 1, name="0"), row, operation=operation)
    assert only(job.build(), tmp_path).attributes_of("kernel")["comm_type"] == kind


def test_what_cannot_be_said_as_communication_is_computation_and_counted(tmp_path: Path) -> None:
    job = Together(0)
    rows = [job.kernel(0, name, at) for at, name in enumerate(("no size", "no type", "good"))]
    group = job.builder.group(0, 1, name="0")
    job.collective(group, rows[0], given=-1, gotten=-1)
    job.collective(group, rows[1], operation="coalesced")
    job.collective(group, rows[2])
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
        job = Together(0, 3)
        send, receive = job.kernel(0, "send"), job.kernel(3, "receive", 1)
        job.builder.message(job.builder.group(0, 3, name="0"), send, receive, bytes=256, tag=4)
        found = traces(job.build(), tmp_path)
        names = ("comm_src", "comm_dst", "comm_tag", "comm_size")
        assert found[0].type("send") == NodeType.COMM_SEND
        assert found[3].type("receive") == NodeType.COMM_RECV
        for trace, name in ((found[0], "send"), (found[3], "receive")):
            said = trace.attributes_of(name)
            assert [said[attribute] for attribute in names] == [0, 3, 4, 256]

    def test_a_tag_that_is_not_known_is_0_on_both_ends(self, tmp_path: Path) -> None:
        job = Together(0, 1)
        send, receive = job.kernel(0, "send"), job.kernel(1, "receive", 1)
        job.builder.message(job.builder.group(0, 1, name="0"), send, receive, bytes=8)
        found = traces(job.build(), tmp_path)
        assert (
            found[0].attributes_of("send")["comm_tag"],
            found[1].attributes_of("receive")["comm_tag"],
        ) == (0, 0)

    def test_a_message_with_an_unknown_peer_is_computation(self, tmp_path: Path) -> None:
        job = Together(0)
        send = job.kernel(0, "send")
        job.builder.message(job.builder.group(0, 1, name="0"), send, send, bytes=8, target=-1)
        job.builder.messages[-1]["receive"] = -1
        trace = only(job.build(), tmp_path)
        assert trace.type("send") == NodeType.COMP
        assert trace.reasons["not_communication"] == 1

    def test_messages_that_share_a_kernel_are_nodes_with_the_same_dependencies(self, tmp_path: Path) -> None:
        job = Together(0, 1)
        job.kernel(0, "before", 0)
        batch = job.kernel(0, "batch", 10)
        job.kernel(0, "after", 20)
        other = job.kernel(1, "batch", 10)
        group = job.builder.group(0, 1, name="0")
        job.builder.message(group, batch, other, bytes=8)
        job.builder.message(group, other, batch, bytes=16)
        job.builder.message(group, batch, other, bytes=32)
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

    def two_groups(self, **said: Any) -> Together:
        """Rank 1 begins what it does with 0 before what it does with 2, and its clock says otherwise."""
        job = Together(0, 1)
        first, second = job.kernel(0, "first", 10), job.kernel(0, "second", 30)
        swapped = job.kernel(1, "second", 8), job.kernel(1, "first", 20)
        group = job.builder.group(0, 1, name="0")
        job.collective(group, first, swapped[1], **said)
        job.collective(group, second, swapped[0], **said)
        return job

    @pytest.mark.parametrize("variant", ["full", "astra-sim"])
    def test_collectives_of_a_group_are_in_one_order_on_all_ranks(self, variant: str, tmp_path: Path) -> None:
        found = traces(self.two_groups().build(), tmp_path, variant=variant)
        for trace in found.values():
            assert trace.names == ["first", "second"]
            assert trace.waits("second") == ["first"]

    def test_for_astra_sim_all_communication_is_in_one_order(self, tmp_path: Path) -> None:
        job = Together(0, 1)
        starts = {0: (10, 20, 30), 1: (11, 29, 19)}
        rows = {
            rank: [job.kernel(rank, name, at) for name, at in zip("abc", times, strict=True)]
            for rank, times in starts.items()
        }
        several = [job.builder.group(0, 1, name=name) for name in ("1", "2")]
        for place in range(3):
            job.collective(several[place % 2], rows[0][place], rows[1][place])
        found = traces(job.build(), tmp_path, variant="astra-sim")
        order = [trace.names for trace in found.values()]
        assert order[0] == order[1]
        for trace in found.values():
            for before, after in pairwise(trace.names):
                assert before in trace.waits(after)

    def test_collectives_that_nobody_timed_are_in_the_order_of_the_programs(self, tmp_path: Path) -> None:
        """Of three groups, in the execution traces alone: a, b, c on one rank and b, c, a2 on another."""
        builder = GraphBuilder()
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
    def gloo(self) -> GraphBuilder:
        builder = GraphBuilder()
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
        self, gloo: GraphBuilder, tmp_path: Path
    ) -> None:
        for rank, trace in traces(gloo.build(), tmp_path).items():
            name = f"gloo:all_reduce {rank}"
            assert trace.type(name) == NodeType.COMM_COLL
            assert trace.attributes_of(name)["is_cpu_op"] is False
            assert trace.waits(name) == [f"c10d::allreduce_ {rank}"]
            assert trace.type(f"c10d::allreduce_ {rank}") == NodeType.COMP
            assert trace.inside(f"copy {rank}") == [name]

    def test_the_thread_goes_on_after_it(self, gloo: GraphBuilder, tmp_path: Path) -> None:
        for rank, trace in traces(gloo.build(), tmp_path).items():
            assert f"gloo:all_reduce {rank}" in trace.waits(f"waited {rank}")

    def test_for_astra_sim_only_the_communication_is_left(self, gloo: GraphBuilder, tmp_path: Path) -> None:
        for rank, trace in traces(gloo.build(), tmp_path, variant="astra-sim").items():
            assert trace.names == [f"gloo:all_reduce {rank}"]
            assert trace.communication() == [("COMM_COLL", 0, 400, "0")]


class TestWhichEvent:
    """A communication has the node of its kernel, else annotation, operator, node of the trace, or entry."""

    def rank(self, **events: int) -> GraphBuilder:
        builder = GraphBuilder()
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
    builder = GraphBuilder()
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


class TestGroups:
    def job(self, *members: tuple[str, tuple[int, ...]], ranks: int = 4) -> Together:
        """A collective of each group, by its name, on all of its members."""
        job = Together(*range(ranks))
        rows = {
            (rank, number): job.kernel(rank, f"{number}", 10 * number)
            for rank in range(ranks)
            for number, (_, group) in enumerate(members)
            if rank in group
        }
        for number, (name, group) in enumerate(members):
            row = job.builder.group(*group, name=name)
            job.collective(row, *(rows[rank, number] for rank in group))
        return job

    def test_the_group_of_all_ranks_is_0_and_the_others_are_in_the_file(self, tmp_path: Path) -> None:
        job = self.job(("default_pg", (0, 1, 2, 3)), ("5", (0, 1)), ("abc", (2, 3)))
        found = traces(job.build(), tmp_path)
        assert groups(tmp_path) == {"1": [2, 3], "5": [0, 1]}
        assert [group for *_, group in found[0].communication()] == ["0", "5"]
        assert [group for *_, group in found[3].communication()] == ["0", "1"]
        assert found[3].attributes_of("2")["group_name"] == "abc"

    def test_for_astra_sim_the_group_of_all_ranks_has_a_number_too_beside_others(
        self, tmp_path: Path
    ) -> None:
        job = self.job(("0", (0, 1, 2, 3)), ("5", (0, 1)))
        found = traces(job.build(), tmp_path, variant="astra-sim")
        assert groups(tmp_path) == {"1": [0, 1, 2, 3], "5": [0, 1]}
        assert [group for *_, group in found[0].communication()] == ["1", "5"]
        assert [group for *_, group in found[3].communication()] == ["1"]

    def test_for_astra_sim_it_is_0_where_there_is_no_other(self, tmp_path: Path) -> None:
        found = traces(self.job(("0", (0, 1, 2, 3))).build(), tmp_path, variant="astra-sim")
        assert groups(tmp_path) == {}
        assert [group for *_, group in found[2].communication()] == ["0"]

    def test_the_metadata_name_all_groups(self, tmp_path: Path) -> None:
        job = self.job(("0", (0, 1)), ("abc", (1,)), ranks=2)
        trace = traces(job.build(), tmp_path)[0]
        assert '"0":{"name":"0","description":"","ranks":[0,1]}' in trace.decoded.metadata_value("groups")
        assert '"1":{"name":"abc","description":"","ranks":[1]}' in trace.decoded.metadata_value("groups")


# Process groups by number: 0 is all ranks, a name that is a number stays, the others get what is free.


EVERYBODY = (0, 1, 2, 3)


def numbered(
    *groups: tuple[str, tuple[int, ...]], seen: dict[int, tuple[int, ...]] | None = None
) -> GroupNumbers:
    builder = JobBuilder()
    for name, ranks in groups:
        builder.group(name, ranks, description=f"of {name}")
    job = builder.build()
    return group_numbers(job, seen or {})


@pytest.mark.parametrize("name", ["0", "default_pg", "", "abc"])
def test_the_group_of_all_ranks_is_0(name: str) -> None:
    assert numbered((name, EVERYBODY)).numbers == [0]


def test_a_name_that_is_a_number_stays() -> None:
    assert numbered(("0", EVERYBODY), ("7", (0, 1)), ("2", (2, 3)), ("5", EVERYBODY)).numbers == [0, 7, 2, 5]


def test_other_names_get_the_first_number_that_nobody_has() -> None:
    groups = (("0", EVERYBODY), ("abc", (0, 1)), ("1", (2, 3)), ("def", (1, 2)), ("3", (0, 3)))
    assert numbered(*groups).numbers == [0, 2, 1, 4, 3]


@pytest.mark.parametrize("name", ["2001", "999999999999", "01", "-1", "1.5", "٣", "0"])
def test_a_name_that_simulators_would_not_keep_gets_another_number(name: str) -> None:
    """ASTRA-sim counts a million on from each, in 32 bits."""
    assert numbered(("default", EVERYBODY), (name, (0, 1))).numbers == [0, 1]


def test_two_groups_of_one_name_are_two() -> None:
    assert numbered(("0", EVERYBODY), ("1", (0, 1)), ("1", (2, 3))).numbers == [0, 1, 2]


def test_members_that_no_source_lists_are_those_who_are_seen() -> None:
    groups = numbered(("0", EVERYBODY), ("5", ()), ("6", ()), seen={1: (0, 2)})
    assert groups.members == [EVERYBODY, (0, 2), ()]


def test_the_file_has_all_but_the_group_of_all_ranks_in_order() -> None:
    groups = numbered(("0", EVERYBODY), ("7", (0, 1)), ("2", (2, 3)))
    assert list(groups.members_by_number.items()) == [(2, (2, 3)), (7, (0, 1))]


def test_what_is_in_no_known_group_is_among_all() -> None:
    groups = numbered(("7", (0, 1)))
    assert (groups.number(-1), groups.number(0)) == (0, 7)


def test_descriptions_by_number() -> None:
    assert numbered(("0", EVERYBODY), ("7", (0, 1))).described == {
        0: {"name": "0", "description": "of 0", "ranks": [0, 1, 2, 3]},
        7: {"name": "7", "description": "of 7", "ranks": [0, 1]},
    }


class TestAmong:
    """Groups of a simulation: 0 is safe only where no other group has collectives."""

    GROUPS = (("0", EVERYBODY), ("7", (0, 1)), ("alone", (2,)), ("again", EVERYBODY))

    @pytest.mark.parametrize("rows", [[], [0], [0, 2, 3]])
    def test_all_ranks_are_0_where_no_other_group_of_several_communicates(self, rows: list[int]) -> None:
        assert numbered(*self.GROUPS).among(rows).numbers == [0, 7, 1, 0]

    @pytest.mark.parametrize("rows", [[1], [0, 1, 2]])
    def test_else_they_have_one_number_of_their_own(self, rows: list[int]) -> None:
        groups = numbered(*self.GROUPS).among(rows)
        assert groups.numbers == [2, 7, 1, 2]
        assert groups.members_by_number == {1: (2,), 2: EVERYBODY, 7: (0, 1)}


class TestEverybody:
    def test_the_world_as_ranks_say_it(self) -> None:
        builder = JobBuilder()
        builder.collective(builder.group("0", (0, 1)), {0: (0, 1), 1: (0, 1)})
        assert everybody(builder.build()) == (0, 1)

    def test_a_group_can_have_more_than_those_who_are_there(self) -> None:
        builder = JobBuilder()
        builder.groups.append(ProcessGroup("0", size=8))
        assert everybody(builder.build()) == tuple(range(8))

    def test_a_rank_alone_of_which_nothing_is_said(self) -> None:
        builder = JobBuilder()
        builder.unmatched(builder.group("1", ()), 5)
        assert everybody(builder.build()) == tuple(range(6))

    def test_nobody(self) -> None:
        assert everybody(JobBuilder().build()) == ()


# The variant astra-sim: what ASTRA-sim can run, and a word on everything that is written in another way.


def kernels(builder: GraphBuilder, *ranks: int, at: int = 0, name: str = "nccl") -> list[int]:
    """A kernel on a stream of each rank."""
    tracks = [builder.track(TrackKind.STREAM, rank, "0", "7") for rank in ranks]
    return [builder.add(track, name, at * US, 5 * US, EventKind.KERNEL) for track in tracks]


def collective(operation: str, size: int, *ranks: int, **said: Any) -> GraphBuilder:
    builder = GraphBuilder()
    rows = kernels(builder, *ranks)
    builder.together(builder.group(*ranks, name="0"), *rows, operation=operation, **said)
    for part in builder.participations:
        part |= {"bytes_in": size, "bytes_out": size}
    return builder


@pytest.mark.parametrize(
    ("operation", "kind", "size"),
    [
        ("all_reduce", CollectiveType.ALL_REDUCE, 64),
        ("all_gather", CollectiveType.ALL_GATHER, 64),
        ("reduce_scatter", CollectiveType.REDUCE_SCATTER, 64),
        ("all_to_all", CollectiveType.ALL_TO_ALL, 64),
        ("broadcast", CollectiveType.BROADCAST, 64),
    ],
)
def test_what_it_knows_stays(operation: str, kind: CollectiveType, size: int, tmp_path: Path) -> None:
    trace = traces(collective(operation, size, 0, 1).build(), tmp_path, variant="astra-sim")[0]
    assert trace.communication() == [("COMM_COLL", kind, size, "0")]
    assert "replaced_collective" not in trace.reasons


@pytest.mark.parametrize(
    ("operation", "instead", "size"),
    [
        ("barrier", CollectiveType.ALL_REDUCE, 0),
        ("reduce", CollectiveType.ALL_REDUCE, 64),
        ("gather", CollectiveType.ALL_GATHER, 64),
        ("scatter", CollectiveType.BROADCAST, 64),
    ],
)
def test_what_it_does_not_know_is_what_moves_nearly_as_much(
    operation: str, instead: CollectiveType, size: int, tmp_path: Path
) -> None:
    trace = traces(collective(operation, size, 0, 1).build(), tmp_path, variant="astra-sim")[0]
    assert trace.communication() == [("COMM_COLL", instead, size, "0")]
    assert instead in SIMULATED
    assert trace.attributes_of("nccl")["collective"] == operation
    assert trace.reasons["replaced_collective"] == 1


def test_an_all_gather_of_hardly_any_bytes_has_as_many_as_can_be_split(tmp_path: Path) -> None:
    trace = traces(collective("all_gather", 3, 0, 1).build(), tmp_path, variant="astra-sim")[0]
    assert trace.communication() == [("COMM_COLL", CollectiveType.ALL_GATHER, 16, "0")]
    assert trace.reasons["enlarged"] == 1


@pytest.mark.parametrize("variant", ["full", "astra-sim"])
def test_a_group_of_one_is_computation_for_astra_sim(variant: str, tmp_path: Path) -> None:
    trace = only(collective("all_reduce", 64, 0).build(), tmp_path, variant=variant)
    full = variant == "full"
    assert trace.type("nccl") == (NodeType.COMM_COLL if full else NodeType.COMP)
    assert trace.reasons.get("alone", 0) == (0 if full else 1)


def test_a_message_of_a_rank_to_itself_is_computation(tmp_path: Path) -> None:
    builder = GraphBuilder()
    (row,) = kernels(builder, 0)
    builder.message(builder.group(0, 1, name="0"), row, row, bytes=64)
    trace = only(builder.build(), tmp_path, variant="astra-sim")
    assert trace.type("nccl") == NodeType.COMP
    assert trace.reasons["alone"] == 2


class TestWithoutPartners:
    """ASTRA-sim waits for ever for a rank that takes no part, and for one that has another size."""

    def job(self, *taking_part: int, **said: Any) -> GraphBuilder:
        """A collective of ranks 0 to 2, and further work of each; ranks 3 and up have no files."""
        builder = GraphBuilder()
        rows = {}
        for rank in range(3):
            track = builder.track(TrackKind.STREAM, rank, "0", "7")
            if rank in taking_part:
                rows[rank] = builder.add(track, "nccl", 0, 5 * US, EventKind.KERNEL)
            builder.add(track, "gemm", 10 * US, 5 * US, EventKind.KERNEL)
        builder.together(builder.group(0, 1, 2, 3, name="0"), *rows.values(), **said)
        for part in builder.participations:
            part |= {"bytes_in": 64 * (part["rank"] + 1), "bytes_out": 64}
        return builder

    def test_one_that_a_rank_does_not_take_part_in_is_computation_on_the_others(self, tmp_path: Path) -> None:
        found = traces(self.job(0, 2).build(), tmp_path, variant="astra-sim")
        for rank in (0, 2):
            assert found[rank].type("nccl") == NodeType.COMP
            assert found[rank].waits("gemm") == ["nccl"]
            assert found[rank].reasons["incomplete_communication"] == 1
        assert found[1].names == ["gemm"]

    def test_ranks_without_files_do_not_count(self, tmp_path: Path) -> None:
        """They are often those of which one that is alike is copied."""
        found = traces(self.job(0, 1, 2, operation="all_to_all").build(), tmp_path, variant="astra-sim")
        assert [trace.type("nccl") for trace in found.values()] == [NodeType.COMM_COLL] * 3

    def test_the_largest_size_is_that_of_all(self, tmp_path: Path) -> None:
        found = traces(self.job(0, 1, 2).build(), tmp_path, variant="astra-sim")
        assert [trace.communication() for trace in found.values()] == [[("COMM_COLL", 0, 192, "0")]] * 3
        assert [trace.reasons.get("size_differs", 0) for trace in found.values()] == [1, 1, 0]

    def test_everything_is_as_it_was_in_the_full_variant(self, tmp_path: Path) -> None:
        found = traces(self.job(0, 2).build(), tmp_path)
        assert [found[rank].communication() for rank in (0, 1, 2)] == [
            [("COMM_COLL", 0, 64, "0")],
            [],
            [("COMM_COLL", 0, 192, "0")],
        ]

    def test_a_message_without_its_other_end_is_computation(self, tmp_path: Path) -> None:
        builder = GraphBuilder()
        rows = kernels(builder, 0, 1)
        group = builder.group(0, 1, 2, name="0")
        builder.message(group, *rows, bytes=8)
        builder.message(group, *rows, bytes=16)
        builder.messages[-1]["receive"] = -1
        builder.message(group, *rows, bytes=32)
        builder.messages[-1] |= {"receive": -1, "target": 2}
        found = traces(builder.build(), tmp_path, variant="astra-sim")
        assert [size for _, _, size, _ in found[0].communication()] == [8, 32]
        assert [size for _, _, size, _ in found[1].communication()] == [8]
        assert found[0].reasons["incomplete_communication"] == 1

    def test_an_entry_of_the_recorder_is_no_part_beside_a_profile(self, tmp_path: Path) -> None:
        """The profile of rank 1 begins later than that of rank 0, and only its recorder tells of the collective."""
        builder = GraphBuilder()
        (row,) = kernels(builder, 0)
        entry = builder.add(builder.track(TrackKind.COMMUNICATOR, 1), "entry", 0, 5, EventKind.RECORD)
        builder.add(builder.track(rank=1), "operator", 5, 5)
        kernels(builder, 1, at=10, name="gemm")
        builder.together(builder.group(0, 1, name="0"), row, entry)
        for part, column, event in zip(
            builder.participations, ("kernel", "record"), (row, entry), strict=True
        ):
            part |= {"bytes_in": 8, "kernel": -1} | {column: event}
        found = traces(builder.build(), tmp_path, variant="astra-sim")
        assert found[0].type("nccl") == NodeType.COMP
        assert found[1].names == ["gemm"]


def test_only_device_work_and_communication_without_control_dependencies(tmp_path: Path) -> None:
    builder = GraphBuilder()
    thread, stream = builder.track(), builder.track(TrackKind.STREAM, 0, "0", "7")
    builder.add(thread, "operator", 0, 10)
    builder.add(stream, "gemm", 20, 10, EventKind.KERNEL)
    builder.add(stream, "copy", 40, 10, EventKind.MEMCPY)
    trace = only(builder.build(), tmp_path, variant="astra-sim")
    assert trace.names == ["gemm", "copy"]
    assert (trace.inside("copy"), trace.waits("copy")) == ([], ["gemm"])
    assert groups(tmp_path) == {}


def test_a_wait_through_the_host_stays(tmp_path: Path) -> None:
    """The host waits for one stream, then launches on another."""
    job = Job()
    launch = job.runtime("cudaLaunchKernel", 2, caller=job.operator("one", 0, 10))
    job.kernel("first", 15, 5, launch)
    job.runtime("cudaStreamSynchronize", 12, 10)
    later = job.runtime("cudaLaunchKernel", 32, caller=job.operator("two", 30, 10))
    job.kernel("second", 40, 5, later, stream="9")
    trace = only(job.build(), tmp_path, variant="astra-sim")
    assert trace.names == ["first", "second"]
    assert trace.waits("second") == ["first"]
