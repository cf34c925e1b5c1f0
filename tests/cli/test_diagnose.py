"""`tracelink diagnose`: verdict, database, HTML page, and profiles next to dumps."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sqlite3
from pathlib import Path

import click
import jsonschema
import orjson
import pytest

import tracelink
from builders.command_line import Run
from builders.data import HEALTHY, traces
from builders.dumps import Entries, hang, healthy, stack, steps
from builders.dumps import dumps as dump_builders
from builders.dumps import dumps as dumps_for_page
from builders.dumps import dumps as profiled_dumps
from builders.html_page import read_html
from builders.kineto import cpu_op, trace, write
from builders.recorder import collective, dump, pickled, process_group
from builders.witnesses import LOADER, call, loading, profile
from tracelink import schemas
from tracelink._hang.facts.model import Kind, Stage
from tracelink.cli import main
from tracelink.cli.main import FINE, IN_FLIGHT, NO, UNREADABLE, USAGE

# `tracelink diagnose` on folders of dumps: verdict, evidence, advice, exit codes.


HANG = """\
Rank 2 never joined all_reduce #3 of group 0 (default_pg); 3 ranks wait.

rank  call           group           state    called from
2     all_reduce #2  0 (default_pg)  done     step (train.py:20) < main (train.py:200)
0     all_reduce #3  0 (default_pg)  retired  step (train.py:30) < main (train.py:200)

Next: Check what rank 2 is doing now: run py-spy dump --pid PID on its host, and read the end of its log. Its last \
call was at train.py:20 (step), the others wait at train.py:30 (step): between these lines look for a branch, a loop \
or an exception that only it takes.

