"""`tracelink convert`: drawings and native timelines."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import networkx as nx
import pytest

from builders.chakra_files import EtFile
from builders.command_line import Run
from builders.kineto import cpu_op, trace, write
from builders.native_packets import Sequence
from tracelink import _api as api
from tracelink import samples, schemas

# `tracelink convert` to a picture: what it takes, what it shows, what it says of the rest.


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
    result = tracelink("convert", str(et / "job.0.et"), output)
    assert result.exit_code == 0
    assert result.stdout.split("(")[0] == f"Converted to {name}.\nWrote {output} "
    assert "kernel 2" in Path(output).read_text()


def test_to_selects_the_format_on_standard_output(tracelink: Run, et: Path) -> None:
    result = tracelink("convert", str(et / "job.0.et"), "-", "--to", "svg")
    assert ElementTree.fromstring(result.stdout).tag.endswith("svg")


def test_json_fits_the_schema_of_merge(tracelink: Run, et: Path) -> None:
    document = json.loads(tracelink("convert", str(et), "job.svg", "--limit", "2", "--json").stdout)
    jsonschema.validate(document, schemas.load("merge"))
    assert [(output["format"], output["events"]) for output in document["outputs"]] == [("svg", 2)]
    assert [finding["reason"] for finding in document["findings"]] == ["not_drawn"]


def test_depth_folds_nested_nodes(tracelink: Run, et: Path) -> None:
    tracelink("convert", str(et / "job.0.et"), "job.graphml", "--depth", "1")
    assert names("job.graphml") == {"step of 0", "kernel 0", "kernel 1", "kernel 2"}


def test_a_window_selects_nodes(tracelink: Run, et: Path) -> None:
    tracelink("convert", str(et / "job.0.et"), "job.graphml", "--window", "31us..45us")
    assert names("job.graphml") == {"step of 0", "op 1", "kernel 1"}


def test_a_directory_is_one_drawing_of_the_selected_ranks(tracelink: Run, et: Path) -> None:
    tracelink("convert", str(et), "both.graphml")
    tracelink("convert", str(et), "one.graphml", "--ranks", "1")
    assert {name for name in names("both.graphml") if "step" in name} == {"step of 0", "step of 1"}
    assert "step of 0" not in names("one.graphml")


def test_nodes_that_are_not_drawn_are_counted(tracelink: Run, et: Path) -> None:
    result = tracelink("convert", str(et / "job.0.et"), "job.svg", "--limit", "2")
    assert "only the first 2 of 7 nodes are drawn" in result.stdout


def test_graphml_has_all_nodes(tracelink: Run, tmp_path: Path) -> None:
    many = EtFile()
    for number in range(2001):
        many.kernel(f"k{number}", number, 1)
    many.save(tmp_path)
    assert "only the first 2,000" in tracelink("convert", "job.0.et", "job.svg").stdout
    assert "only" not in tracelink("convert", "job.0.et", "job.graphml").stdout
    assert len(names("job.graphml")) == 2001


def test_truncated_files_are_drawn_up_to_the_end(tracelink: Run, et: Path) -> None:
    whole = (et / "job.0.et").read_bytes()
    Path("cut.et").write_bytes(whole[:-10])
    result = tracelink("convert", "cut.et", "job.graphml")
    assert "the file ends within the message at byte" in result.stdout
    assert names("job.graphml") == {"step of 0", "op 0", "kernel 0", "op 1", "kernel 1", "op 2"}


class TestRefused:
    def refused(self, tracelink: Run, *arguments: str) -> str:
        result = tracelink("convert", *arguments)
        assert result.exit_code == 2
        assert not Path(arguments[1]).exists()
        return result.stderr

    def test_other_traces_become_chakra_first(self, tracelink: Run, tmp_path: Path) -> None:
        profile = write(tmp_path / "k.json", trace(cpu_op("aten::add", 2), rank=0))
        output = self.refused(tracelink, str(profile), "job.svg")
        assert "k.json is kineto" in output
        assert "tracelink merge INPUT --to chakra" in output

    def test_options_of_drawings_are_for_drawings(self, tracelink: Run, et: Path) -> None:
        output = self.refused(tracelink, str(et / "job.0.et"), "job.json", "--depth", "2")
        assert "job.json is not a drawing: --depth applies only to drawings. Leave it out, or name" in output

    @pytest.mark.parametrize(
        ("output", "options", "words"),
        [
            ("job.svg", ("--steps", "1"), "a drawing has no --steps. Draw less with --depth, --window, "),
            ("job.svg", ("--args", "none", "--only", "kernels"), "a drawing has no --args and --only. "),
            ("job.json", ("--ranks", "0"), "chakra-nodes keeps everything that is in "),
            ("job.json", ("--variant", "full"), ": --variant cannot change it. Leave it out"),
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
    result = tracelink("convert", str(et), "job.svg")
    assert "k.json is not drawn: it is kineto" in result.stdout


# `tracelink convert job.pftrace job.json`, and other commands on such a file.


@pytest.fixture
def native(tmp_path: Path) -> str:
    """The sample of two ranks as a native timeline."""
    path = tmp_path / "job.pftrace"
    api.merge([samples.path("gpu_pair")], output=path)
    return str(path)


def test_a_profile_takes_the_options_of_merge(tracelink: Run, tmp_path: Path) -> None:
    profile = str(samples.path("gpu_pair") / "kineto_0.json.gz")
    options = ("--steps", "1", "--only", "kernels,annotations", "--args", "none", "--compress")
    for output in ("a.json.gz", "a.pftrace"):
        converted = tracelink("convert", profile, output, *options)
        merged = tracelink("merge", profile, "-o", f"merged.{output}", *options)
        assert (converted.exit_code, merged.exit_code) == (0, 0)
        assert converted.stdout.replace(output, f"merged.{output}") == merged.stdout
    assert tracelink("convert", profile, "job", "--to", "chakra", "--variant", "astra-sim").exit_code == 0
    help_of = {name: tracelink(name, "--help").stdout for name in ("merge", "convert")}
    taken = {
        name: set(re.findall(r"^ +(?:-\w, )?(--[a-z]+)", text, re.MULTILINE))
        for name, text in help_of.items()
    }
    inputs = {"--et", "--kineto", "--fr", "--rank", "--output", "--bundle", "--clock", "--resume", "--open"}
    assert taken["merge"] - taken["convert"] == inputs
    assert taken["convert"] - taken["merge"] == {"--depth", "--limit"}


def test_a_timeline_takes_the_options_of_merge(tracelink: Run, native: str) -> None:
    result = tracelink("convert", native, "job.json", "--args", "none", "--ranks", "1")
    assert result.exit_code == 0
    events = json.loads(Path("job.json").read_bytes())["traceEvents"]
    assert {row["rank"] for row in api.inspect("job.json").sources for row in [{"rank": row.rank}]} == {1}
    assert not any("External id" in event.get("args", {}) for event in events)


def test_the_output_is_reported(tracelink: Run, native: str, tmp_path: Path) -> None:
    result = tracelink("convert", native, str(tmp_path / "job.json"))
    assert result.exit_code == 0
    assert re.search(r"job\.json \(\d+\.\d kB, 1,018 events\)", result.stdout)
    document = json.loads((tmp_path / "job.json").read_bytes())
    jsonschema.validate(document, schemas.load("perfetto-json"))


def test_to_standard_output(tracelink: Run, native: str) -> None:
    result = tracelink("convert", native, "-", "--to", "perfetto-json")
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


@pytest.mark.parametrize("command", [("inspect",), ("merge", "-o", "a.json"), ("convert", "a.json")])
def test_a_native_trace_of_another_program_is_refused(
    tracelink: Run, tmp_path: Path, command: tuple[str, ...]
) -> None:
    path = tmp_path / "other.pftrace"
    path.write_bytes(bytes(Sequence().instant(0, "another", category="input")))
    name, *rest = command
    arguments = [str(path), str(tmp_path / "a.json")] if name == "convert" else [str(path), *rest]
    result = tracelink(name, *arguments)
    assert result.exit_code == 3
    assert result.stderr.strip() == (
        f"tracelink: {path}: a Perfetto trace that neither tracelink nor PyTorch nor rocprof wrote. "
        "Open it at ui.perfetto.dev, or use the file that torch.profiler wrote."
    )
