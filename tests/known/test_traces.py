"""Traces."""

from __future__ import annotations

import gzip
import shutil
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from builders.data import shared, traces, truth
from generators import jobs
from generators.files import KINETO, Kept
from generators.job import Cluster
from tracelink import RankConflictError
from tracelink._api.functions import linked_job
from tracelink._model.columns import NO_TIME, UNKNOWN
from tracelink._model.communications import Calls
from tracelink._model.job import LinkedJob

Event = dict[str, Any]
Member = tuple[int, int, int]
"""Rank, and when it entered and left."""
Met = tuple[str, str, int, int, float, frozenset[Member]]
"""Operation, type, bytes, skew, bus bandwidth and members of a collective."""


def verdicts(job: LinkedJob) -> Counter[str]:
    return Counter(job.strings[code] for code in job.collectives.verdict.tolist())


def joined(job: LinkedJob) -> Counter[frozenset[str]]:
    """How many participations have which events."""
    there = {name: getattr(job.participations, name) != UNKNOWN for name in Calls.event_columns()}
    return Counter(
        frozenset(name for name, column in there.items() if column[row])
        for row in range(len(job.participations))
    )


def sizes(job: LinkedJob) -> Counter[int]:
    """How many collectives have how many members."""
    return Counter(len(job.groups[row].ranks) for row in job.collectives.group.tolist())


def takers(job: LinkedJob) -> list[list[int]]:
    """Who takes part in each collective."""
    parts = job.participations
    return [parts.rank[parts.collective == row].tolist() for row in range(len(job.collectives))]


def told(job: LinkedJob) -> dict[str, str]:
    return {finding.reason: finding.message for finding in job.findings}


ALL_OF_GLOO = frozenset({"record", "operator", "annotation", "node"})


class TestGloo:
    """Two ranks: an execution trace, a profile and a recorder of each; the recorder saw earlier and later steps too."""

    def test_all_that_was_profiled_is_joined_to_recorder_operator_annotation_and_node(self) -> None:
        job = linked_job(traces("cpu_job"), clock="none")
        assert (sizes(job), verdicts(job)) == ({2: 25}, {"complete": 25})
        assert takers(job) == [[0, 1]] * 25
        assert joined(job) == {ALL_OF_GLOO: 16, frozenset({"record"}): 34}
        assert told(job) == {}

    @pytest.mark.parametrize("sources", [("kineto", "et"), ("kineto",)], ids="+".join)
    def test_messages_need_no_recorder_but_collectives_have_no_group_without_it(
        self, sources: Sequence[str]
    ) -> None:
        files = [traces(f"cpu_job/{source}_{rank}.json.gz") for source in sources for rank in range(2)]
        job = linked_job(files, clock="none")
        sent = job.messages
        assert sorted(zip(sent.source.tolist(), sent.target.tolist(), sent.order.tolist(), strict=True)) == [
            *((0, 1, 0), (0, 1, 1), (1, 0, 0), (1, 0, 1))
        ]
        assert {job.strings[code] for code in sent.verdict.tolist()} == {"complete"}
        assert (sent.send != UNKNOWN).all()
        assert (sent.receive != UNKNOWN).all()
        assert (sent.sent != NO_TIME).all()
        assert (sent.sent < sent.received).all()
        assert len(job.collectives) == 0
        assert told(job)["collectives_without_group"].startswith(
            "16 collectives are skipped: they have no process group"
        )


def test_a_rank_that_is_not_there_is_named_and_nobody_is_blamed() -> None:
    files = [path for path in traces("cluster").rglob("*") if path.is_file() and "_7" not in path.name]
    job = linked_job(files, clock="none")
    with_it = sum(7 in one["ranks"] for one in truth("cluster")["collectives"])
    assert verdicts(job) == {"complete": 76 - with_it, "partial": with_it}
    assert Counter(job.strings[code] for code in job.messages.verdict) == {"complete": 18, "partial": 6}
    assert told(job)["missing_ranks"] == "1 of 8 ranks have no source: 7."


@pytest.mark.foreign
def test_every_rank_of_a_recorded_job_takes_part_in_each_of_118_collectives() -> None:
    job = linked_job(shared("matched8"), clock="none")
    assert sizes(job) == {8: 30, 4: 28, 2: 60}
    assert verdicts(job) == {"complete": 118}
    assert takers(job) == [list(job.groups[row].ranks) for row in job.collectives.group.tolist()]
    assert joined(job) == {ALL_OF_GLOO: 368, frozenset({"record"}): 104}
    assert told(job) == {}