group  description  ranks   last collective  #  state
0      default_pg   2       all_reduce       2  finished
0      default_pg   0-1, 3  all_reduce       3  waiting
"""


def test_a_hang_on_one_screen(tracelink: Run) -> None:
    result = tracelink("diagnose", str(dump_builders(Path("dumps"), hang(4, culprit=2))))
    assert (result.exit_code, result.stdout, result.stderr) == (NO, HANG, "")


def test_quiet_prints_the_verdict(tracelink: Run) -> None:
    result = tracelink("diagnose", str(dump_builders(Path("dumps"), hang(4, culprit=2))), "-q")
    assert (result.exit_code, result.stdout) == (NO, HANG.splitlines(keepends=True)[0])


def test_a_healthy_job_and_what_was_checked(tracelink: Run) -> None:
    folder = str(dump_builders(Path("dumps"), healthy(4)))
    output = (
        "No problem found: 4 ranks, 1 group, 2 collectives, 8 entries. "
        "All ranks joined; operations, types and sizes agree.\n"
    )
    result = tracelink("diagnose", folder)
    assert (result.exit_code, result.stdout) == (FINE, output)
    quiet = tracelink("diagnose", folder, "-q")
    assert (quiet.exit_code, quiet.stdout) == (FINE, "")


def test_quiet_prints_errors(tracelink: Run) -> None:
    folder = dump_builders(Path("dumps"), healthy(4))
    damaged = folder / "comm_lib_trace_rank_1"
    damaged.write_bytes(damaged.read_bytes()[:-20])
    result = tracelink("diagnose", str(folder), "-q")
    assert result.stderr.startswith(f"tracelink: error: {damaged}: it ends after ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("option", [("-o", "no/page.html"), ("-o", "no/flight.sqlite")])
def test_a_missing_folder_of_an_output_is_an_error_before_dumps_are_read(
    tracelink: Run, option: tuple[str, str]
) -> None:
    result = tracelink("diagnose", "nothing", *option)
    assert (result.exit_code, result.stderr) == (
        USAGE,
        f"tracelink: {option[1]}: cannot be written: there is no folder no. Make it: mkdir -p no\n",
    )


def test_quiet_says_what_gloo_does_not_record(tracelink: Run) -> None:
    entries = {rank: [collective("gloo:all_reduce", retired=True)] for rank in range(2)}
    result = tracelink("diagnose", str(dump_builders(Path("dumps"), entries)), "-q")
    assert result.exit_code == FINE
    assert result.stdout.startswith(
        "No problem found. If this job hangs, it does so after its last recorded calls: all_reduce #1 of group 0 "
        "(default_pg) on all ranks. gloo does not record messages (send, recv), monitored_barrier and new_group,"
    )


def test_verbose_shows_all_groups_complete_stacks_and_lateness(tracelink: Run) -> None:
    entries = hang(4, culprit=2)
    for rank in (0, 1):
        entries[rank].insert(0, steps(rank, 2, group=("1", "tp"))[0])
    page = tracelink("diagnose", str(dump_builders(Path("dumps"), entries)), "-v").stdout
    assert "\n1      tp           0-1    all_reduce       1  finished\n" in page
    assert "  /usr/lib/python3.11/runpy.py:88  run\n" in page
    assert "Ranks that arrived last, and how long the other ranks waited for them\n" in page


def test_groups_whose_ranks_are_at_the_same_collective_are_counted(tracelink: Run) -> None:
    entries = hang(4, culprit=2)
    for rank in (0, 1):
        entries[rank].insert(0, steps(rank, 2, group=("1", "tp"))[0])
    page = tracelink("diagnose", str(dump_builders(Path("dumps"), entries))).stdout
    assert "1 other group: all ranks are at the same collective.\n" in page
    assert "1 (tp)" not in page


def test_a_missing_dump_and_what_other_dumps_show_about_it(tracelink: Run) -> None:
    folder = dump_builders(Path("dumps"), hang(4, culprit=2))
    (folder / "comm_lib_trace_rank_3").unlink()
    page = tracelink("diagnose", str(folder)).stdout
    assert page.startswith("Rank 2 never joined all_reduce #3 of group 0 (default_pg); 2 ranks wait.\n")
    assert "\n0      default_pg   3      -                2  unknown\n" in page
    assert page.endswith("No dump of rank 3.\n")


def test_the_dump_of_the_culprit_is_missing(tracelink: Run) -> None:
    folder = dump_builders(Path("dumps"), hang(4, culprit=2))
    (folder / "comm_lib_trace_rank_2").unlink()
    page = tracelink("diagnose", str(folder)).stdout
    first, *_ = page.splitlines()
    assert first == (
        "Rank 2 left no dump, and 3 ranks wait for it: first in all_reduce #3 of group 0 (default_pg). It had joined "
        "all_reduce #2 of group 0 (default_pg), which others finished."
    )
    assert "~/.cache/torch/comm_lib_trace_rank_N" in page


def test_a_truncated_dump_does_not_affect_the_others(tracelink: Run) -> None:
    folder = dump_builders(Path("dumps"), hang(4, culprit=2))
    broken = folder / "comm_lib_trace_rank_3"
    broken.write_bytes(broken.read_bytes()[:-40])
    result = tracelink("diagnose", str(folder))
    assert result.exit_code == NO
    assert result.stdout.startswith("Rank 2 never joined all_reduce #3 of group 0 (default_pg); ")
    assert result.stdout.count("The dump of rank 3 is damaged: ") == 1
    assert result.stdout.count("comm_lib_trace_rank_3") == 1


def test_an_empty_dump_belongs_to_its_rank(tracelink: Run) -> None:
    folder = dump_builders(Path("dumps"), hang(4, culprit=2))
    (folder / "comm_lib_trace_rank_3").write_bytes(b"")
    page = tracelink("diagnose", str(folder)).stdout
    assert "The dump of rank 3 is damaged: dumps/comm_lib_trace_rank_3: the file is empty." in page
    assert "No dump of" not in page


def test_several_problems_are_numbered_and_the_first_is_explained(tracelink: Run) -> None:
    entries = {rank: [_sum(group, rank) for group in ("1", "2")] for rank in range(4)}
    result = tracelink("diagnose", str(dump_builders(Path("dumps"), entries)))
    first, second, *rest = result.stdout.splitlines()
    assert (first[:2], second[:2]) == ("1.", "2.")
    assert [line for line in rest if line in (first, second)] == []
    verbose = tracelink("diagnose", "dumps", "-v").stdout.splitlines()
    assert [line for line in verbose[2:] if line in (first, second)] == [second]
    assert tracelink("diagnose", "dumps", "-q").stdout.splitlines() == [first, second]


def _sum(group: str, rank: int) -> dict[str, object]:
    size = [[4 if rank != int(group) else 8]]
    return collective(
        group=(group, ""), completed=1, input_sizes=size, output_sizes=size, frames=stack("step", 1)
    )


def test_a_folder_without_dumps(tracelink: Run) -> None:
    Path("empty").mkdir()
    result = tracelink("diagnose", "empty")
    assert result.exit_code == UNREADABLE
    assert result.stderr == (
        "tracelink: no flight-recorder dump found: there are no files. A rank writes its dump on its own "
        "host: to the path in TORCH_FR_DUMP_TEMP_FILE followed by the rank, by default "
        "~/.cache/torch/comm_lib_trace_rank_N.\n"
    )


def test_a_folder_of_other_files(tracelink: Run) -> None:
    Path("texts").mkdir()
    for name in ("a.txt", "b.txt"):
        Path("texts", name).write_text("hello")
    result = tracelink("diagnose", "texts")
    assert result.exit_code == UNREADABLE
    assert result.stderr.startswith(
        "tracelink: no flight-recorder dump found: none of the 2 files is a dump."
    )


def test_dumps_without_a_rank(tracelink: Run) -> None:
    folder = dump_builders(Path("dumps"), healthy(2))
    for rank, name in enumerate("ab"):
        (folder / f"comm_lib_trace_rank_{rank}").rename(folder / name)
    result = tracelink("diagnose", "dumps")
    assert result.exit_code == UNREADABLE
    assert "Set it with --rank dumps/a=N." in result.stderr
    named = tracelink("diagnose", "dumps", "--rank", "a=0", "--rank", "b=1")
    assert named.stdout.startswith("No problem found: 2 ranks, ")


def of_another_job(entries: Entries) -> Entries:
    """The same calls, a moment later."""
    return {
        rank: [entry | {"time_created_ns": entry["time_created_ns"] + 7} for entry in rows]
        for rank, rows in entries.items()
    }


def test_several_jobs(tracelink: Run) -> None:
    dump_builders(Path("dumps", "mine"), healthy(4))
    dump_builders(Path("dumps", "theirs"), of_another_job(hang(4, culprit=2)))
    result = tracelink("diagnose", "dumps")
    assert (result.exit_code, [line.partition(";")[0] for line in result.stdout.splitlines()[:2]]) == (
        NO,
        [
            "Job theirs: Rank 2 never joined all_reduce #3 of group 0 (default_pg)",
            "Job mine: No problem found: 4 ranks, 1 group, 2 collectives, 8 entries. All ranks joined",
        ],
    )
    quiet = tracelink("diagnose", "dumps", "-q")
    assert quiet.stdout == f"{result.stdout.splitlines()[0]}\n"
    assert tracelink("diagnose", "dumps", "-o", "page.html").exit_code == NO
    assert "Job mine" in Path("page.html").read_text()
    entries = tracelink("diagnose", "dumps", "--entries")
    assert (entries.exit_code, "name the files of one job" in entries.stderr) == (USAGE, True)


def test_jobs_in_an_archive(tracelink: Run, tmp_path: Path) -> None:
    dump_builders(tmp_path / "dumps" / "mine", hang(ranks=2, culprit=1))
    dump_builders(tmp_path / "dumps" / "theirs", of_another_job(hang(ranks=2, culprit=1)))
    shutil.make_archive(str(tmp_path / "both"), "tar", tmp_path, "dumps")
    result = tracelink("diagnose", str(tmp_path / "both.tar"))
    assert [line.partition(":")[0] for line in result.stdout.splitlines()[:2]] == ["Job theirs", "Job mine"]


GENERATED = {
    **dict.fromkeys(HEALTHY, "No problem found: 8 ranks, "),
    "gloo/healthy": "No problem found: 8 ranks, 11 groups, 110 collectives, 352 entries. All ranks joined",
    "gloo/dtype_mismatch/settled": "Rank 1 ",
    "gloo/operation_mismatch/settled": "Rank 4 ",
    "gloo/never_joined/settled": "Rank 3 is behind: ranks 0-2, 4-7 wait for it in all_reduce #7 of group 0",
    "gloo/never_joined/timed_out": "Rank 3 is behind: ranks 0-2, 4-7 wait for it in all_reduce #7 of group 0",
    "gloo/never_joined/missing_other": "1. Rank 3 is behind: ranks 0-2, 4, 6-7 wait for it in all_reduce #7 of ",
    "gloo/skipped/settled": "Rank 5 skipped all_reduce #13 of group 6 (mesh_dp)",
    "gloo/deadlock/settled": "Rank 6 deadlocks: ",
}
SCREEN = 24


@pytest.mark.parametrize(("case", "verdict"), GENERATED.items(), ids=GENERATED)
def test_the_diagnosis_of_eight_ranks_fits_on_a_screen(tracelink: Run, case: str, verdict: str) -> None:
    result = tracelink("diagnose", str(traces(case)))
    assert result.stdout.startswith(verdict)
    assert len(result.stdout.splitlines()) <= SCREEN
    undecided = IN_FLIGHT if " is behind" in verdict else NO
    assert result.exit_code == (FINE if verdict.startswith("No problem found") else undecided)


# `tracelink diagnose -o`: the database beside the answer.


DONE = collective(retired=True)


@pytest.fixture
def dumps(tmp_path: Path) -> str:
    """Rank 1 never joins the second collective."""
    folder = tmp_path / "dumps"
    folder.mkdir()
    for rank, entries in enumerate([(DONE, collective(sequence=2)), (DONE,)]):
        content = dump(*entries, pg_config=process_group("0", [0, 1]))
        (folder / f"comm_lib_trace_rank_{rank}").write_bytes(pickled(content))
    return str(folder)


def culprits(path: Path) -> list[tuple[int]]:
    with sqlite3.connect(path) as database:
        return database.execute("SELECT rank FROM problem_ranks WHERE role = 'culprit'").fetchall()


def test_the_database_does_not_change_the_verdict(tracelink: Run, dumps: str, tmp_path: Path) -> None:
    alone = tracelink("diagnose", dumps)
    result = tracelink("diagnose", dumps, "-o", "flight.sqlite")
    assert (result.exit_code, result.stdout) == (IN_FLIGHT, alone.stdout)
    assert result.stderr == "Wrote flight.sqlite: 3 entries.\n"
    assert culprits(tmp_path / "flight.sqlite") == [(1,)]


def test_the_database_does_not_change_the_json_document(tracelink: Run, dumps: str, tmp_path: Path) -> None:
    result = tracelink("diagnose", dumps, "--json", "--output", "flight.db")
    assert orjson.loads(result.stdout)["problems"][0]["culprits"] == [1]
    assert result.stderr == ""
    assert culprits(tmp_path / "flight.db") == [(1,)]


def test_a_directory_gets_parquet_files(tracelink: Run, dumps: str, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    assert tracelink("diagnose", dumps, "-o", "flight/").stderr == "Wrote flight/: 3 entries.\n"
    assert parquet.read_table(tmp_path / "flight" / "entries.parquet").num_rows == 3


def test_an_unknown_suffix_is_refused_before_anything_is_read(tracelink: Run) -> None:
    result = tracelink("diagnose", "there-is-nothing-here", "-o", "flight.xlsx")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "'flight.xlsx' names neither a database nor a directory." in result.stderr


def test_without_readable_input_nothing_is_written(tracelink: Run, tmp_path: Path) -> None:
    (tmp_path / "comm_lib_trace_rank_0").write_bytes(b"\x80\x02junk")
    assert tracelink("diagnose", "comm_lib_trace_rank_0", "-o", "flight.sqlite").exit_code == 3
    assert not (tmp_path / "flight.sqlite").exists()


# `tracelink diagnose -o FILE.html`: the answer as a page.


VERDICT = "Rank 2 never joined all_reduce #3 of group 0 (default_pg)"


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Rank 2 of four never joins the third collective."""
    return str(dumps_for_page(tmp_path / "dumps", hang(ranks=4, culprit=2)))


