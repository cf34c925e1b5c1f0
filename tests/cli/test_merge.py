"""`tracelink merge`."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from builders import execution_trace as et
from builders.bundle import unpacked
from builders.command_line import Job, Run
from builders.job import JobBuilder
from builders.kineto import cpu_op, trace, write
from builders.perfetto_native import read
from tracelink import samples, schemas
from tracelink._api.outputs import RELATIONS
from tracelink._join.forecast import TraceKind
from tracelink._model.clock import Clock
from tracelink._model.errors import UnreadableError
from tracelink._model.findings import Finding, Severity
from tracelink._model.graph import LinkReport
from tracelink._model.selection import Selection
from tracelink._open.trace import OpenTrace
from tracelink.converters.chakra.decode import decode
from tracelink.plugins import Output

# `tracelink merge`: what it asks the library for, what it says, and how it ends.


class TestArguments:
    def test_paths_with_and_without_a_format(self, tracelink: Run, job: Job) -> None:
        tracelink("merge", "traces/", "-e", "et.json", "--kineto", "a.json", "-k", "b.json", "--fr", "dumps/")
        assert job.arguments["paths"] == ("traces/",)
        assert job.arguments["et"] == ("et.json",)
        assert job.arguments["kineto"] == ("a.json", "b.json")
        assert job.arguments["fr"] == ("dumps/",)

    def test_output_and_format(self, tracelink: Run, job: Job) -> None:
        tracelink("merge", "traces/")
        assert (job.arguments["output"], job.arguments["to"], job.arguments["resume"]) == (None, None, False)
        tracelink("merge", "traces/", "-o", "linked/", "-t", "chakra-json", "-j", "3")
        assert (job.arguments["output"], job.arguments["to"], job.arguments["engine"].jobs) == (
            "linked/",
            "chakra-json",
            3,
        )

    def test_names_of_files_with_ranks_may_contain_an_equals_sign(self, tracelink: Run, job: Job) -> None:
        tracelink("merge", "traces/", "--rank", "a.json=3", "-r", "run=1/b.json=12")
        assert job.arguments["rank_of"] == {"a.json": 3, "run=1/b.json": 12}

    def test_the_size_of_inputs_is_limited(self, tracelink: Run, job: Job) -> None:
        tracelink("merge", "traces/")
        assert "max_unpacked" not in job.arguments
        tracelink("merge", "traces/", "--max-unpacked", "1.5 tb")
        assert job.arguments["max_unpacked"] == 1_500_000_000_000
        result = tracelink("merge", "traces/", "--max-unpacked", "many")
        assert (result.exit_code, "'many' is not a size, such as 200GB" in result.stderr) == (2, True)

    def test_the_default_is_no_selection_and_clocks_of_hosts(self, tracelink: Run, job: Job) -> None:
        tracelink("merge", "traces/")
        assert job.arguments["clock"] == "host"
        assert not {"ranks", "window", "steps", "only"} & job.arguments.keys()

    def test_selection_and_clock(self, tracelink: Run, job: Job) -> None:
        output = (
            "--ranks",
            "0-7,64",
            "--window",
            "2.5s..3.1s",
            "--steps",
            "3-5",
            "--only",
            "collectives,kernels",
        )
        tracelink("merge", "traces/", *output, "--clock", "clocks.json")
        parts = {name: job.arguments[name] for name in ("ranks", "window", "steps", "only")}
        assert Selection(**parts) == Selection(
            ranks="0-7,64", window="2.5s..3.1s", steps="3-5", only="collectives,kernels"
        )
        assert job.arguments["clock"] == "clocks.json"

    @pytest.mark.parametrize("option", ["--ranks", "--window", "--steps", "--only"])
    def test_an_invalid_selection_is_refused_before_anything_is_read(
        self, tracelink: Run, job: Job, option: str
    ) -> None:
        result = tracelink("merge", "traces/", option, "nonsense")
        assert result.exit_code == 2
        assert result.stderr.startswith(f"tracelink: {option}: ")
        assert job.arguments == {}

    def test_mixing_up_rank_and_ranks_is_explained(self, tracelink: Run, job: Job) -> None:
        error = tracelink("merge", "a.json", "--ranks", "a.json=3").stderr
        assert "--rank FILE=N sets the rank of a file" in error
        assert "to read only some ranks, use --ranks 3" in tracelink("merge", "a.json", "--rank", "3").stderr

    @pytest.mark.parametrize("text", ["a.json", "a.json=", "=3", "a.json=x", "a.json=-1"])
    def test_an_invalid_rank_of_a_file_is_refused(self, tracelink: Run, job: Job, text: str) -> None:
        result = tracelink("merge", "traces/", "--rank", text)
        assert result.exit_code == 2
        assert "FILE=N" in result.stderr

    def test_no_input_is_refused(self, tracelink: Run, job: Job) -> None:
        result = tracelink("merge")
        assert result.exit_code == 2
        assert "No input: name files or directories" in result.stderr

    def test_json_and_the_trace_cannot_share_standard_output(self, tracelink: Run, job: Job) -> None:
        result = tracelink("merge", "traces/", "-o", "-", "--json")
        assert result.exit_code == 2
        assert "name an output file" in result.stderr


class TestSummary:
    def test_a_row_for_each_rank(self, tracelink: Run, job: Job) -> None:
        job.reports = {rank: [LinkReport("launches", 3774, 3774)] for rank in (0, 5)}
        lines = tracelink("merge", "traces/").stdout.splitlines()
        assert lines[0] == "Linked 20 events of 2 ranks."
        assert lines[2].split() == ["rank", "events", "launches"]
        assert [line.split()[:5] for line in lines[3:5]] == [
            ["0", "10", "3,774", "of", "3,774"],
            ["5", "10", "3,774", "of", "3,774"],
        ]

    def test_ranks_that_an_earlier_run_had_read_are_counted(self, tracelink: Run, job: Job) -> None:
        job.reports, job.resumed = dict.fromkeys(range(3), ()), 2
        lines = tracelink("merge", "traces/", "--resume").stdout.splitlines()
        assert "Resumed: an earlier run had read 2 of 3 ranks." in lines

    def test_an_interruption_names_the_way_to_go_on(self, tracelink: Run, job: Job) -> None:
        job.error = KeyboardInterrupt()
        assert tracelink("merge", "traces/", "--resume").stderr.splitlines() == [
            "tracelink: finished ranks are kept: run the same command to go on.",
            "tracelink: interrupted.",
        ]

    def test_one_row_for_more_than_16_ranks(self, tracelink: Run, job: Job) -> None:
        job.reports = {rank: [LinkReport("launches", 100, 100)] for rank in range(17)}
        lines = tracelink("merge", "traces/").stdout.splitlines()
        assert lines[3].split()[:6] == ["17", "ranks", "170", "1,700", "of", "1,700"]

    def test_reasons_for_unlinked_events_are_summed_over_ranks(self, tracelink: Run, job: Job) -> None:
        job.reports = {
            0: [LinkReport("launches", 7, 10, {"no correlation": 2, "launched outside the recording": 1})],
            1: [LinkReport("launches", 9, 10, {"no correlation": 1})],
        }
        output = tracelink("merge", "traces/").stdout
        assert (
            "launches: 4 of 20 not linked: no correlation (3), launched outside the recording (1)."
            in output.splitlines()
        )

    def test_ranks_without_any_link_of_a_relation_are_named(self, tracelink: Run, job: Job) -> None:
        job.reports = {
            0: [LinkReport("same.et_kineto", 5, 5)],
            3: [LinkReport("same.et_kineto", 0, 1436, {"its id is not in the profile": 1436})],
        }
        output = tracelink("merge", "traces/").stdout
        line = "ET = Kineto: nothing linked on rank 3 (0 of 1,436): its id is not in the profile (1,436)."
        assert line in output.splitlines()

    def test_an_unknown_reason(self, tracelink: Run, job: Job) -> None:
        job.reports = {0: [LinkReport("launches", 0, 4)]}
        assert (
            "launches: nothing linked on rank 0 (0 of 4): the reason is unknown."
            in tracelink("merge", "traces/").stdout
        )

    def test_relations_that_are_not_recorded_are_named(self, tracelink: Run, job: Job) -> None:
        job.reports = {0: [LinkReport(relation, 1, 1) for relation in RELATIONS if relation != "launches"]}
        output = tracelink("merge", "traces/").stdout
        assert "Nothing to link: the sources do not record launches." in output.splitlines()

    def test_notes_are_shown_with_verbose(self, tracelink: Run, job: Job) -> None:
        job.reports = {0: [LinkReport("calls", 1, 1, notes={"crossing": 480})]}
        assert "crossing" not in tracelink("merge", "traces/").stdout
        assert "note: calls: crossing (480)" in tracelink("merge", "traces/", "-v").stdout

    def test_matches_across_ranks_and_clock_correction(self, tracelink: Run, job: Job) -> None:
        made = JobBuilder(clocks=[Clock(0), Clock(1, offset_ns=-2_500_000)])
        group = made.group(0, 1, name="0")
        made.collective(group, {0: (0, 5), 1: (1, 5)})
        made.sent(group, 0, 1, 0, 5)
        job.result = made.job()
        output = tracelink("merge", "traces/").stdout.splitlines()
        assert (
            "Matched across ranks: 1 collective and 1 message (`tracelink collectives` lists them)." in output
        )
        assert (
            "Clocks corrected by up to 2.500 ms (`tracelink clocks` shows how they were estimated)." in output
        )

    def test_events_outside_the_selection(self, tracelink: Run, job: Job) -> None:
        message = "7 of 10 events are outside the selection."
        job.findings = [Finding(Severity.INFO, "left_out", message, 7)]
        output = tracelink("merge", "traces/", "--steps", "3").stdout.splitlines()
        assert output[-3] == "Left out: 7 of 10 events are outside the selection."

    def test_the_last_line_names_the_output(self, tracelink: Run, job: Job) -> None:
        output = tracelink("merge", "traces/", "-o", "all.json").stdout
        assert output.splitlines()[-2:] == [
            "Wrote all.json (12.3 MB, 10 events).",
            "Open it: tracelink open all.json",
        ]

    @pytest.mark.parametrize(
        ("path", "line"),
        [
            ("a b.json", "Open it: tracelink open 'a b.json'"),
            ("a\x1b[2J.json", "Open it: tracelink open 'a\\x1b[2J.json'"),
        ],
    )
    def test_the_command_that_opens_the_output_can_be_copied(
        self, tracelink: Run, job: Job, path: str, line: str
    ) -> None:
        job.outputs = [Output(path, "perfetto", None, 500, 1)]
        assert tracelink("merge", "traces/").stdout.splitlines()[-1] == line

    def test_a_shell_that_does_not_find_tracelink_gets_its_path(
        self, tracelink: Run, job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        program = tmp_path / "bin" / "tracelink"
        program.parent.mkdir()
        program.touch()
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("sys.argv", [str(program)])
        monkeypatch.setenv("PATH", "")
        output = tracelink("merge", "traces/", "-o", "all.json").stdout
        assert output.splitlines()[-1] == "Open it: bin/tracelink open all.json"

    def test_an_output_that_no_viewer_opens_has_no_such_line(self, tracelink: Run, job: Job) -> None:
        job.outputs = [Output("linked/0.et", "chakra", 0, 500, 1)]
        assert tracelink("merge", "traces/").stdout.splitlines()[-1] == "Wrote linked/0.et (500 B, 1 event)."

    def test_many_outputs_share_a_line(self, tracelink: Run, job: Job) -> None:
        job.outputs = [Output(f"linked/{rank}.json", "chakra-json", rank, 500, 1) for rank in range(2)]
        assert tracelink("merge", "traces/").stdout.splitlines()[-2:] == [
            "Wrote linked/0.json (500 B, 1 event).",
            "Wrote linked/1.json (500 B, 1 event).",
        ]
        job.outputs = [Output(f"linked/{rank}.json", "chakra-json", rank, 500, 1) for rank in range(64)]
        assert (
            tracelink("merge", "traces/").stdout.splitlines()[-1]
            == "Wrote 64 files to linked (32.0 kB, 64 events)."
        )

    def test_quiet_prints_nothing(self, tracelink: Run, job: Job) -> None:
        result = tracelink("merge", "traces/", "--quiet")
        assert (result.stdout, result.stderr, result.exit_code) == ("", "", 0)

    def test_quiet_prints_errors(self, tracelink: Run, job: Job) -> None:
        job.findings = [
            Finding(Severity.WARNING, "odd", "odd."),
            Finding(Severity.ERROR, "unreadable", "b.json: the file is empty.", source="b.json"),
        ]
        result = tracelink("merge", "traces/", "-q")
        assert result.stderr == "tracelink: error: b.json: the file is empty.\n"


class TestJson:
    def test_fits_its_schema_and_is_the_only_output(self, tracelink: Run, job: Job) -> None:
        job.reports = {0: [LinkReport("launches", 7, 10, {"no correlation": 3}, {"repeated": 1})], 1: ()}
        job.findings = [Finding(Severity.WARNING, "damaged", "cut off.", 2, "k_0.json", "at byte 7")]
        result = tracelink("merge", "traces/", "--json")
        document = json.loads(result.stdout)
        jsonschema.validate(document, schemas.load("merge"))
        assert result.stderr == ""
        assert document["outputs"] == [
            {
                "path": "merged.json",
                "format": "perfetto-json",
                "rank": None,
                "bytes": 12345678,
                "events": 20,
                "findings": [],
            }
        ]
        assert document["ranks"][0]["links"]["launches"] == {
            "relation": "launches",
            "linked": 7,
            "candidates": 10,
            "unlinked": {"no correlation": 3},
            "notes": {"repeated": 1},
        }
        assert document["findings"] == [
            {
                "severity": "warning",
                "reason": "damaged",
                "count": 2,
                "source": "k_0.json",
                "message": "cut off.",
                "example": "at byte 7",
            }
        ]

    def test_every_rank_has_every_relation(self, tracelink: Run, job: Job) -> None:
        job.reports = {0: (), 1: [LinkReport("launches.annotation", 1, 1)]}
        ranks = json.loads(tracelink("merge", "traces/", "--json").stdout)["ranks"]
        assert [list(rank["links"]) for rank in ranks] == [[*RELATIONS], [*RELATIONS, "launches.annotation"]]
        assert ranks[0]["links"]["calls"] == {
            "relation": "calls",
            "linked": 0,
            "candidates": 0,
            "unlinked": {},
            "notes": {},
        }


class TestExitCode:
    def test_0_with_warnings(self, tracelink: Run, job: Job) -> None:
        job.findings = [Finding(Severity.WARNING, "damaged", "cut off.")]
        assert tracelink("merge", "traces/").exit_code == 0

    @pytest.mark.parametrize("how", [(), ("--json",), ("--quiet",)])
    def test_1_with_an_error_among_the_findings(self, tracelink: Run, job: Job, how: tuple[str, ...]) -> None:
        job.findings = [Finding(Severity.ERROR, "unreadable", "empty.")]
        assert tracelink("merge", "traces/", *how).exit_code == 1

    def test_3_if_nothing_can_be_read(self, tracelink: Run, job: Job) -> None:
        job.error = UnreadableError("the file is empty")
        assert tracelink("merge", "traces/").exit_code == 3


class TestSample:
    def test_every_node_of_the_sample_is_linked_to_its_operator(self, tracelink: Run, tmp_path: Path) -> None:
        result = tracelink(
            "merge", str(samples.path("cpu_job")), "-o", str(tmp_path / "merged.json.gz"), "--json"
        )
        document = json.loads(result.stdout)
        jsonschema.validate(document, schemas.load("merge"))
        assert result.exit_code == 0
        assert [rank["rank"] for rank in document["ranks"]] == [0, 1]
        for rank in document["ranks"]:
            same = rank["links"]["same.et_kineto"]
            assert same["linked"] == same["candidates"] > 0
        assert json.loads(gzip.decompress((tmp_path / "merged.json.gz").read_bytes()))["traceEvents"]

    def test_standard_output_gets_the_trace_and_standard_error_the_summary(self, tracelink: Run) -> None:
        result = tracelink("merge", str(samples.path("cpu_job")), "-o", "-")
        assert json.loads(result.stdout)["traceEvents"]
        assert "Wrote standard output" in result.stderr

    def test_standard_input_is_read(self, tracelink: Run, tmp_path: Path) -> None:
        profile = samples.path("cpu_job") / "kineto_1.json.gz"
        result = tracelink("merge", "-", "-o", str(tmp_path / "m.json"), stdin=profile.read_bytes())
        assert result.exit_code == 0
        assert result.stdout.splitlines()[3].startswith("1 ")


# `tracelink merge --to chakra`: the options of the writer, and what is output of it.


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((), {}),
        (("--variant", "astra-sim"), {"variant": "astra-sim"}),
        (("--deps", "data", "--gaps"), {"deps": "data", "gaps": "yes"}),
    ],
)
def test_options_are_passed_to_the_writer(
    tracelink: Run, job: Job, arguments: tuple[str, ...], options: dict[str, Any]
) -> None:
    assert tracelink("merge", "traces/", "--to", "chakra", *arguments).exit_code == 0
    assert job.arguments["options"] == options
    assert job.arguments["to"] == "chakra"


@pytest.mark.parametrize("arguments", [("--variant", "some"), ("--deps", "none")])
def test_unknown_values_of_options(tracelink: Run, arguments: tuple[str, str]) -> None:
    result = tracelink("merge", "traces/", "--to", "chakra", *arguments)
    assert result.exit_code == 2
    assert "is not one of" in result.stderr


class TestFiles:
    @pytest.fixture
    def profiles(self, tmp_path: Path) -> Path:
        for rank in (0, 1):
            write(tmp_path / "in" / f"k_{rank}.json", trace(cpu_op("aten::add", 2), rank=rank))
        return tmp_path / "in"

    def test_a_file_for_each_rank(self, tracelink: Run, profiles: Path, tmp_path: Path) -> None:
        result = tracelink("merge", str(profiles), "--to", "chakra", "-o", str(tmp_path / "et" / "job"))
        assert result.exit_code == 0, result.stderr
        assert sorted(path.name for path in (tmp_path / "et").iterdir()) == [
            "job.0.et",
            "job.1.et",
            "job.groups.json",
        ]

    def test_standard_output(self, tracelink: Run, profiles: Path) -> None:
        result = tracelink("merge", str(profiles / "k_0.json"), "--to", "chakra", "-o", "-")
        assert result.exit_code == 0, result.stderr
        decoded = decode(io.BytesIO(result.stdout_bytes))
        assert (len(decoded.nodes), decoded.faults) == (1, [])

    def test_standard_output_takes_one_file(self, tracelink: Run, profiles: Path) -> None:
        result = tracelink("merge", str(profiles), "--to", "chakra", "-o", "-")
        assert result.exit_code == 2
        assert "standard output takes one file, but the job has 2 ranks" in " ".join(result.stderr.split())
        assert "-o et/job" in result.stderr

    def test_options_of_another_format(self, tracelink: Run, profiles: Path, tmp_path: Path) -> None:
        result = tracelink("merge", str(profiles), "-o", str(tmp_path / "a.json"), "--variant", "full")
        assert result.exit_code == 2
        assert "perfetto-json has no option 'variant'" in " ".join(result.stderr.split())
        assert not (tmp_path / "a.json").exists()

    def test_gaps_without_threads_are_refused(self, tracelink: Run, profiles: Path, tmp_path: Path) -> None:
        result = tracelink(
            "merge",
            str(profiles),
            "--to",
            "chakra",
            "--variant",
            "astra-sim",
            "--gaps",
            "-o",
            str(tmp_path / "job"),
        )
        assert result.exit_code == 2
        assert "Leave out --gaps" in result.stderr


# `tracelink merge --bundle`.


def profiles(folder: Path) -> str:
    for rank in (0, 1):
        write(folder / "in" / f"k_{rank}.json", trace(cpu_op(), rank=rank))
    return str(folder / "in")


@pytest.mark.parametrize("more", [(), ("--to", "perfetto-bundle")])
def test_bundle_is_short_for_its_format(tracelink: Run, job: Job, more: tuple[str, ...]) -> None:
    assert tracelink("merge", "traces/", "--bundle", *more).exit_code == 0
    assert job.arguments["to"] == "perfetto-bundle"


def test_a_bundle_by_the_name_of_the_output(tracelink: Run, tmp_path: Path) -> None:
    result = tracelink("merge", profiles(tmp_path), "-o", "job.tar")
    assert result.exit_code == 0, result.stderr
    assert "Wrote job.tar (10.2 kB, 2 events)" in result.stdout


def test_the_default_name_of_a_bundle(tracelink: Run, tmp_path: Path) -> None:
    assert tracelink("merge", profiles(tmp_path), "--bundle").exit_code == 0
    assert list(unpacked(tmp_path / "merged.tar").files) == ["rank_0.json", "rank_1.json"]


def test_a_bundle_on_standard_output(tracelink: Run, tmp_path: Path) -> None:
    result = tracelink("merge", profiles(tmp_path), "--bundle", "-o", "-")
    (tmp_path / "job.tar").write_bytes(result.stdout_bytes)
    assert list(unpacked(tmp_path / "job.tar").files) == ["rank_0.json", "rank_1.json"]
    assert "Wrote standard output" in result.stderr


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--to", "chakra"), "--bundle writes perfetto-bundle, but --to is chakra: use only one of them."),
        (
            ("--window", "1s.."),
            "perfetto-bundle copies files as they are: --window cannot cut inside them. Select whole ranks with",
        ),
        (("--steps", "1", "--only", "kernels"), "as they are: --steps and --only cannot cut inside them."),
        (("--args", "link"), "perfetto-bundle has no option 'args'"),
    ],
)
def test_options_that_a_bundle_does_not_have(
    tracelink: Run, tmp_path: Path, more: tuple[str, ...], message: str
) -> None:
    result = tracelink("merge", profiles(tmp_path), "--bundle", *more)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not list(tmp_path.glob("*.tar"))


def test_a_bundle_needs_a_profile(tracelink: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "et_0.json", et.trace(et.thread_root(), et.process_root()))
    result = tracelink("merge", str(path), "--bundle")
    assert result.exit_code == 1
    assert result.stderr == (
        "tracelink: nothing to bundle: no input is a complete profile (Kineto JSON), which is what Perfetto "
        "loads. To draw everything that was recorded, use tracelink merge without --bundle.\n"
    )


def test_a_bundle_can_be_opened(tracelink: Run, tmp_path: Path) -> None:
    tracelink("merge", profiles(tmp_path), "--bundle")
    with OpenTrace.of(tmp_path / "merged.tar") as offer:
        assert offer.kind is TraceKind.ARCHIVE


# `tracelink merge -o job.pftrace`: the options of the writer, and the files.


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((), {}),
        (("--args", "link"), {"args": "link"}),
        (("--python",), {"python": "yes"}),
        (("--no-python",), {"python": "no"}),
        (("--compress",), {"compress": "yes"}),
        (("--critical-path",), {"critical_path": "yes"}),
    ],
)
@pytest.mark.parametrize("output", ["job.pftrace", "job.json"])
def test_options_of_perfetto_are_passed_to_the_writer(
    tracelink: Run, job: Job, arguments: tuple[str, ...], options: dict[str, Any], output: str
) -> None:
    assert tracelink("merge", "traces/", "-o", output, *arguments).exit_code == 0
    assert job.arguments["options"] == options


@pytest.mark.parametrize(
    ("name", "arguments", "compressed"),
    [
        ("job.pftrace", (), False),
        ("job.perfetto-trace", (), False),
        ("job.pftrace", ("--compress",), False),
        ("job.pftrace.gz", (), True),
        ("job.pftrace.gz", ("--compress",), True),
    ],
)
def test_format_and_gzip_come_from_the_name_of_the_output(
    tracelink: Run, tmp_path: Path, name: str, arguments: tuple[str, ...], compressed: bool
) -> None:
    for rank in (0, 1):
        write(tmp_path / "in" / f"k_{rank}.json", trace(cpu_op("aten::add", 2), rank=rank))
    result = tracelink("merge", str(tmp_path / "in"), "-o", str(tmp_path / name), *arguments)
    assert result.exit_code == 0, result.stderr
    data = (tmp_path / name).read_bytes()
    native = read(gzip.decompress(data) if compressed else data)
    assert [piece.name for piece in native.slices] == ["aten::add", "aten::add"]


def test_compress_makes_json_gzip(tracelink: Run, tmp_path: Path) -> None:
    write(tmp_path / "k_0.json", trace(cpu_op("aten::add", 2), rank=0))
    output = tmp_path / "x.json"
    assert tracelink("merge", str(tmp_path / "k_0.json"), "-o", str(output), "--compress").exit_code == 0
    assert json.loads(gzip.decompress(output.read_bytes()))["traceEvents"][-1]["name"] == "aten::add"


def test_a_trace_is_not_printed_to_a_terminal(
    tracelink: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "k_0.json", trace(cpu_op("aten::add", 2), rank=0))
    monkeypatch.setattr("tracelink.cli.merge.is_terminal", lambda: True)
    result = tracelink("merge", str(tmp_path / "k_0.json"), "-o", "-")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "pipe it into a command, or name an output file" in result.stderr


@pytest.mark.parametrize("name", ["merged.json", "merged.pftrace"])
def test_a_profile_without_events_is_merged(tracelink: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / "k_0.json").write_text('{"traceEvents": [], "distributedInfo": {"rank": 0}}')
    result = tracelink("merge", str(tmp_path / "k_0.json"), "-o", str(tmp_path / name), "--json")
    assert (result.exit_code, json.loads(result.stdout)["outputs"][0]["events"]) == (0, 0)
