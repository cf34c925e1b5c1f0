"""`tracelink validate`."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

import tracelink as library
from builders.chakra_files import EtFile
from builders.command_line import Run
from tracelink import schemas
from tracelink.converters.chakra.schema import CollectiveType
from tracelink.converters.chakra.validation import Rule

DOCS = Path(__file__).parents[2] / "docs" / "validate.md"


@pytest.fixture
def et(tmp_path: Path) -> list[EtFile]:
    """Two ranks whose files are to be written with `save`."""
    files = [EtFile(0), EtFile(1)]
    for trace in files:
        trace.collective(after=[trace.compute("gemm")])
    (tmp_path / "et").mkdir()
    return files


def save(files: list[EtFile], folder: Path) -> None:
    for trace in files:
        trace.save(folder / "et")


def test_valid_traces(tracelink: Run, tmp_path: Path, et: list[EtFile]) -> None:
    save(et, tmp_path)
    result = tracelink("validate", "et")
    assert (result.stdout, result.stderr, result.exit_code) == ("valid: 2 files, 4 nodes\n", "", 0)


def test_invalid_traces(tracelink: Run, tmp_path: Path, et: list[EtFile]) -> None:
    et[1].nodes[0].data_deps.extend([7, 8])
    save(et, tmp_path)
    result = tracelink("validate", "et")
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "invalid: 2 violations (2 files, 4 nodes)",
        "",
        "missing_dependency (M5), 2 times on rank 1: ASTRA-sim aborts; the older feeder deadlocks."
        " Remove these ids, or add their nodes.",
        "  rank 1: node 1 (gemm) lists 7 in data_deps, but the file has no such node",
        "  rank 1: node 1 (gemm) lists 8 in data_deps, but the file has no such node",
    ]


def test_many_violations_are_counted_and_shown_with_verbose(
    tracelink: Run, tmp_path: Path, et: list[EtFile]
) -> None:
    et[0].nodes[0].data_deps.extend(range(100, 300))
    save(et, tmp_path)
    few = tracelink("validate", "et").stdout.splitlines()
    assert few[0] == "invalid: 200 violations (2 files, 4 nodes)"
    assert few[-1] == "  … 195 more violations (-v shows them)."
    assert len(tracelink("validate", "et", "--limit", "7").stdout.splitlines()) == len(few) + 2
    for asking in (["-v"], ["--limit", "0"]):
        assert "lists 299 in data_deps" in tracelink("validate", "et", *asking).stdout


def test_warnings_do_not_make_traces_invalid(tracelink: Run, tmp_path: Path, et: list[EtFile]) -> None:
    et[0].nodes[0].name = "gemm<8, 8>"
    save(et, tmp_path)
    result = tracelink("validate", "et")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "valid: 2 files, 4 nodes",
        "",
        "warning: comma_in_name (S3), once on rank 0: the timeline tool splits names at commas."
        " For example: node 1 (gemm<8, 8>) has a comma in its name",
    ]
    assert "Use another character." in tracelink("validate", "et", "-v").stdout


def test_the_variant_decides_whether_unsupported_operations_are_violations(
    tracelink: Run, tmp_path: Path, et: list[EtFile]
) -> None:
    for trace in et:
        trace.collective(CollectiveType.BARRIER, 0)
    save(et, tmp_path)
    assert tracelink("validate", "et").exit_code == 1
    assert tracelink("validate", "et", "--variant", "full").exit_code == 0


def test_groups_in_a_file(tracelink: Run, tmp_path: Path, et: list[EtFile]) -> None:
    for trace in et:
        trace.collective(group="3")
    save(et, tmp_path)
    (tmp_path / "groups.json").write_text('{"3": [0, 1]}')
    assert tracelink("validate", "et").exit_code == 1
    assert tracelink("validate", "et", "--groups", "groups.json").exit_code == 0
    assert tracelink("validate", "et", "--groups", "gone.json").exit_code == 2


def test_quiet_prints_only_the_verdict_on_invalid_traces(
    tracelink: Run, tmp_path: Path, et: list[EtFile]
) -> None:
    save(et, tmp_path)
    assert tracelink("validate", "et", "-q").stdout == ""
    et[0].nodes[0].name = ""
    save(et, tmp_path)
    assert tracelink("validate", "et", "-q").stdout == "invalid: 1 violation (2 files, 4 nodes)\n"


class TestJson:
    def test_fits_its_schema(self, tracelink: Run, tmp_path: Path, et: list[EtFile]) -> None:
        et[1].nodes[1].ctrl_deps.append(2)
        et[0].nodes[0].name = "a, b"
        save(et, tmp_path)
        result = tracelink("validate", "et", "--json")
        document = json.loads(result.stdout)
        jsonschema.validate(document, schemas.load("validate"))
        assert (document["valid"], result.exit_code, result.stderr) == (False, 1, "")
        assert document["violations"] == [
            {
                "rule": "self_dependency",
                "rank": 1,
                "node": 2,
                "message": "node 2 (all_reduce) lists 2 in ctrl_deps, which is its own id",
                "file": "et/job.1.et",
            }
        ]
        assert [warning["rule"] for warning in document["warnings"]] == ["comma_in_name"]
        assert [(rule["rule"], rule["severity"], rule["count"]) for rule in document["rules"]] == [
            ("self_dependency", "violation", 1),
            ("comma_in_name", "warning", 1),
        ]

    def test_valid_traces(self, tracelink: Run, tmp_path: Path, et: list[EtFile]) -> None:
        save(et, tmp_path)
        document = json.loads(tracelink("validate", "et", "--json").stdout)
        jsonschema.validate(document, schemas.load("validate"))
        assert (document["valid"], document["violations"]) == (True, [])
        assert document["files"][1] == {
            "path": "et/job.1.et",
            "rank": 1,
            "nodes": 2,
            "variant": "astra-sim",
            "bytes": (tmp_path / "et" / "job.1.et").stat().st_size,
        }

    def test_ids_of_64_bits(self, tracelink: Run, tmp_path: Path, et: list[EtFile]) -> None:
        et[0].nodes[1].id = 2**64 - 1
        et[0].nodes[1].name = ""
        save(et, tmp_path)
        assert json.loads(tracelink("validate", "et", "--json").stdout)["violations"][0]["node"] == 2**64 - 1


class TestWithoutVerdict:
    def test_no_trace(self, tracelink: Run, tmp_path: Path) -> None:
        (tmp_path / "profile.json").write_text("{}")
        result = tracelink("validate", ".")
        assert result.exit_code == 3
        assert "no file name ends in .et; found profile.json" in result.stderr

    @pytest.mark.parametrize("arguments", [[], ["gone/"], ["--variant", "mine", "."], ["--limit", "-1", "."]])
    def test_invalid_arguments(self, tracelink: Run, arguments: list[str]) -> None:
        assert tracelink("validate", *arguments).exit_code == 2

    def test_a_file_of_another_format(self, tracelink: Run, tmp_path: Path) -> None:
        (tmp_path / "profile.json").write_text('{"schemaVersion": 1, "traceEvents": []}')
        result = tracelink("validate", "profile.json")
        assert (result.exit_code, result.stderr) == (
            3,
            "tracelink: profile.json: it is not a Chakra trace, but of format kineto. Name the .et files, or write "
            "them: tracelink merge traces/ --to chakra\n",
        )


def test_names_cannot_control_the_terminal(tracelink: Run, tmp_path: Path, et: list[EtFile]) -> None:
    et[0].nodes[0].name = "\x1b[31mred"
    et[0].nodes[0].type = 0
    save(et, tmp_path)
    assert "\x1b" not in tracelink("validate", "et").stdout


def test_standard_input(tracelink: Run) -> None:
    trace = EtFile()
    trace.compute()
    assert tracelink("validate", "-", stdin=b"".join(trace.messages)).stdout.startswith(
        "valid: 1 file, 1 node"
    )


def test_the_library_returns_the_same(tracelink: Run, tmp_path: Path, et: list[EtFile]) -> None:
    save(et, tmp_path)
    validation = library.validate(tmp_path / "et")
    assert (validation.valid, validation.nodes, list(validation.violations)) == (True, 4, [])


@pytest.mark.parametrize("rule", Rule)
def test_every_rule_is_in_the_documentation(rule: Rule) -> None:
    assert f"| `{rule.value}` | {rule.ids} | {rule.breaks} | {rule.advice} |" in DOCS.read_text("utf-8")
