"""`collectives`, `clocks` and a cut `merge` on recorded jobs."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from conftest import Run

from builders.data import shared
from tracelink import samples, schemas


def document(tracelink: Run, command: str, *arguments: str) -> Any:
    result = tracelink(command, *arguments, "--json")
    assert result.exit_code == 0, result.output
    made = json.loads(result.stdout)
    jsonschema.validate(made, schemas.load(command))
    return made


def slices(path: Path) -> list[Any]:
    return [event for event in json.loads(path.read_bytes())["traceEvents"] if event["ph"] == "X"]


class TestOnTheSample:
    FOLDER = str(samples.path("cpu_job"))

    def test_collectives_of_both_ranks(self, tracelink: Run) -> None:
        made = document(tracelink, "collectives", self.FOLDER)
        assert made["collectives"]
        assert made["unmatched"] == []
        for row in made["collectives"]:
            assert [part["rank"] for part in row["participations"]] == row["ranks"] == [0, 1]
            assert row["verdict"] == "complete"
            assert row["skew_ns"] >= 0
            assert row["last_rank"] in (0, 1)

    def test_the_page_lists_as_many(self, tracelink: Run) -> None:
        count = len(document(tracelink, "collectives", self.FOLDER)["collectives"])
        said = tracelink("collectives", self.FOLDER, "--limit", "0").stdout
        assert said.splitlines()[0].startswith(f"{count} collectives in ")
        rows = said.split("last rank  bus GB/s\n")[1].splitlines()[:count]
        assert all(row.startswith(("0 default_pg", "1 tensor_parallel")) for row in rows)
        assert len(rows) == count

    def test_clocks_that_were_written_can_be_given_back(self, tracelink: Run, tmp_path: Path) -> None:
        made = document(tracelink, "clocks", self.FOLDER, "--clock", "collectives")
        assert [rank["rank"] for rank in made["ranks"]] == [0, 1]
        (tmp_path / "clocks.json").write_text(json.dumps(made))
        again = document(tracelink, "clocks", self.FOLDER, "--clock", str(tmp_path / "clocks.json"))
        assert again["ranks"] == made["ranks"]

    def test_a_rank_that_is_not_there_is_refused_with_those_there_are(self, tracelink: Run) -> None:
        result = tracelink("merge", self.FOLDER, "--ranks", "1-3")
        assert result.exit_code == 2
        assert "there is no rank 2-3" in result.stderr
        assert "0-1" in result.stderr

    def test_a_window_of_which_nothing_is_left_is_refused_with_what_there_is(self, tracelink: Run) -> None:
        result = tracelink("merge", self.FOLDER, "--window", "1000s..")
        assert result.exit_code == 2
        assert "nothing is selected. There is: ranks 0-1 with " in result.stderr
        assert not Path("merged.json").exists()

    def test_only_one_rank_and_only_collectives(self, tracelink: Run, tmp_path: Path) -> None:
        whole, cut = tmp_path / "whole.json", tmp_path / "cut.json"
        assert tracelink("merge", self.FOLDER, "-o", str(whole)).exit_code == 0
        result = tracelink("merge", self.FOLDER, "-o", str(cut), "--ranks", "1", "--only", "collectives")
        assert result.exit_code == 0
        assert "are outside the selection." in result.stdout
        names = Counter(event["name"] for event in slices(cut))
        assert names
        assert names <= Counter(event["name"] for event in slices(whole))
        assert all(name.startswith(("gloo:", "c10d::")) for name in names)


@pytest.fixture(scope="module")
def matched8() -> str:
    return str(shared("matched8"))


class TestOnEightRanks:
    def test_every_collective_of_every_group(self, tracelink: Run, matched8: str) -> None:
        made = document(tracelink, "collectives", matched8)
        assert Counter(len(row["ranks"]) for row in made["collectives"]) == {8: 30, 4: 28, 2: 60}
        assert all(len(row["participations"]) == len(row["ranks"]) for row in made["collectives"])
        assert made["unmatched"] == []
        assert {message["verdict"] for message in made["messages"]} == {"complete"}

    def test_the_events_of_a_step_and_of_no_other(
        self, tracelink: Run, matched8: str, tmp_path: Path
    ) -> None:
        result = tracelink("merge", matched8, "-o", str(tmp_path / "cut.json"), "--steps", "3")
        assert result.exit_code == 0
        marks = Counter(
            event["name"] for event in slices(tmp_path / "cut.json") if "## step" in event["name"]
        )
        assert marks == {"## step 3 ##": 8}


def test_who_is_missing_in_a_job_that_hangs(tracelink: Run) -> None:
    made = document(tracelink, "collectives", str(shared("fr/skip_hang/dumps_hang")), "--sort", "verdict")
    worst = made["collectives"][0]
    present = [part["rank"] for part in worst["participations"]]
    assert (worst["verdict"], worst["group"], worst["sequence"]) == ("missing", "0", 9)
    assert present == [0, 1, 2, 4, 5, 6, 7]
    assert {row["verdict"] for row in made["collectives"][1:]} == {"complete"}
