"""The calls that are known to be in the shared traces, and what each is joined from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from builders.data import shared
from tracelink.engine import Engine
from tracelink.errors import Finding
from tracelink.io.sources import discover_inputs
from tracelink.model.collectives import RankCalls
from tracelink.model.columns import UNKNOWN
from tracelink.model.communications import CALL_ROWS, Evidence
from tracelink.pipeline.gathering import GatheredRank, gather

RECORDER = frozenset({"record"})
ALL_OF_GLOO = frozenset({"record", "operator", "annotation", "node"})
ALL_OF_GLOO_BUT_RECORDED = ALL_OF_GLOO - RECORDER
ALL_OF_NCCL = frozenset({"operator", "annotation", "kernel"})


def ranks(*paths: str) -> dict[int, GatheredRank]:
    gathered = gather(discover_inputs([shared(path) for path in paths]), Engine(1), with_events=False)
    return {rank.rank: rank for rank in gathered.ranks}


def joined(rank: RankCalls) -> Counter[frozenset[str]]:
    """How many calls have which events."""
    calls = rank.calls
    columns = {name: getattr(calls, name) != UNKNOWN for name in CALL_ROWS}
    return Counter(
        frozenset(name for name, there in columns.items() if there[place]) for place in range(len(calls))
    )


def operations(rank: RankCalls) -> Counter[str]:
    return Counter(rank.strings[code] for code in rank.calls.operation.tolist())


def contradictions(findings: Sequence[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.reason == "communication_contradiction"]


def test_matched8_has_recorder_operator_annotation_and_node_of_every_collective() -> None:
    """The warm-up step is from before the profile; what is sent and received gloo does not record."""
    known = {
        "all_reduce": 25,
        "all_gather": 11,
        "broadcast": 9,
        "all_to_all": 5,
        "barrier": 5,
        "reduce_scatter": 4,
        "send": 4,
        "recv": 4,
    }
    found = ranks("matched8")
    assert sorted(found) == list(range(8))
    for rank in found.values():
        calls = rank.calls.calls
        assert joined(rank.calls) == {ALL_OF_GLOO: 46, ALL_OF_GLOO_BUT_RECORDED: 8, RECORDER: 13}
        assert operations(rank.calls) == known
        in_profile = calls.operator != UNKNOWN
        assert set(calls.evidence[in_profile].tolist()) == {Evidence.ANNOTATION}
        assert set(calls.evidence[~in_profile].tolist()) == {Evidence.NONE}
        recorded = calls.record != UNKNOWN
        assert (calls.sequence[recorded] != UNKNOWN).all()
        assert (calls.group[recorded] != UNKNOWN).all()
        assert (calls.enqueued[1:] >= calls.enqueued[:-1]).all()
        assert (calls.start[in_profile] >= calls.enqueued[in_profile]).all()
        assert contradictions(rank.findings) == []


def test_the_messages_of_matched8_have_their_peers_and_sizes() -> None:
    for number, rank in ranks("matched8").items():
        calls = rank.calls.calls
        texts = [rank.calls.strings[code] for code in calls.operation.tolist()]
        sent = calls.take([place for place, text in enumerate(texts) if text == "send"])
        received = calls.take([place for place, text in enumerate(texts) if text == "recv"])
        assert sent.target.tolist() == [(number + 1) % 8] * 4
        assert received.source.tolist() == [(number - 1) % 8] * 4
        assert sent.elements_in.tolist() == received.elements_out.tolist() == [10] * 4
        assert sent.point_to_point.all()
        assert received.point_to_point.all()


def test_without_execution_traces_the_order_of_the_work_tells_as_much() -> None:
    """A profile numbers its events only where an execution trace is recorded beside it."""
    known = {ALL_OF_GLOO - {"node"}: 46, ALL_OF_GLOO_BUT_RECORDED - {"node"}: 8, RECORDER: 13}
    paths = [f"matched8/kineto_{rank}.json.gz" for rank in range(8)]
    assert all(joined(rank.calls) == known for rank in ranks(*paths, "matched8/fr").values())


@pytest.mark.parametrize("trace", ["four_ranks_derived", "nccl_data.json.gz"])
def test_nccl_with_arguments(trace: str) -> None:
    for rank in ranks(f"kineto/{trace}").values():
        calls = rank.calls.calls
        assert joined(rank.calls) == {ALL_OF_NCCL: 21}
        assert operations(rank.calls) == {"all_reduce": 15, "broadcast": 6}
        assert {rank.calls.strings[code] for code in calls.group.tolist()} == {"0"}
        assert set(calls.evidence.tolist()) == {Evidence.KERNEL}
        assert (calls.end > calls.start).all()


def test_dlrm_without_arguments_has_its_numbers_from_the_execution_traces() -> None:
    expected = None
    for rank in ranks("pairs/dlrm8").values():
        calls = rank.calls.calls
        assert joined(rank.calls) == {ALL_OF_NCCL | {"node"}: 8}
        said = [(rank.calls.strings[code]) for code in calls.operation.tolist()]
        expected = expected or list(zip(said, calls.sequence.tolist(), strict=True))
        assert list(zip(said, calls.sequence.tolist(), strict=True)) == expected
        assert [number for _, number in expected] == list(range(147, 155))


def test_kernels_of_mi300_from_before_the_window_stand_alone() -> None:
    (rank,) = ranks("kineto/mi300_resnet.json.gz").values()
    assert joined(rank.calls) == {ALL_OF_NCCL: 12, frozenset({"kernel"}): 5}


def test_profiles_of_2023_whose_records_say_nothing() -> None:
    (rank,) = ranks("kineto/cuda_graphs.json.gz").values()
    assert joined(rank.calls) == {ALL_OF_NCCL: 75, ALL_OF_NCCL - {"kernel"}: 10, frozenset({"kernel"}): 5}
    (rank,) = ranks("kineto/pair_rank0.json.gz").values()
    assert joined(rank.calls) == {ALL_OF_NCCL: 10}
    assert operations(rank.calls) == {"all_to_all": 4, "all_reduce": 4, "all_gather": 2}


def test_a_compiled_run_has_no_calls_that_were_only_traced() -> None:
    found = ranks("torch_trace/multirank_matched/matched")
    assert {rank: joined(calls.calls) for rank, calls in found.items()} == {
        0: {ALL_OF_GLOO: 12},
        1: {ALL_OF_GLOO: 12},
        2: {ALL_OF_GLOO: 20},
        3: {ALL_OF_GLOO: 12},
    }


def test_resnet_has_numbers_from_its_execution_trace_and_groups_from_its_profile() -> None:
    (rank,) = ranks("pairs/resnet_110_nccl").values()
    assert joined(rank.calls) == {ALL_OF_NCCL | {"node"}: 21}
    assert rank.calls.calls.sequence.tolist() == list(range(33, 54))


def test_a_recorder_alone() -> None:
    for rank in ranks("fr/healthy8/dumps").values():
        calls = rank.calls.calls
        assert joined(rank.calls) == {RECORDER: len(calls)}
        assert (calls.sequence != UNKNOWN).all()