@pytest.mark.foreign
def test_the_eight_collectives_of_dlrm_on_all_ranks_in_order_from_kernels_and_execution_traces() -> None:
    job = linked_job(shared("pairs/dlrm8"), clock="none")
    order = np.argsort(job.collectives.order)
    assert job.collectives.sequence[order].tolist() == list(range(147, 155))
    assert [job.strings[code] for code in job.collectives.operation[order].tolist()] == [
        *["all_to_all"] * 4,
        "all_reduce",
        "all_to_all",
        "all_reduce",
        "all_reduce",
    ]
    assert takers(job) == [list(range(8))] * 8
    assert verdicts(job) == {"complete": 8}
    assert joined(job) == {frozenset({"operator", "annotation", "node", "kernel"}): 64}
    for rank in range(8):
        mine = job.participations.rank == rank
        kernels = job.participations.kernel[mine][np.argsort(job.participations.collective[mine])]
        starts = job.participations.start[mine][np.argsort(job.participations.collective[mine])]
        assert len(np.unique(kernels)) == 8
        assert (np.diff(starts[order]) > 0).all()


@pytest.mark.foreign
def test_four_ranks_with_three_sources_each_of_which_one_does_more_alone() -> None:
    job = linked_job(shared("torch_trace/multirank_matched/matched"), clock="none")
    together = [ranks for ranks in takers(job) if len(ranks) > 1]
    assert together == [[0, 1, 2, 3]] * 12
    assert [ranks for ranks in takers(job) if len(ranks) == 1] == [[2]] * 8
    assert verdicts(job) == {"complete": 20}
    assert joined(job) == {ALL_OF_GLOO: 56}
    assert told(job) == {
        "phase_data": "annotations with data of compile phases are arguments of the operators of these phases",
        "phase_data_copies": "execution-trace nodes and NVTX ranges that are the same as such annotations are left out",
    }


def is_communication(event: Event) -> bool:
    name = event.get("name", "").lower()
    return event["ph"] == "M" or "nccl" in name or "c10d" in name or name == "record_param_comms"


def profile(path: Path) -> dict[str, Any]:
    """A profile cut to what its rank communicated, with the launches of its kernels."""
    whole: dict[str, Any] = msgspec.json.decode(gzip.decompress(path.read_bytes()))
    events = whole["traceEvents"]
    kernels = {event["args"]["correlation"] for event in events if event.get("cat") == "kernel"}
    kept = [
        event
        for event in events
        if is_communication(event)
        or (event.get("cat") == "cuda_runtime" and event["args"].get("correlation") in kernels)
    ]
    return {**whole, "traceEvents": kept}


def kernels_alone(profile: dict[str, Any]) -> dict[str, Any]:
    """A profile of which only the kernels are left."""
    kept = [event for event in profile["traceEvents"] if event["ph"] == "M" or event.get("cat") == "kernel"]
    return {**profile, "traceEvents": kept}


def collective_kernels(events: Sequence[Event]) -> list[Event]:
    return sorted(
        (event for event in events if event.get("cat") == "kernel" and "nccl" in event["name"]),
        key=lambda event: float(event["ts"]),
    )


def around(event: Event, inner: Event) -> bool:
    return bool(
        event.get("dur") is not None
        and (event["pid"], event["tid"]) == (inner["pid"], inner["tid"])
        and event["ts"] <= inner["ts"]
        and event["ts"] + event["dur"] >= inner["ts"] + inner["dur"]
    )


def issuing(events: Sequence[Event], kernel: Event) -> list[Event]:
    """The launch of a kernel, with the annotation and the operators that it ran in, and the annotation's shadow."""
    (launch,) = (
        event
        for event in events
        if event.get("cat") == "cuda_runtime"
        and event["args"].get("correlation") == kernel["args"]["correlation"]
    )
    outer = [event for event in events if is_communication(event) and around(event, launch)]
    shadowed = {event["args"]["External id"] for event in outer if event["cat"] == "user_annotation"}
    shadows = [
        event
        for event in events
        if event.get("cat") == "gpu_user_annotation" and event["args"]["External id"] in shadowed
    ]
    assert len(shadows) == 1
    assert {event["name"].partition(":")[0] for event in outer} == {"c10d", "record_param_comms", "nccl"}
    return [launch, *outer, *shadows]


def met(job: LinkedJob) -> list[Met]:
    """What is said of each collective, in their order."""
    whole, parts = job.collectives, job.participations
    found = []
    for row in np.argsort(whole.order).tolist():
        mine = parts.collective == row
        members = zip(
            parts.rank[mine].tolist(), parts.start[mine].tolist(), parts.end[mine].tolist(), strict=True
        )
        found.append(
            (
                job.strings[whole.operation[row]],
                job.strings[whole.type[row]],
                int(whole.bytes[row]),
                int(whole.skew[row]),
                float(whole.bus_gb_s[row]),
                frozenset(members),
            )
        )
    return found


@pytest.fixture(scope="module")
def profiles() -> list[dict[str, Any]]:
    return [profile(path) for path in sorted(shared("kineto/four_ranks_derived").iterdir())]


@pytest.fixture(scope="module")
def whole() -> LinkedJob:
    return linked_job(shared("kineto/four_ranks_derived"))


