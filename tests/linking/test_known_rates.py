"""The rates that are known for the shared traces."""

from pathlib import Path

import pytest

import tracelink

SHARED = Path(__file__).parents[2].parent / "shared" / "data"


def linked(*paths: str) -> dict[int, dict[str, tuple[int, int]]]:
    missing = [path for path in paths if not (SHARED / path).exists()]
    if missing:
        pytest.skip(f"shared data are not here: {missing[0]}")
    graph = tracelink.load([SHARED / path for path in paths], jobs=1)
    return {
        rank: {report.relation: (report.linked, report.candidates) for report in reports}
        for rank, reports in graph.reports.items()
    }


@pytest.mark.parametrize(
    ("trace", "launches"),
    [
        ("nccl_data", (3774, 3774)),
        ("cuda_graphs", (6875, 7747)),
        ("h100_qwen", (1198, 1707)),
        ("mi300_resnet", (2685, 3653)),
    ],
)
def test_launches(trace: str, launches: tuple[int, int]) -> None:
    (rank,) = linked(f"kineto/{trace}.json.gz").values()
    assert rank["launches"] == launches


def test_backward_arrows() -> None:
    (rank,) = linked("kineto/nccl_data.json.gz").values()
    assert rank["backward_of"] == (543, 543)


def test_matched8() -> None:
    ranks = linked("matched8")
    assert {rank: relations["same.et_kineto"] for rank, relations in ranks.items()} == dict.fromkeys(
        range(8), (1436, 1436)
    )
    assert sum(relations["same.recorder_kineto"][0] for relations in ranks.values()) == 368
    assert all(relations["same.recorder_kineto"] == (46, 46) for relations in ranks.values())


def test_resnet_and_simple_add() -> None:
    assert linked("pairs/resnet_110_nccl")[0]["same.et_kineto"] == (14388, 14389)
    assert linked("pairs/simple_add")[0]["same.et_kineto"] == (36, 36)


def test_dlrm_without_record_function_ids() -> None:
    ranks = linked("pairs/dlrm8")
    assert {rank: relations["same.et_kineto"] for rank, relations in ranks.items()} == dict.fromkeys(
        range(8), (1672, 1672)
    )