def verdict(page: bytes) -> str:
    return read_html(page.decode()).one("h1").text


def test_a_page_has_the_verdict(tracelink: Run, folder: str, tmp_path: Path) -> None:
    headline = tracelink("diagnose", folder).stdout.partition("\n")[0]
    result = tracelink("diagnose", folder, "-o", "report.html")
    page = (tmp_path / "report.html").read_bytes()
    assert (result.exit_code, result.stderr) == (1, "")
    assert result.stdout == f"{headline}\nWrote report.html ({len(page) / 1000:.1f} kB).\n"
    assert verdict(page) == headline
    assert verdict(page).startswith(VERDICT)
    sections = [one.text for one in read_html(page.decode()).all("h2")]
    assert "Calls around the problem" in sections


def test_markdown_json_and_csv(tracelink: Run, folder: str, tmp_path: Path) -> None:
    for suffix in ("md", "json", "csv"):
        assert tracelink("diagnose", folder, "-q", "-o", f"report.{suffix}").exit_code == 1
    assert (tmp_path / "report.md").read_text().startswith("**Rank 2 never joined all\\_reduce")
    document = json.loads((tmp_path / "report.json").read_text())
    assert document == json.loads(tracelink("diagnose", folder, "--json").stdout)
    _, problem = (tmp_path / "report.problems.csv").read_text().splitlines()
    assert problem.startswith("never_joined,0,default_pg,3,nccl:all_reduce,2,")


