"""Which files `--to chakra` writes, how they are called, and what their metadata say."""

from __future__ import annotations

import io
import json
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from builders.chakra_written import EtTrace, traces
from builders.graph import GraphBuilder
from builders.kineto import cpu_op, trace
from builders.kineto import write as write_profile
from tracelink.api import merge, write
from tracelink.converters.chakra.decode import decode
from tracelink.errors import TraceError, UsageError
from tracelink.model.graph import EventGraph


def ranks(*numbers: int) -> EventGraph:
    builder = GraphBuilder(host="node-1")
    for rank in numbers:
        builder.add(builder.track(rank=rank), f"of {rank}", 0, 10)
    return builder.build()


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_file_for_each_rank_and_the_groups(tmp_path: Path, jobs: int) -> None:
    outputs = write(ranks(0, 3), tmp_path / "new" / "job", to="chakra", jobs=jobs)
    assert [(Path(output.path).name, output.format, output.rank, output.events) for output in outputs] == [
        ("job.0.et", "chakra", 0, 1),
        ("job.3.et", "chakra", 3, 1),
        ("job.groups.json", "chakra", None, 0),
    ]
    for output in outputs[:2]:
        assert output.bytes == Path(output.path).stat().st_size
        assert EtTrace.read(output.path).names == [f"of {output.rank}"]
    assert json.loads(Path(outputs[2].path).read_bytes()) == {}
    assert len(list((tmp_path / "new").iterdir())) == 3


@pytest.mark.parametrize(
    ("output", "numbers", "names"),
    [
        ("et/", (0, 1), ["job.0.et", "job.1.et", "job.groups.json"]),
        ("et/run.et", (0, 1), ["run.0.et", "run.1.et", "run.groups.json"]),
        ("et/run.0.et", (0, 1), ["run.0.et", "run.1.et", "run.groups.json"]),
        ("et/run.et", (5,), ["run.et", "run.groups.json"]),
        ("et/run.5.et", (5,), ["run.5.et", "run.groups.json"]),
        ("et/run", (5,), ["run.5.et", "run.groups.json"]),
    ],
)
def test_names(output: str, numbers: tuple[int, ...], names: list[str], tmp_path: Path) -> None:
    write(ranks(*numbers), f"{tmp_path}/{output}", to="chakra")
    assert sorted(path.name for path in (tmp_path / "et").iterdir()) == names


def test_the_suffix_means_this_format(tmp_path: Path) -> None:
    assert {output.format for output in write(ranks(0), tmp_path / "job.et")} == {"chakra"}


def test_the_name_that_nobody_gave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_profile(tmp_path / "in" / "k.json", trace(cpu_op("aten::add", 2), rank=0))
    merged = merge([tmp_path / "in"], to="chakra")
    assert [Path(output.path).name for output in merged.outputs] == ["merged.0.et", "merged.groups.json"]


class TestStandardOutput:
    def test_takes_one_rank_without_the_groups(self, monkeypatch: pytest.MonkeyPatch) -> None:
        buffer = BytesIO()
        monkeypatch.setattr(sys, "stdout", TextIOWrapper(buffer))
        (output,) = write(ranks(4), "-", to="chakra", jobs=1)
        decoded = decode(io.BytesIO(buffer.getvalue()))
        assert (len(decoded.nodes), decoded.faults) == (1, [])
        assert (output.path, output.bytes) == ("-", len(buffer.getvalue()))

    def test_does_not_take_several(self, monkeypatch: pytest.MonkeyPatch) -> None:
        buffer = BytesIO()
        monkeypatch.setattr(sys, "stdout", TextIOWrapper(buffer))
        with pytest.raises(UsageError, match=r"takes one file, and these are 2 ranks.*-o et/job"):
            write(ranks(0, 1), "-", to="chakra")
        assert not buffer.getvalue()


def test_files_appear_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "job.0.et").write_bytes(b"before")
    monkeypatch.setattr("tracelink.converters.chakra.encode.TOGETHER", None)
    with pytest.raises((TypeError, TraceError)):
        write(ranks(0), tmp_path / "job", to="chakra", jobs=1)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("job.0.et", b"before")]


def test_the_metadata(tmp_path: Path) -> None:
    trace = traces(ranks(0, 1, 2, 5), tmp_path, deps="time")[5]
    said = {
        name: trace.decoded.said(name) for name in ("producer", "profile", "deps", "rank", "host", "nodes")
    }
    assert said == {
        "producer": "tracelink",
        "profile": "full",
        "deps": "time",
        "rank": 5,
        "host": "node-1",
        "nodes": 1,
    }
    assert trace.decoded.metadata.version == "1.0.0"
    assert (trace.decoded.said("world_size"), trace.decoded.said("ranks")) == (6, "0-2, 5")
    assert json.loads(trace.decoded.said("groups")) == {}


def test_options_reach_the_writer(tmp_path: Path) -> None:
    write_profile(tmp_path / "in" / "k.json", trace(cpu_op("aten::add", 2), rank=0))
    merged = merge(
        [tmp_path / "in"],
        output=tmp_path / "job",
        to="chakra",
        options={"profile": "astra-sim", "deps": "data"},
    )
    said = EtTrace.read(merged.outputs[0].path).decoded.said
    assert (said("profile"), said("deps")) == ("astra-sim", "data")


def test_options_that_a_format_does_not_have_are_told_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="perfetto-json has no option 'profile'"):
        merge([tmp_path / "is not there"], to="perfetto-json", options={"profile": "full"})
