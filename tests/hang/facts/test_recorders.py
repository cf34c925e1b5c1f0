"""Several recorders of a rank: which dumps are of which, and one recording from all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

import tracelink
from builders.dumps import dumps, hang, steps
from builders.recorder import dump, pickled, process_group
from tracelink._hang.facts.recordings import split_by_recorder
from tracelink._model.records import Recording, Records, Requests
from tracelink._model.trace import SourceInfo

RANKS = 4


def recording(*groups: str) -> Recording:
    return Recording(SourceInfo("x", "flight-recorder", recorder=groups), [], Records.of(0), Requests.empty())


def of_backend(backend: str, folder: Path, *, culprit: int | None = None, group: str = "0") -> Path:
    """A dump of each rank by one backend: two finished collectives; with a culprit, the others wait in a third."""
    folder.mkdir(exist_ok=True, parents=True)
    text = "default_pg" if group == "0" else "tp"
    for rank in range(RANKS):
        entries = [
            entry | {"profiling_name": f"{backend}:all_reduce", "record_id": number}
            for number, entry in enumerate(steps(rank, 3, group=(group, text)))
        ]
        entries = entries[: 2 if culprit in (None, rank) else None]
        facts = process_group(group, list(range(RANKS)), text)
        (folder / f"{backend}_trace_rank_{rank}").write_bytes(pickled(dump(*entries, pg_config=facts)))
    return folder


@pytest.mark.parametrize(
    ("dumps_of", "parts"),
    [
        ([(0, ("nccl:0",)), (1, ("nccl:0",))], [[0, 1]]),
        ([(0, ("nccl:0",)), (0, ("nccl:0",))], [[0, 1]]),
        ([(0, ("nccl:0",)), (0, ("gloo:0",))], [[0], [1]]),
        ([(0, ("nccl:0",)), (1, ("gloo:0",))], [[0, 1]]),
        ([(0, ("nccl:0", "nccl:1")), (0, ("nccl:1",)), (0, ("nccl:2",))], [[0, 1], [2]]),
        ([(0, ("nccl:0",)), (0, ("gloo:0",)), (1, ())], [[0, 2], [1]]),
        ([(0, ()), (0, ())], [[0, 1]]),
    ],
)
def test_dumps_of_a_rank_without_a_common_group_are_of_different_recorders(
    dumps_of: list[tuple[int, tuple[str, ...]]], parts: list[list[int]]
) -> None:
    given = [(rank, recording(*groups)) for rank, groups in dumps_of]
    places = {id(own): place for place, (_, own) in enumerate(given)}
    assert [[places[id(own)] for _, own in part] for part in split_by_recorder(given)] == parts


def test_two_backends_of_one_group_are_two_groups_of_the_rank(tmp_path: Path) -> None:
    of_backend("nccl", tmp_path)
    of_backend("gloo", tmp_path, culprit=2)
    diagnosis = tracelink.diagnose(tmp_path)
    assert [problem.culprits for problem in diagnosis.problems] == [(2,)]
    assert "all_reduce #3 of group 0 (gloo)" in diagnosis.problems[0].message
    (finding,) = [finding for finding in diagnosis.findings if finding.reason == "recorders"]
    assert finding.message == (
        "Ranks have dumps of 2 recorders: gloo and nccl. Those of a rank are read as one."
    )


def test_recorders_of_different_groups_keep_their_names(tmp_path: Path) -> None:
    of_backend("nccl", tmp_path / "a")
    of_backend("nccl", tmp_path / "b", group="14", culprit=1)
    diagnosis = tracelink.diagnose(tmp_path)
    assert [problem.culprits for problem in diagnosis.problems] == [(1,)]
    assert "group 14" in diagnosis.problems[0].message


def test_copies_and_generations_of_recorders_are_recognised(tmp_path: Path) -> None:
    for folder in ("one", "copy"):
        of_backend("nccl", tmp_path / folder)
        of_backend("gloo", tmp_path / folder)
    diagnosis = tracelink.diagnose(tmp_path)
    assert (diagnosis.problems, diagnosis.present) == ([], [*range(RANKS)])


def test_two_jobs_of_one_recorder(tmp_path: Path) -> None:
    dumps(tmp_path / "one", hang())
    later = {
        rank: [entry | {"time_created_ns": entry["time_created_ns"] + 7} for entry in rows]
        for rank, rows in hang().items()
    }
    dumps(tmp_path / "two", later)
    assert len(tracelink.diagnose(tmp_path).other_jobs) == 1


def test_a_merge_keeps_recorders_apart(tmp_path: Path) -> None:
    of_backend("nccl", tmp_path)
    of_backend("gloo", tmp_path, culprit=2)
    graph = tracelink.load(tmp_path, jobs=1)
    assert [group.name for group in graph.groups] == ["0", "0 (gloo)"]
    table = graph.table("collectives")
    assert [
        *zip(table["group"].tolist(), table["sequence"].tolist(), table["verdict"].tolist(), strict=True)
    ] == [
        *[(0, number, "complete") for number in (1, 2)],
        *[(1, number, "complete") for number in (1, 2)],
        (1, 3, "missing"),
    ]