def test_html_does_not_change_the_json_document(tracelink: Run, folder: str, tmp_path: Path) -> None:
    result = tracelink("diagnose", folder, "--json", "-o", "report.html")
    assert orjson.loads(result.stdout)["problems"][0]["culprits"] == [2]
    assert result.stderr == ""
    assert verdict((tmp_path / "report.html").read_bytes()).startswith(VERDICT)


def test_an_unwritable_page_is_an_error(tracelink: Run, folder: str) -> None:
    result = tracelink("diagnose", folder, "-o", "/proc/report.html")
    assert result.exit_code == 1
    assert "/proc/report.html: cannot be written: no such file or directory." in result.stderr


def test_without_readable_input_no_page_is_written(tracelink: Run, tmp_path: Path) -> None:
    (tmp_path / "comm_lib_trace_rank_0").write_bytes(b"\x80\x02junk")
    assert tracelink("diagnose", "comm_lib_trace_rank_0", "-o", "report.html").exit_code == 3
    assert not (tmp_path / "report.html").exists()


# `tracelink diagnose` with profiles beside the dumps.


def job() -> Path:
    """Rank 2 loads data while the others wait for it in the third all-reduce."""
    folder = Path("job")
    profiled_dumps(folder / "dumps", hang(4, culprit=2))
    profile(folder / "traces", 0, call(1), call(2), call(3, finished=False))
    profile(folder / "traces", 2, call(1), call(2), loading(2.3, 6.8))
    return folder


