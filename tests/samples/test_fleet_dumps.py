"""Dumps of very many ranks: each says what a recorder would, and everything has its partners."""

from __future__ import annotations

import pickle
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from generators.fleet_dumps import Fleet, write_dumps
from tracelink._api.functions import linked_job

FLEET = Fleet(ranks=16, entries=60, tensor_parallel=2, stages=4)


@pytest.fixture(scope="module")
def entries(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[dict[str, Any]]]:
    """Of each rank, with the members of the entry's group."""
    folder = tmp_path_factory.mktemp("dumps")
    size = write_dumps(FLEET, folder)
    assert size == sum(path.stat().st_size for path in folder.iterdir())
    dumps = {rank: pickle.loads((folder / f"nccl_trace_rank_{rank}").read_bytes()) for rank in range(16)}
    return {
        rank: [
            {**entry, "members": content["pg_config"][entry["process_group"][0]]["ranks"]}
            for entry in content["entries"]
        ]
        for rank, content in dumps.items()
    }


def test_every_collective_has_all_its_members(entries: dict[int, list[dict[str, Any]]]) -> None:
    ranks: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for rank, recorded in entries.items():
        for entry in recorded:
            if not entry["is_p2p"]:
                number = (entry["process_group"][0], entry["collective_seq_id"])
                ranks[*number, entry["profiling_name"], entry["members"], str(entry["input_sizes"])].append(
                    rank
                )
    assert {str(sorted(found)) for found in ranks.values()} == {key[3] for key in ranks}
    assert all(str(sorted(found)) == key[3] for key, found in ranks.items())
    assert len(ranks) == len({key[:2] for key in ranks}) == FLEET.collectives


def test_every_message_has_two_ends(entries: dict[int, list[dict[str, Any]]]) -> None:
    sent: Counter[tuple[str, str, str]] = Counter()
    received: Counter[tuple[str, str, str]] = Counter()
    for recorded in entries.values():
        for entry in recorded:
            verb, _, ends = entry["profiling_name"].removeprefix("nccl:").partition(" ")
            if verb == "send":
                source, target = ends.split("->")
                sent[entry["process_group"][0], source, target] += 1
            elif verb == "recv":
                target, source = ends.split("<-")
                received[entry["process_group"][0], source, target] += 1
    assert sent == received
    assert sent.total() == FLEET.messages


def test_a_batch_has_one_number_and_only_its_end_is_followed(
    entries: dict[int, list[dict[str, Any]]],
) -> None:
    batches: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for entry in entries[5]:
        if entry["is_p2p"]:
            batches[entry["p2p_seq_id"]].append(entry)
    words = [[entry["profiling_name"].split()[0] for entry in batch] for batch in batches.values()]
    batch = ["nccl:send", "nccl:recv", "nccl:coalesced"]
    assert words == [["nccl:send"], ["nccl:recv"], batch] * 3
    assert [entry["state"] for entry in batches[3]] == ["scheduled", "scheduled", "completed"]


def test_ranks_have_times_of_their_own_and_nobody_is_done_before_all_have_begun(
    entries: dict[int, list[dict[str, Any]]],
) -> None:
    world = [
        [entry for entry in recorded if entry["process_group"] == ("0", "default_pg")]
        for recorded in entries.values()
    ]
    for together in zip(*world, strict=True):
        created = [entry["time_created_ns"] for entry in together]
        assert len(set(created)) == 16
        assert max(created) < min(entry["time_discovered_completed_ns"] for entry in together)


def test_without_a_pipeline_there_are_collectives_only(tmp_path: Path) -> None:
    fleet = Fleet(ranks=16, entries=60, tensor_parallel=2, stages=4, pipelined=False)
    write_dumps(fleet, tmp_path)
    graph = linked_job([str(tmp_path)])
    words = [graph.strings[code] for code in graph.collectives.verdict.tolist()]
    assert words == ["complete"] * fleet.collectives
    assert len(graph.messages) == fleet.messages == 0
    content = pickle.loads((tmp_path / "nccl_trace_rank_5").read_bytes())
    assert [group["desc"] for group in content["pg_config"].values()] == [
        "default_pg",
        "tensor_parallel",
        "data_parallel",
    ]
    assert len(content["entries"]) == 60
    assert not any(entry["is_p2p"] for entry in content["entries"])
