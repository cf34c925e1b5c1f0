"""`tracelink inspect`."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path

import jsonschema
import pytest
from click.testing import Result

from builders.chakra_files import EtFile
from builders.command_line import Job, Run
from tracelink import samples, schemas, validate
from tracelink._api.inspection_report import common_folder
from tracelink._model.findings import Finding, Severity
from tracelink._model.trace import SourceInfo

# `tracelink inspect`: what is here.


PROFILE = SourceInfo(
    "traces/k_3.json.gz",
    "kineto",
    "1",
    rank=3,
    host="node7",
    events=12_345,
    records=13_000,
    bytes=1_234_567,
    start_ns=1_763_472_750_123_456_789,
    end_ns=1_763_472_751_357_456_789,
)
NODES = SourceInfo("et.json", "execution-trace")


def table_of(result: Result) -> list[str]:
    """The lines after the headline: the table of the sources, and what follows it."""
    return result.stdout.partition("\n\n")[2].splitlines()


def test_a_source_is_described_without_linking(tracelink: Run, job: Job) -> None:
    job.sources = [PROFILE]
    result = tracelink("inspect", "traces/")
    assert result.stdout.startswith("1 source of rank 3\n")
    header, row, zero = table_of(result)
    assert zero == "Starts count from the first event, at 2025-11-18 13:32:30.123456 UTC."
    assert re.split(r" {2,}", header) == [
        *("path", "format", "version", "rank", "host", "events"),
        *("start (µs)", "duration (ms)", "size (kB)"),
    ]
    assert row.split() == [
        *("traces/k_3.json.gz", "kineto", "1", "3", "node7", "12,345", "0.0", "1,234.000", "1,234.6"),
    ]


def test_unknown_values_are_dashes_and_unknown_columns_left_out(tracelink: Run, job: Job) -> None:
    job.sources = [NODES]
    row = table_of(tracelink("inspect", "et.json"))[1]
    assert row.split() == ["et.json", "execution-trace", "0", "0"]
    job.sources = [PROFILE, NODES]
    header, *rows, _ = table_of(tracelink("inspect", "et.json"))
    assert "problems" not in header
    assert rows[1].split() == ["et.json", "execution-trace", "-", "-", "-", "0", "-", "-", "0.0"]


def test_problems_of_a_source_are_its_warnings_and_errors(tracelink: Run, job: Job) -> None:
    job.sources = [NODES]
    job.findings = [
        Finding(severity, "odd", "odd.", source=path)
        for severity, path in (
            (Severity.WARNING, "et.json"),
            (Severity.ERROR, "et.json"),
            (Severity.INFO, "et.json"),
            (Severity.WARNING, "other.json"),
        )
    ]
    assert table_of(tracelink("inspect", "et.json"))[1].split()[-1] == "2"


BY_HOW_MUCH = (
    "UTC by the ranks' own clocks. Other commands correct these (`tracelink clocks` shows by how much)."
)


@pytest.mark.parametrize(
    ("hosts", "ending"),
    [(("node0", "node0"), "UTC."), (("node0", "node1"), BY_HOW_MUCH), (("", ""), BY_HOW_MUCH)],
)
def test_starts_count_from_the_first_event(
    tracelink: Run, job: Job, hosts: tuple[str, str], ending: str
) -> None:
    begin = 1_763_472_750_000_000_000
    job.sources = [
        SourceInfo(
            f"k_{rank}.json", "kineto", rank=rank, host=host, start_ns=begin + start, end_ns=begin + 10**9
        )
        for rank, (host, start) in enumerate(zip(hosts, (2_500_000, 0), strict=True))
    ]
    _, first, second, zero = table_of(tracelink("inspect", "traces/"))
    assert ("2.500" in first.split(), "0.000" in second.split()) == (True, True)
    assert zero == f"Starts count from the first event, at 2025-11-18 13:32:30.000000 {ending}"


def test_starts_of_several_jobs_are_in_utc(tracelink: Run, job: Job) -> None:
    begin = 1_763_472_750_000_000_000
    job.sources = [
        SourceInfo(
            f"k_{rank}.json", "kineto", rank=rank, start_ns=begin + start * 10**9, end_ns=begin + 10**13
        )
        for rank, start in enumerate((0, 3_601))
    ]
    header, first, second = table_of(tracelink("inspect", "traces/"))
    assert "start (UTC)" in header
    assert ("2025-11-18 13:32:30.000" in first, "2025-11-18 14:32:31.000" in second) == (True, True)


def test_every_command_counts_from_the_same_time(tracelink: Run) -> None:
    """A time that inspect or collectives prints selects the same events in merge."""
    job = str(samples.path("cpu_job"))
    zeros = {
        found
        for command in (("inspect", job), ("collectives", job), ("merge", job, "--steps", "999"))
        for result in [tracelink(*command)]
        for found in re.findall(r"the first event, at ([^.]+[.]\d+ UTC)", result.stdout + result.stderr)
    }
    assert len(zeros) == 1
    lines = tracelink("collectives", job, "--sort", "start").stdout.splitlines()
    rows = [line.split() for line in lines if line.startswith(("0 (", "1 ("))]
    starts = [f"{row[6]} ms" for row in rows if row[6] != "-"]

    def events(window: str) -> list[object]:
        written = tracelink("merge", job, "--window", window, "-o", "m.json", "--json")
        assert written.exit_code == 0
        return [rank["events"] for rank in json.loads(written.stdout)["outputs"]]

    (zero,) = zeros
    assert events(f"{zero}..") == events("0..")
    seconds, _, rest = zero.removesuffix(" UTC").rpartition(".")
    absolute = f"{seconds}.{int(rest) + round(float(starts[5].split()[0]) * 1_000):06}"
    assert events(f"{starts[5]}..") == events(f"{absolute}..") < events("0..")


@pytest.mark.parametrize(
    ("paths", "folder"),
    [
        (("a/b/x", "a/b/y"), "a/b/"),
        (("a/b/x1", "a/b/x2", "a/c"), "a/"),
        (("job.zip:r/0.json", "job.zip:r/1.json"), "job.zip:r/"),
        (("job.zip:0.json", "job.zip:1.json"), "job.zip:"),
        (("x_0", "x_1"), ""),
        (("/x", "/y"), "/"),
        (("a/b/x",), ""),
    ],
)
def test_the_folder_of_all_paths_is_shown_once(
    tracelink: Run, job: Job, paths: tuple[str, ...], folder: str
) -> None:
    assert common_folder(paths) == folder
    job.sources = [SourceInfo(path, "kineto", rank=rank) for rank, path in enumerate(paths)]
    shown = tracelink("inspect", "traces/").stdout.splitlines()
    assert [line for line in shown if line.startswith("In ")] == ([f"In {folder}"] if folder else [])
    assert [line.split()[0] for line in shown if " kineto " in line] == [
        path.removeprefix(folder) for path in paths
    ]


def test_json_fits_its_schema(tracelink: Run, job: Job) -> None:
    job.sources = [PROFILE, NODES]
    job.findings = [Finding(Severity.INFO, "skipped", "skipped.")]
    result = tracelink("inspect", "traces/", "--json")
    document = json.loads(result.stdout)
    jsonschema.validate(document, schemas.load("inspect"))
    assert result.stderr == ""
    assert document["sources"][0] == {
        "path": "traces/k_3.json.gz",
        "format": "kineto",
        "version": "1",
        "rank": 3,
        "host": "node7",
        "world_size": None,
        "pid": None,
        "device": None,
        "events": 12345,
        "records": 13000,
        "bytes": 1234567,
        "start_ns": 1763472750123456789,
        "end_ns": 1763472751357456789,
    }


def test_files_have_the_columns_of_sources(tracelink: Run, job: Job, tmp_path: Path) -> None:
    job.sources = [PROFILE]
    assert tracelink("inspect", "traces/", "-o", "sources.csv").exit_code == 0
    assert (tmp_path / "sources.csv").read_text().splitlines() == [
        "path,format,version,rank,host,world_size,pid,device,events,records,bytes,start_ns,end_ns",
        "traces/k_3.json.gz,kineto,1,3,node7,,,,12345,13000,1234567,1763472750123456789,1763472751357456789",
    ]


def test_exit_code_is_1_with_an_error_and_3_without_a_source(tracelink: Run, job: Job) -> None:
    assert tracelink("inspect", "traces/").exit_code == 0
    job.findings = [Finding(Severity.ERROR, "unreadable", "empty.")]
    assert tracelink("inspect", "traces/").exit_code == 1
    job.sources = ()
    assert tracelink("inspect", "traces/").exit_code == 3


def test_the_sample_is_eight_sources_of_two_ranks(tracelink: Run) -> None:
    result = tracelink("inspect", str(samples.path("cpu_job")), "--json")
    document = json.loads(result.stdout)
    jsonschema.validate(document, schemas.load("inspect"))
    assert result.exit_code == 0
    assert sorted((source["rank"], source["format"]) for source in document["sources"]) == [
        (rank, name)
        for rank in (0, 1)
        for name in ("capture", "execution-trace", "flight-recorder", "kineto")
    ]


def test_a_damaged_file_does_not_affect_the_others(tracelink: Run, tmp_path: Path) -> None:
    profile = samples.path("cpu_job") / "kineto_0.json.gz"
    (tmp_path / "empty.json").touch()
    result = tracelink("inspect", str(profile), str(tmp_path / "empty.json"))
    assert result.exit_code == 1
    assert str(profile) in result.stdout
    assert "the file is empty" in result.stdout


def test_only_unreadable_files_are_exit_code_3(tracelink: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_text("not a trace")
    result = tracelink("inspect", str(tmp_path / "notes.json"))
    assert result.exit_code == 3
    assert result.stderr.startswith("tracelink: ")
    assert result.stderr.count("\n") == 1


# `tracelink inspect` of Chakra traces: what is in them.


def rank(number: int, of: int = 2) -> EtFile:
    """An operator, a kernel that it launches, and an all-reduce of 4,096 bytes after that."""
    trace = EtFile(number, metadata={"rank": ("uint64_val", number), "world_size": ("uint64_val", of)})
    launch = trace.operator("launch", 0, 10)
    gemm = trace.kernel("gemm", 10, 30, launch)
    reduce = trace.collective(size=4096, after=[gemm])
    reduce.duration_micros = 60
    return trace


@pytest.fixture
def et(tmp_path: Path) -> Path:
    folder = tmp_path / "et"
    folder.mkdir()
    for number in (0, 1):
        rank(number).save(folder)
    return folder


def test_json_contains_the_census_of_each_trace(tracelink: Run, et: Path) -> None:
    result = tracelink("inspect", str(et), "--json")
    document = json.loads(result.stdout)
    jsonschema.validate(document, schemas.load("inspect"))
    assert result.exit_code == 0
    assert [source["chakra"] for source in document["sources"]] == [
        {
            "nodes": {"host": 1, "device": 1, "collective": 1},
            "communication": [
                {"kind": "all_reduce", "group": "", "count": 1, "bytes": 4096, "without_size": 0}
            ],
            "longest_chain": {
                "ns": 100_000,
                "compute_ns": 30_000,
                "communication_ns": 60_000,
                "host_ns": 10_000,
                "nodes": 3,
            },
            "device_nodes": 2,
            "device_nodes_after_device": 1,
            "missing_dependencies": 0,
            "nodes_without_order": 0,
            "cycle": [],
        }
    ] * 2


def test_the_page_shows_counts_communication_and_the_longest_chain(tracelink: Run, et: Path) -> None:
    rows = [line.split() for line in tracelink("inspect", str(et)).stdout.splitlines()]
    assert ["trace", "nodes", "host", "device", "collective"] in rows
    assert ["job.0.et", "3", "1", "1", "1"] in rows
    assert ["all_reduce", "all", "ranks", "2", "2", "8,192"] in rows
    chain = ["100.0", "30.0", "30.0", "60.0", "60.0", "10.0", "10.0"]
    assert ["job.0.et", *chain, "3", "2", "1", "50.0"] in rows


def test_many_traces_share_a_row(tracelink: Run, tmp_path: Path) -> None:
    for number in range(17):
        rank(number, of=17).save(tmp_path)
    page = tracelink("inspect", str(tmp_path)).stdout
    rows = [line.split() for line in page.splitlines()]
    assert ["17", "traces", "51", "17", "17", "17"] in rows
    assert "(longest of 17)" in page


def test_violations_are_problems_of_the_trace(tracelink: Run, et: Path) -> None:
    broken = rank(1)
    broken.nodes[1].data_deps.append(99)
    broken.save(et)
    result = tracelink("inspect", str(et), "--json")
    document = json.loads(result.stdout)
    found = {finding["reason"]: finding for finding in document["findings"]}
    problem = found["invalid.missing_dependency"]
    assert (problem["severity"], problem["source"], problem["count"]) == ("warning", str(et / "job.1.et"), 1)
    assert "99" in problem["example"]
    assert [source["chakra"]["missing_dependencies"] for source in document["sources"]] == [0, 1]


def test_traces_are_decoded_once(tracelink: Run, et: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def decoded_again(_: object) -> None:
        raise AssertionError("the file is decoded again")

    monkeypatch.setattr("tracelink.converters.chakra.validation.file_rules.decode", decoded_again)
    result = tracelink("inspect", str(et), "--json", "--jobs", "1")
    sources = json.loads(result.stdout)["sources"]
    assert [source["chakra"]["nodes"] for source in sources] == [
        {"host": 1, "device": 1, "collective": 1}
    ] * 2


def test_problems_are_those_of_the_traces_together(tracelink: Run, tmp_path: Path) -> None:
    """Traces without ranks are numbered, and what one has is compared with what the others have."""
    for number, name in enumerate(("first", "second")):
        trace = rank(number)
        del trace.metadata["rank"]
        trace.save(tmp_path).rename(tmp_path / f"{name}.et")
    found = json.loads(tracelink("inspect", str(tmp_path), "--json").stdout)["findings"]
    verdict = validate(tmp_path)
    counts = {**verdict.counts, **verdict.warning_counts}
    told = {finding["reason"]: finding["count"] for finding in found if "invalid." in finding["reason"]}
    assert told == {f"invalid.{rule}": count for rule, count in counts.items()}
    assert told


def test_dependency_cycles_are_reported(tracelink: Run, tmp_path: Path) -> None:
    trace = EtFile(metadata={"rank": ("uint64_val", 0)})
    a = trace.compute("a")
    b = trace.compute("b", [a])
    a.data_deps.append(b.id)
    trace.compute("alone")
    trace.save(tmp_path)
    census = json.loads(tracelink("inspect", "job.0.et", "--json").stdout)["sources"][0]["chakra"]
    assert (census["longest_chain"]["nodes"], census["nodes_without_order"]) == (1, 2)
    assert sorted(census["cycle"]) == [a.id, b.id]
    assert (
        "Not counted: 2 nodes in dependency cycles, or that depend on one."
        in tracelink("inspect", "job.0.et").stdout
    )


def test_numbers_of_64_bits_and_more_are_exact(tracelink: Run, tmp_path: Path) -> None:
    trace = EtFile(metadata={"rank": ("uint64_val", 0)})
    trace.compute().duration_micros = (1 << 64) - 1
    trace.save(tmp_path)
    document = json.loads(tracelink("inspect", "job.0.et", "--json").stdout)
    assert document["sources"][0]["chakra"]["longest_chain"]["ns"] == ((1 << 64) - 1) * 1000


def test_traces_in_archives_are_counted_and_not_checked(tracelink: Run, et: Path) -> None:
    with zipfile.ZipFile("et.zip", "w") as archive:
        archive.write(et / "job.0.et", "job.0.et")
    document = json.loads(tracelink("inspect", "et.zip", "--json").stdout)
    assert document["sources"][0]["chakra"]["longest_chain"]["ns"] == 100_000
    assert "not_checked" in {finding["reason"] for finding in document["findings"]}


def test_other_traces_have_no_census(tracelink: Run, tmp_path: Path) -> None:
    (tmp_path / "k.json").write_text('{"schemaVersion": 1, "traceEvents": []}')
    document = json.loads(tracelink("inspect", "k.json", "--json").stdout)
    assert all("chakra" not in source for source in document["sources"])
