"""Groups by number, and the communication that ASTRA-sim can run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from builders.chakra import TracedJob, groups, only, traces
from builders.job import JobBuilder
from tracelink._model.events import EventKind, Relation, TrackKind
from tracelink._model.trace import ProcessGroup
from tracelink.converters.chakra.schema import SIMULATED, CollectiveType, NodeType
from tracelink.converters.chakra.writing.communications import GroupNumbers, all_ranks, group_numbers

US = 1000


class TestGroups:
    def job(self, *members: tuple[str, tuple[int, ...]], ranks: int = 4) -> JobBuilder:
        """A collective of each group, by its name, on all of its members."""
        job = JobBuilder(unit=US)
        for rank in range(ranks):
            job.stream(rank=rank)
        rows = {
            (rank, number): job.work(f"{number}", 10 * number, 10 * number + 5, rank=rank)
            for rank in range(ranks)
            for number, (_, group) in enumerate(members)
            if rank in group
        }
        for number, (name, group) in enumerate(members):
            row = job.group(*group, name=name)
            job.together(row, *(rows[rank, number] for rank in group), elements=(64, 64))
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
        builder.group(*ranks, name=name, description=f"of {name}")
    job = builder.job()
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
        assert numbered(*self.GROUPS).for_simulation(rows).numbers == [0, 7, 1, 0]

    @pytest.mark.parametrize("rows", [[1], [0, 1, 2]])
    def test_else_they_have_one_number_of_their_own(self, rows: list[int]) -> None:
        groups = numbered(*self.GROUPS).for_simulation(rows)
        assert groups.numbers == [2, 7, 1, 2]
        assert groups.members_by_number == {1: (2,), 2: EVERYBODY, 7: (0, 1)}


class TestEverybody:
    def test_the_world_as_ranks_say_it(self) -> None:
        builder = JobBuilder()
        builder.collective(builder.group(0, 1, name="0"), {0: (0, 1), 1: (0, 1)})
        assert all_ranks(builder.job()) == (0, 1)

    def test_a_group_can_have_more_than_those_who_are_there(self) -> None:
        builder = JobBuilder()
        builder.groups.append(ProcessGroup("0", size=8))
        assert all_ranks(builder.job()) == tuple(range(8))

    def test_a_rank_alone_of_which_nothing_is_said(self) -> None:
        builder = JobBuilder()
        builder.unmatched(builder.group(name="1"), 5)
        assert all_ranks(builder.job()) == tuple(range(6))

    def test_nobody(self) -> None:
        assert all_ranks(JobBuilder().job()) == ()


# The variant astra-sim: what ASTRA-sim can run, and a word on everything that is written in another way.


def kernels(builder: JobBuilder, *ranks: int, at: int = 0, name: str = "nccl") -> list[int]:
    """A kernel on a stream of each rank."""
    tracks = [builder.track(TrackKind.STREAM, rank, "0", "7") for rank in ranks]
    return [builder.add(track, name, at * US, 5 * US, EventKind.KERNEL) for track in tracks]


def collective(operation: str, size: int, *ranks: int, **said: Any) -> JobBuilder:
    builder = JobBuilder()
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


@pytest.mark.parametrize(("operation", "size"), [("barrier", 0), ("all_reduce", 4), ("reduce", 95)])
def test_an_all_reduce_has_as_many_bytes_as_can_be_split_and_halved(
    operation: str, size: int, tmp_path: Path
) -> None:
    """By `halvingDoubling` on three ranks: 2 x 3 bytes in each of 16 splits."""
    builder = collective(operation, size, 0, 1, 2)
    found = traces(builder.build(), tmp_path, variant="astra-sim")
    assert [trace.communication() for trace in found.values()] == [[("COMM_COLL", 0, 96, "0")]] * 3
    assert [trace.reasons["enlarged"] for trace in found.values()] == [1] * 3
    assert [trace.attributes_of("nccl")["bytes_in"] for trace in found.values()] == [size] * 3
    assert [
        size for trace in traces(builder.build(), tmp_path).values() for *_, size, _ in trace.communication()
    ] == [size] * 3


@pytest.mark.parametrize("variant", ["full", "astra-sim"])
def test_a_group_of_one_is_computation_for_astra_sim(variant: str, tmp_path: Path) -> None:
    trace = only(collective("all_reduce", 64, 0).build(), tmp_path, variant=variant)
    full = variant == "full"
    assert trace.type("nccl") == (NodeType.COMM_COLL if full else NodeType.COMP)
    assert trace.reasons.get("alone", 0) == (0 if full else 1)


def test_a_message_of_a_rank_to_itself_is_computation(tmp_path: Path) -> None:
    builder = JobBuilder()
    (row,) = kernels(builder, 0)
    builder.message(builder.group(0, 1, name="0"), row, row, bytes=64)
    trace = only(builder.build(), tmp_path, variant="astra-sim")
    assert trace.type("nccl") == NodeType.COMP
    assert trace.reasons["alone"] == 2


class TestWithoutPartners:
    """ASTRA-sim waits for ever for a rank that takes no part, and for one that has another size."""

    def job(self, *taking_part: int, **said: Any) -> JobBuilder:
        """A collective of ranks 0 to 2, and further work of each; ranks 3 and up have no files."""
        builder = JobBuilder()
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
        builder = JobBuilder()
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

    def test_what_all_ranks_recorded_before_the_profile_is_missing_on_none(self, tmp_path: Path) -> None:
        builder = JobBuilder()
        sizes = {"barrier": 0, "all_reduce": 8, "all_gather": 1}
        entries = []
        for rank in range(2):
            track = builder.track(TrackKind.COMMUNICATOR, rank)
            entries.append([builder.add(track, "entry", start, 5, EventKind.RECORD) for start in range(3)])
            builder.add(builder.track(rank=rank), "operator", 5, 5)
            kernels(builder, rank, at=10, name="gemm")
        group = builder.group(0, 1, name="0")
        for (operation, size), rows in zip(sizes.items(), zip(*entries, strict=True), strict=True):
            builder.together(group, *rows, operation=operation, as_what="record")
            for part in builder.participations[-2:]:
                part |= {"bytes_in": size + part["rank"], "bytes_out": size}
        found = traces(builder.build(), tmp_path, variant="astra-sim")
        for rank in (0, 1):
            assert found[rank].names == ["gemm"]
            assert found[rank].reasons == {"outside_profile": 3, "not_nodes": 3}

    def test_an_entry_of_the_recorder_is_no_part_beside_a_profile(self, tmp_path: Path) -> None:
        """The profile of rank 1 begins later than that of rank 0, and only its recorder tells of the collective."""
        builder = JobBuilder()
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
    builder = JobBuilder()
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
    job = TracedJob()
    launch = job.call("cudaLaunchKernel", 2, inside=job.op("one", 0, 10))
    job.work("first", 15, 20, by=launch)
    job.call("cudaStreamSynchronize", 12, 22)
    later = job.call("cudaLaunchKernel", 32, inside=job.op("two", 30, 40))
    job.work("second", 40, 45, 9, by=later)
    trace = only(job.build(), tmp_path, variant="astra-sim")
    assert trace.names == ["first", "second"]
    assert trace.waits("second") == ["first"]


@pytest.mark.parametrize("device_work", [False, True])
@pytest.mark.parametrize("variant", ["astra-sim", "full"])
def test_a_rank_without_device_work_says_how_much_computation_it_loses(
    variant: str, device_work: bool, tmp_path: Path
) -> None:
    builder, rows = JobBuilder(), []
    for rank in range(2):
        thread = builder.track(rank=rank)
        outer = builder.add(thread, "aten::linear", 0, 9 * US)
        builder.edge(outer, Relation.CALLS, builder.add(thread, "aten::addmm", 2 * US, 5 * US))
        rows.append(builder.add(thread, "c10d::allreduce_", 10 * US, 3 * US))
        if device_work:
            kernels(builder, rank, at=20, name="gemm")
    builder.together(builder.group(0, 1, name="0"), *rows, as_what="operator")
    for part in builder.participations:
        part |= {"bytes_in": 8, "bytes_out": 8}
    for trace in traces(builder.build(), tmp_path, variant=variant).values():
        assert trace.reasons.get("no_computation", 0) == (
            2 if variant == "astra-sim" and not device_work else 0
        )