def test_what_a_culprit_did_then_is_a_row_and_all_of_a_profile_is_below(tracelink: Run) -> None:
    page = tracelink("diagnose", str(job()))
    assert (page.exit_code, page.stderr) == (NO, "")
    _, _, _, _, _, row, *_ = page.stdout.splitlines()
    assert row.split("  ")[0] == "2"
    assert row.endswith(f"4.5 s    {LOADER} < batches (data.py:12) < main (train.…")


def test_stacks_of_profiles_are_shown_if_dumps_have_none(tracelink: Run) -> None:
    folder, entries = job(), hang(4, culprit=2)
    without = {rank: [entry | {"frames": []} for entry in rows] for rank, rows in entries.items()}
    profiled_dumps(folder / "dumps", without)
    page = tracelink("diagnose", str(folder), "-v").stdout
    assert "Stack of this call of rank 2:\n  train.py:20   step\n  train.py:100  main\n" in page


def test_an_earlier_call_is_marked(tracelink: Run) -> None:
    folder = job()
    profile(folder / "traces", 0, call(1), until=2)
    page = tracelink("diagnose", str(folder), "-v").stdout
    assert (
        "In the profile of rank 0 (it ends 1.0 s before this call):\noperation   group  #  before  operator"
        in page
    )


@pytest.mark.parametrize("until", [2, 7])
def test_the_document_contains_sightings(tracelink: Run, until: int) -> None:
    folder = job()
    profile(folder / "traces", 0, call(1), until=until)
    document = json.loads(tracelink("diagnose", str(folder), "--json").stdout)
    jsonschema.validate(document, schemas.load("diagnose"))
    culprit, other = document["problems"][0]["sightings"]
    assert (culprit["rank"], culprit["role"], culprit["call"]["work"]["where"]) == (2, "culprit", "stream 20")
    assert culprit["stretches"][0]["running"][-1] == {"name": LOADER, "duration_ns": 4_500_000_000}
    assert (other["rank"], other["role"], other["call"]["before"]) == (0, "waiting", 2)