@pytest.mark.foreign
class TestFourRanks:
    """NCCL without numbers: all leave each of 21 collectives at once, and rank 2 is always the first to enter."""

    def test_every_kernel_is_a_part_of_the_collective_of_its_place(
        self, whole: LinkedJob, profiles: list[dict[str, Any]]
    ) -> None:
        assert verdicts(whole) == {"complete": 21}
        assert takers(whole) == [[0, 1, 2, 3]] * 21
        base = profiles[0]["baseTimeNanoseconds"]
        kernels = [collective_kernels(each["traceEvents"]) for each in profiles]
        starts = [
            [base + int(Decimal(str(kernel["ts"])) * 1000) for kernel in of_rank] for of_rank in kernels
        ]
        found = whole.participations.start.reshape(21, 4)[np.argsort(whole.collectives.order)]
        assert found.T.tolist() == starts

    def test_who_waits_for_whom_is_what_the_kernels_show(self, whole: LinkedJob) -> None:
        entered = whole.participations.start.reshape(21, 4)
        assert (entered.argmin(axis=1) == 2).all()
        assert (whole.participations.wait.reshape(21, 4)[:, 2] == whole.collectives.skew).all()
        assert (whole.collectives.skew == np.ptp(entered, axis=1)).all()
        assert whole.collectives.skew.max() == 297_763
        assert (whole.collectives.last_rank == entered.argmax(axis=1)).all()

    def test_what_a_rank_communicated_is_enough(
        self, whole: LinkedJob, profiles: list[dict[str, Any]], tmp_path: Path
    ) -> None:
        assert met(saved(profiles, tmp_path)) == met(whole)

    @pytest.mark.parametrize("rank", range(4))
    @pytest.mark.parametrize("places", [[0], [10], [20], [8, 9, 10]], ids=str)
    @pytest.mark.parametrize("lost", ["kernel", "kernel and operator", "kernel, where there is nothing else"])
    def test_what_one_rank_does_not_show_changes_nothing_else(
        self,
        whole: LinkedJob,
        profiles: list[dict[str, Any]],
        tmp_path: Path,
        rank: int,
        places: list[int],
        lost: str,
    ) -> None:
        if lost == "kernel, where there is nothing else":
            profiles = [kernels_alone(each) for each in profiles]
        events = profiles[rank]["traceEvents"]
        gone = [collective_kernels(events)[place] for place in places]
        if lost == "kernel and operator":
            gone += [event for kernel in gone for event in issuing(events, kernel)]
        identities = {id(event) for event in gone}
        kept = [event for event in events if id(event) not in identities]
        changed = {**profiles[rank], "traceEvents": kept}
        before = met(whole)
        after = met(saved([*profiles[:rank], changed, *profiles[rank + 1 :]], tmp_path))
        unseen = {(rank, NO_TIME, NO_TIME)} if lost == "kernel" else set()
        assert len(after) == 21
        for place, (was, now) in enumerate(zip(before, after, strict=True)):
            if place in places:
                assert now[:3] == was[:3]
                assert now[-1] == {member for member in was[-1] if member[0] != rank} | unseen
            else:
                assert now == was


def saved(profiles: Sequence[dict[str, Any]], folder: Path) -> LinkedJob:
    for rank, each in enumerate(profiles):
        (folder / f"rank{rank}.json").write_bytes(msgspec.json.encode(each))
    return linked_job(folder, jobs=1)


class TestNotOneJob:
    def test_a_rank_that_is_there_twice_is_an_error_that_names_both_files(self, tmp_path: Path) -> None:
        for name in ("rank0_a.json.gz", "rank0_b.json.gz"):
            shutil.copy(traces("data_parallel/kineto_0.json.gz"), tmp_path / name)
        with pytest.raises(
            RankConflictError, match=r"rank 0 has two files .*rank0_a\.json\.gz and .*rank0_b\.json\.gz"
        ):
            linked_job(tmp_path)

    def test_two_jobs_with_the_same_ranks_are_an_error(self) -> None:
        with pytest.raises(RankConflictError, match="rank 0 has two files of format kineto"):
            linked_job([traces("data_parallel"), traces("gpu_2021/kineto_0.json")])

    def test_two_jobs_with_different_ranks_are_told_and_not_matched(self, tmp_path: Path) -> None:
        other = Cluster(ranks=8, tensor_parallel=2, start_ns=Cluster().start_ns + 10**15)
        jobs.write(other, tmp_path, Kept([KINETO], absent_ranks=range(6)))
        job = linked_job([traces("data_parallel"), *tmp_path.glob("kineto*")])
        assert [ranks for ranks in takers(job) if min(ranks) < 6] == [[0, 1, 2, 3]] * 15
        assert told(job)["two_jobs"].endswith(
            "these seem to be recordings of two jobs. Merge each by itself."
        )
        assert told(job)["world_size"] == "The sources disagree on the world size: 4, 8. Is this one job?"
