"""`tracelink merge`, one trace in, another form out: drawings, Chakra as JSON and back, native timelines."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import networkx as nx
import pytest

import tracelink._api.functions as api
from builders.chakra_files import EtFile
from builders.command_line import Run
from builders.kineto import cpu_op, trace, write
from builders.native_packets import Sequence
from tracelink import samples, schemas

# Drawings: what they take, what they show, what is said of the rest.


@pytest.fixture
def et(tmp_path: Path) -> Path:
    """A folder of two ranks, each with an operator that launches three kernels, one after the other."""
    folder = tmp_path / "et"
    folder.mkdir()
    for rank in (0, 1):
        trace = EtFile(rank, metadata={"rank": ("uint64_val", rank)})
        outer = trace.operator(f"step of {rank}", 0, 100)
        for number in range(3):
            inner = trace.operator(f"op {number}", 10 + 20 * number, 5, outer)
            trace.kernel(f"kernel {number}", 20 + 20 * number, 10, inner, stream=7)
        trace.save(folder)
    return folder


def names(path: str) -> set[str]:
    return {data["name"] for _, data in nx.read_graphml(path).nodes(data=True)}


@pytest.mark.parametrize(
    ("output", "name"),
    [("job.svg", "svg"), ("job.dot", "dot"), ("job.gv", "dot"), ("job.graphml", "graphml")],
)
def test_the_format_comes_from_the_name_of_the_output(
    tracelink: Run, et: Path, output: str, name: str
) -> None:
    result = tracelink("merge", str(et / "job.0.et"), "-o", output)
    assert result.exit_code == 0
    assert result.stdout.split("(")[0] == f"Converted to {name}.\nWrote {output} "
    assert "kernel 2" in Path(output).read_text()


def test_to_selects_the_format_on_standard_output(tracelink: Run, et: Path) -> None:
    result = tracelink("merge", str(et / "job.0.et"), "-o", "-", "--to", "svg")
    assert ElementTree.fromstring(result.stdout).tag.endswith("svg")


def test_json_fits_the_schema_of_merge(tracelink: Run, et: Path) -> None:
    document = json.loads(tracelink("merge", str(et), "-o", "job.svg", "--limit", "2", "--json").stdout)
    jsonschema.validate(document, schemas.load("merge"))
    assert [(output["format"], output["events"]) for output in document["outputs"]] == [("svg", 2)]
    assert [finding["reason"] for finding in document["findings"]] == ["not_drawn"]


def test_depth_folds_nested_nodes(tracelink: Run, et: Path) -> None:
    tracelink("merge", str(et / "job.0.et"), "-o", "job.graphml", "--depth", "1")
    assert names("job.graphml") == {"step of 0", "kernel 0", "kernel 1", "kernel 2"}


def test_a_window_selects_nodes(tracelink: Run, et: Path) -> None:
    tracelink("merge", str(et / "job.0.et"), "-o", "job.graphml", "--window", "31us..45us")
    assert names("job.graphml") == {"step of 0", "op 1", "kernel 1"}


def test_a_directory_is_one_drawing_of_the_selected_ranks(tracelink: Run, et: Path) -> None:
    tracelink("merge", str(et), "-o", "both.graphml")
    tracelink("merge", str(et), "-o", "one.graphml", "--ranks", "1")
    assert {name for name in names("both.graphml") if "step" in name} == {"step of 0", "step of 1"}
    assert "step of 0" not in names("one.graphml")


def test_nodes_that_are_not_drawn_are_counted(tracelink: Run, et: Path) -> None:
    result = tracelink("merge", str(et / "job.0.et"), "-o", "job.svg", "--limit", "2")
    assert "only the first 2 of 7 nodes are drawn" in result.stdout


def test_graphml_has_all_nodes(tracelink: Run, tmp_path: Path) -> None:
    many = EtFile()
    for number in range(2001):
        many.kernel(f"k{number}", number, 1)
    many.save(tmp_path)
    assert "only the first 2,000" in tracelink("merge", "job.0.et", "-o", "job.svg").stdout
    assert "only" not in tracelink("merge", "job.0.et", "-o", "job.graphml").stdout
    assert len(names("job.graphml")) == 2001


def test_truncated_files_are_drawn_up_to_the_end(tracelink: Run, et: Path) -> None:
    whole = (et / "job.0.et").read_bytes()
    Path("cut.et").write_bytes(whole[:-10])
    result = tracelink("merge", "cut.et", "-o", "job.graphml")
    assert "the file ends within the message at byte" in result.stdout
    assert names("job.graphml") == {"step of 0", "op 0", "kernel 0", "op 1", "kernel 1", "op 2"}


def test_a_chakra_trace_is_json_and_back_without_loss(tracelink: Run, et: Path) -> None:
    there = tracelink("merge", str(et / "job.0.et"), "-o", "job.0.nodes.json")
    assert (there.exit_code, there.stdout.split("(")[0]) == (
        0,
        "Converted to chakra-nodes.\nWrote job.0.nodes.json ",
    )
    assert tracelink("merge", "job.0.nodes.json", "-o", "back.0.et").exit_code == 0
    assert Path("back.0.et").read_bytes() == (et / "job.0.et").read_bytes()


class TestRefused:
    def refused(self, tracelink: Run, *arguments: str) -> str:
        path, output, *options = arguments
        result = tracelink("merge", path, "-o", output, *options)
        assert result.exit_code == 2
        assert not Path(output).exists()
        return result.stderr

    def test_other_traces_become_chakra_first(self, tracelink: Run, tmp_path: Path) -> None:
        profile = write(tmp_path / "k.json", trace(cpu_op("aten::add", 2), rank=0))
        output = self.refused(tracelink, str(profile), "job.svg")
        assert "k.json is kineto" in output
        assert "tracelink merge INPUT --to chakra" in output

    def test_one_file_as_json(self, tracelink: Run, et: Path) -> None:
        output = self.refused(tracelink, str(et), "job.nodes.json")
        assert "chakra-nodes is made of one file of chakra, and there are 2. Name one of them." in output

    def test_options_of_drawings_are_for_drawings(self, tracelink: Run, et: Path) -> None:
        output = self.refused(tracelink, str(et / "job.0.et"), "job.nodes.json", "--depth", "2")
        assert (
            "job.nodes.json is not a drawing: --depth applies only to drawings. Leave it out, or name"
            in output
        )

    @pytest.mark.parametrize(
        ("output", "options", "words"),
        [
            ("job.svg", ("--steps", "1"), "a drawing has no --steps. Draw less with --depth, --window, "),
            ("job.svg", ("--args", "none", "--only", "kernels"), "a drawing has no --args and --only. "),
            ("job.nodes.json", ("--ranks", "0"), "chakra-nodes keeps everything that is in "),
            ("job.nodes.json", ("--clock", "none"), ": --clock cannot change it. Leave it out"),
            ("job.json.tar", ("--steps", "1"), "copies files as they are: --steps cannot cut inside them."),
        ],
    )
    def test_options_that_change_nothing(
        self, tracelink: Run, et: Path, output: str, options: tuple[str, ...], words: str
    ) -> None:
        assert words in self.refused(tracelink, str(et / "job.0.et"), output, *options)

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (("--depth", "0"), "at least 1"),
            (("--limit", "0"), "at least 1"),
            (("--window", "soon"), "is not a time range"),
            (("--window", "5s..6s"), "no node is in this window"),
            (("--ranks", "7"), "no file belongs to rank 7"),
        ],
    )
    def test_invalid_arguments(self, tracelink: Run, et: Path, options: tuple[str, ...], words: str) -> None:
        assert words in self.refused(tracelink, str(et), "job.svg", *options)


def test_other_files_of_a_directory_are_named(tracelink: Run, et: Path) -> None:
    write(et / "k.json", trace(cpu_op("aten::add", 2), rank=0))
    result = tracelink("merge", str(et), "-o", "job.svg")
    assert "k.json is not drawn: it is kineto" in result.stdout


# `tracelink merge job.pftrace -o job.json`, and other commands on such a file.


@pytest.fixture
def native(tmp_path: Path) -> str:
    """The sample of two ranks as a native timeline."""
    path = tmp_path / "job.pftrace"
    api.merge([samples.path("gpu_pair")], output=path)
    return str(path)


def test_a_timeline_with_options_is_read_and_written(tracelink: Run, native: str) -> None:
    result = tracelink("merge", native, "-o", "job.json", "--args", "none", "--ranks", "1")
    assert result.exit_code == 0
    events = json.loads(Path("job.json").read_bytes())["traceEvents"]
    assert {row["rank"] for row in api.inspect("job.json").sources for row in [{"rank": row.rank}]} == {1}
    assert not any("External id" in event.get("args", {}) for event in events)


def test_the_output_is_reported(tracelink: Run, native: str, tmp_path: Path) -> None:
    result = tracelink("merge", native, "-o", str(tmp_path / "job.json"))
    assert result.exit_code == 0
    assert re.search(r"job\.json \(\d+\.\d kB, 1,018 events\)", result.stdout)
    document = json.loads((tmp_path / "job.json").read_bytes())
    jsonschema.validate(document, schemas.load("perfetto-json"))


def test_to_standard_output(tracelink: Run, native: str) -> None:
    result = tracelink("merge", native, "-o", "-", "--to", "perfetto-json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["traceEvents"]


def test_inspect_shows_the_ranks_of_a_timeline(tracelink: Run, native: str) -> None:
    result = tracelink("inspect", native)
    assert result.exit_code == 0
    listed = result.stdout.splitlines()
    assert listed[1] == f"In {native}:"
    assert [line.split()[:2] for line in listed if line.startswith("rank-")] == [
        ["rank-0", "perfetto"],
        ["rank-1", "perfetto"],
    ]


@pytest.mark.parametrize("command", [("inspect",), ("merge", "-o", "a.json"), ("merge", "--to", "chakra")])
def test_a_native_trace_of_another_program_is_refused(
    tracelink: Run, tmp_path: Path, command: tuple[str, ...]
) -> None:
    path = tmp_path / "other.pftrace"
    path.write_bytes(bytes(Sequence().instant(0, "another", category="input")))
    name, *rest = command
    result = tracelink(name, str(path), *rest)
    assert result.exit_code == 3
    assert result.stderr.strip() == (
        f"tracelink: {path}: a Perfetto trace that neither tracelink nor PyTorch nor rocprof wrote. "
        "Open it at ui.perfetto.dev, or use the file that torch.profiler wrote."
    )