def test_profiles_without_dumps(tracelink: Run) -> None:
    write(Path("traces/kineto_0.json"), trace(cpu_op("aten::add"), rank=0))
    result = tracelink("diagnose", "traces")
    assert result.exit_code == UNREADABLE
    assert "no flight-recorder dump found" in result.stderr
    assert "tracelink collectives on the same paths" in result.stderr


# What docs/diagnose.md says is so.


DOCS = (Path(__file__).parents[2] / "docs" / "diagnose.md").read_text("utf-8")
COMMAND = re.compile(r"^(tracelink [^#|\n]*)", re.MULTILINE)


def rows(title: str) -> list[str]:
    """The first cells of the table under a heading, code in them only."""
    (section,) = re.findall(rf"^## {title}\n(.*?)(?:^## |\Z)", DOCS, re.DOTALL | re.MULTILINE)
    cells = re.findall(r"^\| (.*?) \|", section, re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`(\w+)(?:\[\])?`", cell)]


@pytest.mark.parametrize("command", COMMAND.findall(DOCS))
def test_an_example_has_known_options(command: str) -> None:
    _, name, *arguments = shlex.split(command)
    found = main.get_command(click.Context(main), name)
    assert found
    found.make_context(name, arguments)


def test_every_kind_is_explained() -> None:
    assert set(rows("How problems are found")) == {kind.value for kind in Kind}


def test_every_key_of_the_document_is_explained() -> None:
    assert set(rows("JSON")) == set(schemas.load("diagnose")["properties"])


def test_every_key_of_a_problem_and_every_stage_is_named() -> None:
    names = set(re.findall(r"`(\w+)`", DOCS))
    assert set(schemas.load("diagnose")["$defs"]["Problem"]["properties"]) <= names
    assert {stage.value for stage in Stage} <= names


def test_the_names_in_python_exist() -> None:
    assert all(hasattr(tracelink, name) for name in re.findall(r"\btracelink\.(\w+)\(", DOCS))
