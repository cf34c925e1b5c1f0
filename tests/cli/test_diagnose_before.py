"""`tracelink diagnose --before`, and folders with several dumps of a rank."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema

import tracelink as library
from builders.command_line import Run
from builders.dumps import Entries, dumps, hang, steps
from builders.html_page import read_html
from builders.recorder import CREATED
from tracelink import schemas
from tracelink._hang.facts.model import Movement
from tracelink.cli.main import IN_FLIGHT, NO, UNREADABLE, USAGE

SECOND = 1_000_000_000
VERDICT = "Rank 2 never joined all_reduce #3 of group 0 (default_pg); 3 ranks wait."
SINCE = "Since the earlier dumps (06:29:22.603 UTC or later): "


def later(entries: Entries, by_ns: int) -> Entries:
    """The same calls of another job."""
    return {
        rank: [entry | {"time_created_ns": entry["time_created_ns"] + by_ns} for entry in rows]
        for rank, rows in entries.items()
    }


def document(tracelink: Run, *arguments: str) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(tracelink("diagnose", *arguments, "--json").stdout)
    jsonschema.validate(made, schemas.load("diagnose"))
    return made


def test_ranks_that_recorded_nothing_since(tracelink: Run) -> None:
    dumps(Path("earlier"), hang(4, culprit=2))
    dumps(Path("now"), hang(4, culprit=2))
    result = tracelink("diagnose", "now", "--before", "earlier")
    assert (result.exit_code, result.stdout.splitlines()[:2]) == (
        NO,
        [VERDICT, f"{SINCE}ranks 0-3 recorded nothing new."],
    )
    assert document(tracelink, "now", "-b", "earlier")["movement"] == {
        "moved": [],
        "unmoved": [0, 1, 2, 3],
        "unknown": [],
        "before_ns": CREATED + 3 * SECOND + 3000,
    }
    assert document(tracelink, "now")["movement"] is None


def test_call_that_all_ranks_joined_is_stuck_if_it_is_in_both(tracelink: Run) -> None:
    for folder, count in (("first", 2), ("second", 3), ("third", 3)):
        dumps(Path(folder), {rank: steps(rank, count) for rank in range(4)})
    verdicts = [
        (document(tracelink, *arguments)["verdict"], tracelink("diagnose", *arguments).exit_code)
        for arguments in (
            ["second"],
            ["second", "--before", "first"],
            ["third", "--before", "second"],
            ["third", "--before", "first"],
        )
    ]
    assert verdicts == [
        ("in_flight", IN_FLIGHT),
        ("in_flight", IN_FLIGHT),
        ("problem", NO),
        ("in_flight", IN_FLIGHT),
    ]
    (problem,) = document(tracelink, "third", "--before", "second")["problems"]
    assert (problem["kind"], problem["sequence"], problem["waiting"]) == ("timed_out", 3, [0, 1, 2, 3])


def test_rank_that_only_is_late_in_each_dump(tracelink: Run) -> None:
    """The other ranks wait for it in both, but each time in another call."""
    dumps(Path("earlier"), {0: steps(0, 3), 1: steps(1, 3), 2: steps(2, 3)[:2]})
    dumps(Path("now"), {0: steps(0, 5), 1: steps(1, 5), 2: steps(2, 5)[:4]})
    made = document(tracelink, "now", "--before", "earlier")
    assert [(one["kind"], one["culprits"]) for one in made["problems"]] == [("in_flight", [2])]


def test_ranks_that_moved(tracelink: Run) -> None:
    dumps(Path("earlier", "host0"), {0: steps(0, 3), 1: steps(1, 3)}, world=4)
    dumps(Path("earlier", "host1"), {2: steps(2, 2)}, world=4)
    dumps(Path("now"), {rank: steps(rank, 3)[: 2 if rank == 2 else 3] for rank in range(4)})
    result = tracelink("diagnose", "now", "--before", "earlier/host0", "--before", "earlier/host1")
    assert result.stdout.splitlines()[1] == (
        f"{SINCE}ranks 0 and 1 recorded nothing new; rank 2 moved on; rank 3 cannot be compared."
    )


def test_library(tmp_path: Path) -> None:
    now, earlier = dumps(tmp_path / "now", hang(4)), dumps(tmp_path / "earlier", hang(4))
    movement = library.diagnose(now, before=earlier).movement
    assert movement
    assert (movement.moved, movement.unmoved) == ((), (0, 1, 2, 3))
    assert library.diagnose(now, before=[earlier / "comm_lib_trace_rank_1"]).movement == Movement(
        (), (1,), (0, 2, 3), CREATED + 3 * SECOND + 1000
    )


def test_names_without_ranks(tracelink: Run) -> None:
    for folder in ("earlier", "now"):
        (dumps(Path(folder), hang(2, culprit=1)) / "comm_lib_trace_rank_0").rename(Path(folder, "odd"))
    named = ("--rank", "odd=0")
    assert document(tracelink, "now", "--before", "earlier", *named)["movement"]["unmoved"] == [0, 1]


def test_dumps_of_another_job_are_not_used(tracelink: Run) -> None:
    dumps(Path("earlier"), later(hang(4), -100 * SECOND))
    dumps(Path("now"), hang(4))
    made = document(tracelink, "now", "--before", "earlier")
    assert (made["movement"], [item["reason"] for item in made["findings"]]) == (None, ["before_other_job"])


def test_earlier_dumps_that_are_missing_are_an_error(tracelink: Run) -> None:
    dumps(Path("now"), hang(4))
    Path("earlier").mkdir()
    result = tracelink("diagnose", "now", "--before", "earlier")
    assert (result.exit_code, result.stderr) == (
        UNREADABLE,
        "tracelink: --before: no flight-recorder dump found: there are no files. "
        "Name the earlier dumps of the same job, or leave out --before.\n",
    )


def test_the_same_dumps_are_an_error(tracelink: Run) -> None:
    folder = dumps(Path("now"), hang(4))
    result = tracelink("diagnose", "now", "--before", str(folder.resolve()))
    assert (result.exit_code, result.stderr) == (
        USAGE,
        "tracelink: --before names the same files as PATHS. Name dumps that were taken earlier: tracelink diagnose "
        "now/ --before earlier/\n",
    )


def test_newer_dumps_are_an_error(tracelink: Run) -> None:
    dumps(Path("earlier"), {rank: steps(rank, 2) for rank in range(4)})
    dumps(Path("now"), hang(4, culprit=2))
    result = tracelink("diagnose", "earlier", "--before", "now")
    assert (result.exit_code, result.stderr) == (
        USAGE,
        "tracelink: the dumps of --before are newer than the others. Give the earlier dumps with --before.\n",
    )


def test_generations_in_one_tree(tracelink: Run) -> None:
    dumps(Path("dumps", "t1"), {rank: steps(rank, 2) for rank in range(4)})
    dumps(Path("dumps", "t2"), hang(4, culprit=2))
    result = tracelink("diagnose", "dumps")
    moved = "Since the earlier dumps (06:29:21.603 UTC or later): ranks 0-3 moved on."
    assert result.stdout.splitlines()[:2] == [VERDICT, moved]
    assert (
        "The same processes wrote dumps 2 times. The newest are diagnosed: dumps/t2. They are compared with the "
        "earlier ones: dumps/t1 (4 dumps).\n"
    ) in result.stdout
    tracelink("diagnose", "dumps", "-o", "report.html")
    assert moved in read_html(Path("report.html").read_text()).text


def test_attempts(tracelink: Run) -> None:
    dumps(Path("dumps", "attempt_0"), hang(4, culprit=1))
    dumps(Path("dumps", "attempt_1"), later(hang(4, culprit=2), 60 * SECOND))
    lines = tracelink("diagnose", "dumps").stdout.splitlines()
    assert lines[0] == VERDICT
    assert any(
        "Not diagnosed: dumps/attempt_0 (4 dumps). To diagnose an earlier attempt, name its folder: dumps/attempt_0."
        in line
        for line in lines
    )
