"""`tracelink collectives`, and --clock, --ranks, --window and --steps on samples and recorded jobs."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from builders.command_line import Job, Run
from builders.data import traces, truth
from builders.job import START, JobBuilder
from tracelink import samples, schemas
from tracelink._model.clock import Clock
from tracelink._model.columns import NO_TIME
from tracelink._model.communications import Verdict
from tracelink._model.findings import Finding, Severity

# `tracelink collectives`: what ranks did together, as a table, as CSV and as JSON.


MS = 10**6


def built() -> JobBuilder:
    """Three collectives of four ranks and two of a pair; rank 2 comes last, by 3, 1 and 2 ms."""
    made = JobBuilder(clocks=[Clock(rank, low_ns=0, high_ns=0) for rank in range(4)])
    world, pair = (
        made.group(0, 1, 2, 3, name="0", description="default_pg"),
        made.group(0, 2, name="5", description="tp"),
    )
    for place, late in enumerate((3, 1, 2)):
        begin = 10 * place * MS
        spans = dict.fromkeys((0, 1, 3), (begin, begin + 5 * MS))
        known = {"bytes": 4_000_000, "algorithm_gb_s": 2.0, "bus_gb_s": 3.0 + place}
        made.collective(world, {**spans, 2: (begin + late * MS, begin + 5 * MS)}, **known)
    made.collective(pair, {0: (40 * MS, 47 * MS), 2: (40 * MS, 47 * MS)}, "broadcast")
    made.collective(pair, {0: (50 * MS, 51 * MS)}, "barrier", Verdict.MISSING)
    return made


@pytest.fixture
def together(job: Job) -> JobBuilder:
    made = built()
    job.result = made.job()
    return made


def document(tracelink: Run, *options: str) -> Any:
    result = tracelink("collectives", "traces/", "--json", *options)
    made = json.loads(result.stdout)
    jsonschema.validate(made, schemas.load("collectives"))
    assert result.stderr == ""
    return made


def csv_rows(tracelink: Run, tmp_path: Path, *options: str, table: str = "") -> list[dict[str, str]]:
    """The rows of one table that -o writes."""
    assert tracelink("collectives", "traces/", "-o", "out.csv", *options).stderr == ""
    text = (tmp_path / f"out{table}.csv").read_text()
    return list(csv.DictReader(io.StringIO(text)))


def cells(output: str, header: str) -> list[list[str]]:
    """The rows of the table whose first column is `header`."""
    lines = output.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith(f"{header} "))
    rows = lines[first + 1 :]
    return [
        row.split() for row in rows[: next((n for n, row in enumerate(rows) if "  " not in row), len(rows))]
    ]


class TestArguments:
    def test_inputs_and_clock(self, tracelink: Run, job: Job, together: JobBuilder) -> None:
        tracelink("collectives", "traces/", "--fr", "dumps/", "--clock", "collectives", "-j", "3")
        assert job.arguments["paths"] == ("traces/",)
        assert job.arguments["fr"] == ("dumps/",)
        assert (job.arguments["clock"], job.arguments["engine"].jobs) == ("collectives", 3)
        tracelink("collectives", "traces/")
        assert job.arguments["clock"] == "host"


def test_a_step_has_only_its_collectives(tracelink: Run) -> None:
    whole, part = (
        tracelink("collectives", str(samples.path("gpu_pair")), *steps).stdout.split(" collectives")[0]
        for steps in ((), ("--steps", "1"))
    )
    assert (whole, part) == ("14", "7")


class TestPage:
    def test_the_summary_has_counts_the_slowest_collective_and_the_last_rank(
        self, tracelink: Run, together: JobBuilder
    ) -> None:
        assert tracelink("collectives", "traces/").stdout.splitlines()[:4] == [
            "5 collectives in 2 groups on 4 ranks",
            "Slowest: broadcast #0 of group 5 (tp), 7.000 ms.",
            "Most often last: rank 2, in 3 of its 3 collectives; the other ranks waited 18.000 ms for it in total.",
            "Not complete: 1 missing (--sort verdict lists them first).",
        ]

    def test_rows_are_sorted_by_skew_unknown_values_last(self, tracelink: Run, together: JobBuilder) -> None:
        first, second, *_ = cells(tracelink("collectives", "traces/").stdout, "group")
        assert first == [
            *("0", "(default_pg)", "0", "all_reduce", "4", "4,000.0"),
            *("0.000", "2.000", "3.000", "9.000", "2", "3.00", "complete"),
        ]
        assert second[-4] == "6.000"

    @pytest.mark.parametrize(
        ("order", "numbers"),
        [
            ("skew", [0, 2, 1, 3, 4]),
            ("duration", [3, 1, 2, 0, 4]),
            ("wait", [0, 2, 1, 3, 4]),
            ("start", [0, 1, 2, 3, 4]),
            ("bytes", [0, 1, 2, 3, 4]),
            ("bandwidth", [0, 1, 2, 3, 4]),
            ("verdict", [4, 0, 1, 2, 3]),
        ],
    )
    def test_sort_order(self, tracelink: Run, together: JobBuilder, order: str, numbers: list[int]) -> None:
        starts = [row["start_ns"] - START for row in document(tracelink, "--sort", order)["collectives"]]
        assert [[0, 10, 20, 40, 50].index(start // MS) for start in starts] == numbers

    def test_a_group_is_selected_by_name_description_or_part_of_it(
        self, tracelink: Run, together: JobBuilder
    ) -> None:
        for name, count in (("5", 2), ("tp", 2), ("DEFAULT", 3)):
            output = tracelink("collectives", "traces/", "--group", name).stdout
            assert output.splitlines()[0].startswith(f"{count} collectives in 1 group")

    def test_an_unknown_group_is_refused_with_the_known_groups(
        self, tracelink: Run, together: JobBuilder
    ) -> None:
        result = tracelink("collectives", "traces/", "--group", "pp")
        assert result.exit_code == 2
        assert "unknown group 'pp'. Known groups: 0 (default_pg), 5 (tp)." in result.stderr

    def test_a_similar_group_is_suggested(self, tracelink: Run, together: JobBuilder) -> None:
        result = tracelink("collectives", "traces/", "--group", "defualt")
        assert "Did you mean default? Known groups: " in result.stderr

    def test_rows_beyond_the_limit_are_counted(self, tracelink: Run, together: JobBuilder) -> None:
        assert (
            "3 more rows (--limit 0 shows them)."
            in tracelink("collectives", "t/", "--limit", "2").stdout.splitlines()
        )
        assert "more rows" not in tracelink("collectives", "t/", "--limit", "0").stdout

    def test_order_replaces_missing_sequence_numbers(self, tracelink: Run, job: Job) -> None:
        made = JobBuilder()
        group = made.group(0, 1, name="0")
        for place in range(2):
            made.collective(group, {0: (0, 5), 1: (1, 5)}, sequence=-1, order=place)
        job.result = made.job()
        output = tracelink("collectives", "traces/").stdout
        assert ["group", "order"] in [line.split()[:2] for line in output.splitlines()]
        assert [row[1] for row in cells(output, "group")] == ["0", "1"]

    def test_verdicts_are_shown_only_if_one_is_not_complete(
        self, tracelink: Run, together: JobBuilder
    ) -> None:
        assert "verdict" not in tracelink("collectives", "traces/", "--group", "0").stdout

    def test_columns_without_values_are_left_out(self, tracelink: Run, job: Job) -> None:
        made = JobBuilder()
        made.collective(made.group(0, 1, name="0"), {0: (0, 5), 1: (1, 5)}, duration=-1)
        job.result = made.job()
        lines = tracelink("collectives", "traces/").stdout.splitlines()
        (header,) = [line.split() for line in lines if line.startswith("group")]
        assert header == [
            *("group", "sequence", "operation", "ranks", "start", "(µs)", "skew", "(µs)", "wait", "(µs)"),
            *("last", "rank"),
        ]

    def test_collectives_without_start_times_are_counted(
        self, tracelink: Run, job: Job, together: JobBuilder
    ) -> None:
        line = "1 collective without start times: skew and wait are based on the times of the calls."
        assert line not in tracelink("collectives", "traces/").stdout
        together.collective(0, {0: (60, 70), 1: (61, 70)}, start=NO_TIME, end=NO_TIME, duration=-1)
        job.result = together.job()
        assert line in tracelink("collectives", "traces/").stdout.splitlines()

    def test_missing_ranks_are_listed(self, tracelink: Run, job: Job, together: JobBuilder) -> None:
        assert " 1 of 2, not 2 " in tracelink("collectives", "traces/").stdout
        made = JobBuilder()
        group = made.group(*range(0, 64, 2), name="0")
        made.collective(group, {0: (0, 5), 2: (1, 5)}, verdict=Verdict.PARTIAL)
        job.result = made.job()
        assert " 2 of 32, not 4, 6, 8, 10, 12… " in tracelink("collectives", "traces/").stdout

    def test_groups_with_equal_names_are_labelled_with_their_ranks(self, tracelink: Run, job: Job) -> None:
        made = JobBuilder()
        for ranks in ([0, 1], [2, 3]):
            made.collective(made.group(*ranks, name="tp"), dict.fromkeys(ranks, (0, 5)))
        job.result = made.job()
        rows = cells(tracelink("collectives", "traces/").stdout, "group")
        assert [row[:2] for row in rows] == [["tp", "[0-1]"], ["tp", "[2-3]"]]

    def test_clock_uncertainty(self, tracelink: Run, job: Job) -> None:
        made = built()
        made.clocks = [Clock(0, low_ns=0, high_ns=0), Clock(2, offset_ns=5, low_ns=-1_200_000, high_ns=700)]
        job.result = made.job()
        assert (
            "Clock uncertainty is ±1.200 ms: 2 of 5 skews are significant."
            in tracelink("collectives", "t/").stdout
        )
        made.clocks = [Clock(0, low_ns=0, high_ns=0), Clock(2, offset_ns=5)]
        job.result = made.job()
        assert (
            "No skew is significant: the largest is 3.000 ms, the offsets of some clocks are unbounded."
            in tracelink("collectives", "t/").stdout
        )
        made.clocks = [Clock(0), Clock(2)]
        job.result = made.job()
        assert "lock" not in tracelink("collectives", "t/", "--clock", "none").stdout

    def test_no_rank_is_named_if_all_skews_are_within_the_clock_uncertainty(
        self, tracelink: Run, job: Job
    ) -> None:
        made = built()
        made.clocks = [Clock(0, low_ns=0, high_ns=0), Clock(2, low_ns=-3 * MS, high_ns=3 * MS)]
        job.result = made.job()
        assert tracelink("collectives", "traces/").stdout.splitlines()[1:4] == [
            "Slowest: broadcast #0 of group 5 (tp), 7.000 ms.",
            "No skew is significant: the largest is 3.000 ms, clock uncertainty is ±3.000 ms.",
            "Not complete: 1 missing (--sort verdict lists them first).",
        ]

    def test_a_rank_is_named_for_significant_skews_only(self, tracelink: Run, job: Job) -> None:
        made = JobBuilder()
        group = made.group(*range(3), name="0")
        for late, skew in ((0, 1), (0, 1), (0, 1), (2, 9)):
            made.collective(group, {rank: (skew * MS * (rank == late), 20 * MS) for rank in range(3)})
        made.clocks = [
            Clock(0, "a", low_ns=0, high_ns=0),
            Clock(1, "b", low_ns=-1 * MS, high_ns=1 * MS),
            Clock(2, "c", low_ns=-1 * MS, high_ns=1 * MS),
        ]
        job.result = made.job()
        assert tracelink("collectives", "traces/").stdout.splitlines()[2:4] == [
            "Most often last: rank 2, in 1 of its 1 collective with a significant skew; the other ranks waited "
            "18.000 ms for it in total.",
            "Clock uncertainty is ±2.000 ms: 1 of 4 skews is significant.",
        ]

    def test_a_rank_with_an_unbounded_clock_affects_only_its_own_collectives(
        self, tracelink: Run, job: Job
    ) -> None:
        made = JobBuilder()
        near, far = made.group(*range(2), name="0"), made.group(0, 2, name="1")
        made.collective(near, {0: (0, 20 * MS), 1: (3 * MS, 20 * MS)})
        made.collective(far, {0: (0, 20 * MS), 2: (9 * MS, 20 * MS)})
        made.clocks = [
            Clock(0, "a", low_ns=0, high_ns=0),
            Clock(1, "b", low_ns=-MS, high_ns=MS),
            Clock(2, "c"),
        ]
        job.result = made.job()
        assert tracelink("collectives", "traces/").stdout.splitlines()[2:5] == [
            "Most often last: rank 1, in 1 of its 1 collective with a significant skew; the other ranks waited "
            "3.000 ms for it in total.",
            "Clock uncertainty is ±1.000 ms: 1 of 2 skews is significant.",
            "Some skews may be wrong and are not counted: the offsets of some clocks are unbounded "
            "(see `tracelink clocks`).",
        ]

    def test_ranks_of_one_host_need_no_clock(self, tracelink: Run, job: Job) -> None:
        made = JobBuilder()
        group = made.group(*range(2), name="0")
        made.collective(group, {0: (0, 20 * MS), 1: (MS, 20 * MS)})
        made.clocks = [Clock(rank, "a", low_ns=-5 * MS, high_ns=5 * MS) for rank in range(2)]
        made.clocks.append(Clock(2, "b", low_ns=0, high_ns=0))
        job.result = made.job()
        assert (
            "Most often last: rank 1, in 1 of its 1 collective;" in tracelink("collectives", "traces/").stdout
        )

    def test_ranks_that_are_last_equally_often_are_not_named_alone(self, tracelink: Run, job: Job) -> None:
        made = JobBuilder()
        group = made.group(*range(3), name="0")
        for late in (0, 1, 0, 1):
            made.collective(group, {rank: (MS * (rank == late), 20 * MS) for rank in range(3)})
        job.result = made.job()
        assert (
            "No rank is last most often: ranks 0 and 1 are each last in 2 of 4 collectives."
            in tracelink("collectives", "traces/").stdout.splitlines()
        )

    def test_no_collectives(self, tracelink: Run, job: Job) -> None:
        result = tracelink("collectives", "traces/")
        assert result.stdout == "No collectives: the sources record none, or none in the selected group.\n"
        assert result.exit_code == 0

    def test_names_cannot_control_the_terminal(self, tracelink: Run, job: Job) -> None:
        made = JobBuilder()
        made.collective(
            made.group(0, 1, name="\x1b[31mtp", description="a\nb"), {0: (0, 5), 1: (1, 5)}, "all\x07"
        )
        job.result = made.job()
        for how in ((), ("--json",)):
            output = tracelink("collectives", "traces/", *how).stdout
            assert not {"\x1b", "\x07"} & set(output)


class TestMessages:
    @pytest.fixture
    def sent(self, job: Job) -> None:
        made = JobBuilder()
        group = made.group(0, 1, name="0")
        made.sent(group, 0, 1, 0, 2 * MS, bytes=1000, tag=7)
        made.sent(group, 1, 0, 5 * MS, 8 * MS, bytes=500)
        made.sent(group, 1, 0, 9 * MS, None)
        job.result = made.job()

    def test_are_counted(self, tracelink: Run, sent: None) -> None:
        assert "3 point-to-point messages (--messages shows them)." in tracelink("collectives", "t/").stdout

    def test_are_listed_the_longest_first(self, tracelink: Run, sent: None) -> None:
        rows = cells(tracelink("collectives", "t/", "--messages").stdout, "group")
        assert rows == [
            ["0", "1", "0", "-", "500", "5.000", "3.000", "complete"],
            ["0", "0", "1", "7", "1,000", "0.000", "2.000", "complete"],
            ["0", "1", "0", "-", "-", "9.000", "-", "unmatched"],
        ]

    @pytest.mark.parametrize(
        ("order", "tags"), [("start", ["7", "", ""]), ("bytes", ["7", "", ""]), ("skew", ["", "7", ""])]
    )
    def test_as_csv(self, tracelink: Run, sent: None, tmp_path: Path, order: str, tags: list[str]) -> None:
        assert [row["tag"] for row in csv_rows(tracelink, tmp_path, "--sort", order)] == tags


class TestCsv:
    def test_unknown_values_are_empty(self, tracelink: Run, together: JobBuilder, tmp_path: Path) -> None:
        rows = csv_rows(tracelink, tmp_path, table=".collectives")
        assert len(rows) == 5
        assert rows[0] == {
            "group": "0",
            "description": "default_pg",
            "ranks": "0-3",
            "sequence": "0",
            "order": "",
            "operation": "all_reduce",
            "type": "",
            "bytes": "4000000",
            "start_ns": str(START),
            "end_ns": str(START + 5 * MS),
            "duration_ns": str(2 * MS),
            "skew_ns": str(3 * MS),
            "wait_ns": str(9 * MS),
            "last_rank": "2",
            "algorithm_gb_s": "2.0",
            "bus_gb_s": "3.0",
            "verdict": "complete",
        }

    def test_the_part_of_each_rank_is_a_row_of_its_own_table(
        self, tracelink: Run, together: JobBuilder, tmp_path: Path
    ) -> None:
        rows = csv_rows(tracelink, tmp_path, "--limit", "1", table=".participations")
        assert [(row["rank"], row["wait_ns"], row["collective"]) for row in rows] == [
            *(("0", str(3 * MS), "0"), ("1", str(3 * MS), "0"), ("3", str(3 * MS), "0"), ("2", "0", "0")),
        ]
        assert rows[0]["sm_clock_mhz"] == ""

    def test_without_rows_there_is_still_a_header(self, tracelink: Run, job: Job, tmp_path: Path) -> None:
        assert csv_rows(tracelink, tmp_path, table=".collectives") == []
        assert (tmp_path / "out.collectives.csv").read_text().startswith("group,description,ranks,")

    def test_errors_set_the_exit_code(
        self, tracelink: Run, job: Job, together: JobBuilder, tmp_path: Path
    ) -> None:
        job.findings = [Finding(Severity.ERROR, "unreadable", "b.json: the file is empty.")]
        result = tracelink("collectives", "traces/", "-o", "out.csv", "-q")
        assert result.exit_code == 1
        assert result.stderr == "tracelink: error: b.json: the file is empty.\n"


class TestJson:
    def test_a_collective_with_its_participations(self, tracelink: Run, together: JobBuilder) -> None:
        first = document(tracelink, "--sort", "start")["collectives"][0]
        participation = first.pop("participations")
        assert first == {
            "group": "0",
            "description": "default_pg",
            "ranks": [0, 1, 2, 3],
            "sequence": 0,
            "order": None,
            "operation": "all_reduce",
            "type": None,
            "bytes": 4_000_000,
            "start_ns": START,
            "end_ns": START + 5 * MS,
            "duration_ns": 2 * MS,
            "skew_ns": 3 * MS,
            "wait_ns": 9 * MS,
            "last_rank": 2,
            "algorithm_gb_s": 2.0,
            "bus_gb_s": 3.0,
            "verdict": "complete",
        }
        assert [row["rank"] for row in participation] == [0, 1, 3, 2]
        assert participation[-1] == {
            "rank": 2,
            "enqueued_ns": START + 3 * MS,
            "start_ns": START + 3 * MS,
            "end_ns": START + 5 * MS,
            "wait_ns": 0,
            "evidence": "kernel",
            "state": "completed",
        }

    def test_unmatched_calls_are_listed_separately_and_unknown_values_are_null(
        self, tracelink: Run, job: Job
    ) -> None:
        made = built()
        made.unmatched(0, 3)
        job.result = made.job()
        result = document(tracelink)
        assert len(result["collectives"]) == 5
        (alone,) = result["unmatched"]
        assert {name for name, value in alone.items() if value is not None} == {
            *("group", "description", "ranks", "operation", "verdict", "participations"),
        }
        assert alone["participations"] == [
            {
                "rank": 3,
                "enqueued_ns": None,
                "start_ns": None,
                "end_ns": None,
                "wait_ns": None,
                "evidence": "none",
                "state": None,
            }
        ]

    def test_messages(self, tracelink: Run, job: Job) -> None:
        made = JobBuilder()
        made.sent(made.group(0, 1, name="0"), 0, 1, 0, None, bytes=1000, order=3)
        job.result = made.job()
        assert document(tracelink)["messages"] == [
            {
                "group": "0",
                "description": "",
                "source": 0,
                "target": 1,
                "tag": None,
                "order": 3,
                "bytes": 1000,
                "sent_ns": START,
                "received_ns": None,
                "verdict": "unmatched",
            }
        ]

    def test_a_call_of_an_unknown_group(self, tracelink: Run, job: Job) -> None:
        made = JobBuilder()
        made.unmatched(-1, 3)
        job.result = made.job()
        (alone,) = document(tracelink)["unmatched"]
        assert (alone["group"], alone["description"], alone["ranks"]) == (None, None, [3])
        assert cells(tracelink("collectives", "traces/").stdout, "operation") == [
            ["all_reduce", "1", "unmatched"]
        ]

    def test_sorted_and_limited_too(self, tracelink: Run, together: JobBuilder) -> None:
        result = document(tracelink, "--sort", "duration", "--limit", "1", "--group", "tp")
        assert [row["operation"] for row in result["collectives"]] == ["broadcast"]

    def test_findings(self, tracelink: Run, job: Job, together: JobBuilder) -> None:
        job.findings = [Finding(Severity.WARNING, "mismatch", "ranks differ.", 2)]
        (found,) = document(tracelink)["findings"]
        assert (found["reason"], found["count"]) == ("mismatch", 2)
        assert tracelink("collectives", "traces/").exit_code == 0


def test_quiet_prints_nothing(tracelink: Run, together: JobBuilder) -> None:
    result = tracelink("collectives", "traces/", "-q")
    assert (result.stdout, result.stderr, result.exit_code) == ("", "", 0)


# `collectives`, `clocks` and a cut `merge` on recorded jobs.


def document_of(tracelink: Run, command: str, *arguments: str) -> Any:
    result = tracelink(command, *arguments, "--json")
    assert result.exit_code == 0, result.output
    made = json.loads(result.stdout)
    jsonschema.validate(made, schemas.load(command))
    return made


def slices(path: Path) -> list[Any]:
    return [event for event in json.loads(path.read_bytes())["traceEvents"] if event["ph"] == "X"]


class TestSample:
    FOLDER = str(samples.path("cpu_job"))

    def test_collectives_of_both_ranks(self, tracelink: Run) -> None:
        made = document_of(tracelink, "collectives", self.FOLDER)
        assert made["collectives"]
        assert made["unmatched"] == []
        for row in made["collectives"]:
            assert [part["rank"] for part in row["participations"]] == row["ranks"] == [0, 1]
            assert row["verdict"] == "complete"
            assert row["skew_ns"] >= 0
            assert row["last_rank"] in (0, 1)

    def test_the_page_lists_as_many(self, tracelink: Run) -> None:
        count = len(document_of(tracelink, "collectives", self.FOLDER)["collectives"])
        output = tracelink("collectives", self.FOLDER, "--limit", "0").stdout
        assert output.splitlines()[0].startswith(f"{count} collectives in ")
        rows = output.split("last rank  bus (GB/s)\n")[1].splitlines()[:count]
        assert all(row.startswith(("0 (default_pg)", "1 (tensor_parallel)")) for row in rows)
        assert len(rows) == count

    def test_clocks_that_were_printed_can_be_read(self, tracelink: Run, tmp_path: Path) -> None:
        made = document_of(tracelink, "clocks", self.FOLDER, "--clock", "collectives")
        assert [rank["rank"] for rank in made["ranks"]] == [0, 1]
        (tmp_path / "clocks.json").write_text(json.dumps(made))
        again = document_of(tracelink, "clocks", self.FOLDER, "--clock", str(tmp_path / "clocks.json"))
        assert again["ranks"] == made["ranks"]

    def test_an_unknown_rank_is_refused_with_the_known_ranks(self, tracelink: Run) -> None:
        result = tracelink("merge", self.FOLDER, "--ranks", "1-3")
        assert result.exit_code == 2
        assert "there is no rank 2-3" in result.stderr
        assert "0-1" in result.stderr

    def test_an_empty_window_is_refused_with_the_recorded_time(self, tracelink: Run) -> None:
        result = tracelink("merge", self.FOLDER, "--window", "1000s..")
        assert result.exit_code == 2
        assert "the selection is empty. Available: ranks 0-1 with " in result.stderr
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


class TestOnEightRanks:
    def test_every_collective_of_every_group(self, tracelink: Run) -> None:
        made = document_of(tracelink, "collectives", str(traces("cluster")))
        assert Counter(str(row["ranks"]) for row in made["collectives"]) == (
            Counter(str(one["ranks"]) for one in truth("cluster")["collectives"])
        )
        assert all(len(row["participations"]) == len(row["ranks"]) for row in made["collectives"])
        assert made["unmatched"] == []
        assert {message["verdict"] for message in made["messages"]} == {"complete"}

    def test_only_the_events_of_the_selected_step(self, tracelink: Run, tmp_path: Path) -> None:
        result = tracelink("merge", str(traces("cluster")), "-o", str(tmp_path / "cut.json"), "--steps", "2")
        assert result.exit_code == 0
        marks = Counter(
            event["name"]
            for event in slices(tmp_path / "cut.json")
            if event["name"].startswith("ProfilerStep#") and event["cat"] == "user_annotation"
        )
        assert marks == {"ProfilerStep#2": 8}


def test_who_is_missing_in_a_job_that_hangs(tracelink: Run) -> None:
    made = document_of(
        tracelink, "collectives", str(traces("gloo/never_joined/settled")), "--sort", "verdict"
    )
    worst = made["collectives"][0]
    present = [part["rank"] for part in worst["participations"]]
    assert (worst["verdict"], worst["group"], worst["sequence"]) == ("missing", "0", 7)
    assert present == [0, 1, 2, 4, 5, 6, 7]
    assert {row["verdict"] for row in made["collectives"] if 3 not in row["ranks"]} == {"complete", "missing"}
