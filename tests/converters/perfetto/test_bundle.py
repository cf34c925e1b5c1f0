"""Archives of unchanged profiles with a manifest."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

import tracelink
from builders import execution_trace as et
from builders.bundle import Bundle, unpacked
from builders.inputs import found, tar, zipped
from builders.kineto import cpu_op, trace, write
from tracelink._api.functions import merge
from tracelink._io.sources import discover_inputs
from tracelink._io.targets import target_of
from tracelink._join.job_reader import Reading, read_job
from tracelink._model.clock import Clock, Clocks
from tracelink._model.errors import TraceError, UsageError
from tracelink._model.findings import Severity
from tracelink._run.processes import Processes
from tracelink.converters.perfetto import bundle as writer
from tracelink.converters.perfetto.bundle import PerfettoBundleWriter
from tracelink.plugins import Output

BASE = 1_704_067_200_000_000_000


def profile(rank: int, ts: float = 10, name: str = "aten::add", **header: Any) -> bytes:
    return trace(cpu_op(name, ts), rank=rank, host_name=f"node-{rank}", **header)


def bundle_of(folder: Path, *paths: Path, **how: Any) -> Bundle:
    """The bundle of these inputs, or of all in a folder."""
    merge(paths or folder / "in", output=folder / "job.tar", to="perfetto-bundle", **how)
    return unpacked(folder / "job.tar")


def written(folder: Path, **files: bytes) -> None:
    for name, data in files.items():
        write(folder / "in" / f"{name}.json", data)


class TestFiles:
    def test_stand_behind_the_manifest_byte_for_byte(self, tmp_path: Path) -> None:
        texts = [profile(0).replace(b",", b" ,\n"), profile(1), profile(2)]
        written(tmp_path, b=texts[0], a=texts[1], c=texts[2])
        made = bundle_of(tmp_path)
        assert list(made.files.items()) == [(f"rank_{rank}.json", texts[rank]) for rank in range(3)]
        assert made.manifest["version"] == 1
        assert made.machines == {f"rank_{rank}.json": f"rank {rank} · node-{rank}" for rank in range(3)}

    def test_say_nothing_of_who_made_them_and_when(self, tmp_path: Path) -> None:
        written(tmp_path, a=profile(0))
        headers = bundle_of(tmp_path).headers
        assert {(one.mtime, one.uid, one.gid, one.uname, one.gname) for one in headers} == {(0, 0, 0, "", "")}

    def test_are_decompressed_since_perfetto_takes_no_clocks_for_compressed_ones(
        self, tmp_path: Path
    ) -> None:
        path = write(tmp_path / "k_0.json.gz", profile(0))
        assert bundle_of(tmp_path, path).files == {"rank_0.json": profile(0)}

    @pytest.mark.parametrize("pack", [tar, zipped])
    def test_come_out_of_archives(self, tmp_path: Path, pack: Any) -> None:
        members = {"k_0.json": profile(0), "k_1.json.gz": gzip.compress(profile(1))}
        path = pack(tmp_path / "all.archive", members)
        assert bundle_of(tmp_path, path).files == {"rank_0.json": profile(0), "rank_1.json": profile(1)}

    def test_come_from_standard_input(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(profile(3))))
        assert bundle_of(tmp_path, Path("-")).files == {"rank_3.json": profile(3)}

    def test_of_one_rank_are_of_one_machine(self, tmp_path: Path) -> None:
        written(tmp_path, window_1=profile(0, 10), window_2=profile(0, 5000), other=profile(1))
        assert bundle_of(tmp_path).machines == {
            "rank_0.json": "rank 0 · node-0",
            "rank_0_2.json": "rank 0 · node-0",
            "rank_1.json": "rank 1 · node-1",
        }

    def test_are_those_of_the_ranks_that_are_asked_for(self, tmp_path: Path) -> None:
        written(tmp_path, **{f"k_{rank}": profile(rank) for rank in range(4)})
        assert list(bundle_of(tmp_path, ranks="1,3").files) == [
            "rank_1.json",
            "rank_3.json",
        ]

    def test_make_the_same_archive_again(self, tmp_path: Path) -> None:
        written(tmp_path, a=profile(0), b=profile(1))
        bundle_of(tmp_path)
        first = (tmp_path / "job.tar").read_bytes()
        (tmp_path / "in" / "a.json").touch()
        bundle_of(tmp_path, jobs=2)
        assert (tmp_path / "job.tar").read_bytes() == first

    def test_that_change_meanwhile_leave_no_archive(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        written(tmp_path, a=profile(0))
        sizes = iter([len(profile(0)) + 7, len(profile(0)) - 7])
        monkeypatch.setattr(writer, "_size", lambda _: next(sizes))
        for _ in range(2):
            with pytest.raises(TraceError, match="changed while it was copied"):
                bundle_of(tmp_path)
            assert not (tmp_path / "job.tar").exists()

    def test_can_be_gzip_as_a_whole(self, tmp_path: Path) -> None:
        written(tmp_path, a=profile(0))
        merge(tmp_path / "in", output=tmp_path / "job.tar.gz", to="perfetto-bundle")
        assert unpacked(tmp_path / "job.tar.gz").files == {"rank_0.json": profile(0)}


class TestClocks:
    def test_bases_of_files_are_part_of_the_offset(self, tmp_path: Path) -> None:
        written(
            tmp_path,
            a=profile(0, 10, baseTimeNanoseconds=BASE + 700),
            b=profile(1, 20, baseTimeNanoseconds=BASE + 4700),
        )
        assert bundle_of(tmp_path).offsets == {"rank_0.json": 0, "rank_1.json": 4000}

    def test_a_clock_that_is_ahead_is_put_back(self, tmp_path: Path) -> None:
        written(tmp_path, a=profile(0), b=profile(1))
        ahead = Clocks.of([Clock(0, offset_ns=5000), Clock(1, offset_ns=1000)])
        assert bundle_of(tmp_path, clock=ahead).offsets == {"rank_0.json": 0, "rank_1.json": 4000}

    def test_the_earliest_file_is_read_first_so_that_no_time_is_negative(self, tmp_path: Path) -> None:
        written(tmp_path, a=profile(0), b=profile(1), c=profile(2))
        ahead = Clocks.of([Clock(0), Clock(1, offset_ns=1000), Clock(2, offset_ns=-50)])
        made = bundle_of(tmp_path, clock=ahead)
        assert made.offsets == {"rank_0.json": 1000, "earliest_rank_1.json": 0, "rank_2.json": 1050}
        assert list(made.machines.values()) == ["rank 0 · node-0", "rank 1 · node-1", "rank 2 · node-2"]

    def test_events_stand_to_each_other_as_in_the_merged_trace(self, tmp_path: Path) -> None:
        written(
            tmp_path,
            a=profile(0, 10.001, "first", baseTimeNanoseconds=BASE),
            b=profile(1, 3.5, "second", baseTimeNanoseconds=BASE + 10_123),
            c=profile(2, BASE // 1000 + 50, "third"),
        )
        clock = Clocks.of([Clock(0), Clock(1, offset_ns=-333), Clock(2, offset_ns=2_000_000)])
        merge(tmp_path / "in", output=tmp_path / "job.json", clock=clock)
        events = json.loads((tmp_path / "job.json").read_bytes())["traceEvents"]
        merged = {event["name"]: round(event["ts"] * 1000) for event in events if event["ph"] == "X"}
        slices = bundle_of(tmp_path, clock=clock).placed().values()
        bundled = {name: time for file in slices for name, time in file}
        assert {name: merged[name] - merged["first"] for name in merged} == {
            name: bundled[name] - bundled["first"] for name in bundled
        }
        assert min(bundled.values()) >= 0

    def test_drift_is_held_in_the_middle_and_told(self, tmp_path: Path) -> None:
        written(tmp_path, a=profile(0), b=trace(cpu_op(ts=0), cpu_op(ts=1_999_999), rank=1))
        drifting = Clocks.of([Clock(0), Clock(1, offset_ns=0, drift_ppm=4.0)])
        result = merge(tmp_path / "in", output=tmp_path / "job.tar", clock=drifting)
        assert unpacked(tmp_path / "job.tar").offsets == {"rank_0.json": 4000, "earliest_rank_1.json": 0}
        (told,) = [finding for finding in result.findings if finding.reason == "drift_not_corrected"]
        assert (told.severity, told.count, told.example) == (Severity.WARNING, 1, "rank 1, +4.000 ppm")
        assert "off by up to 4.0 us" in told.message


class TestLeftOut:
    def test_formats_that_perfetto_does_not_load(self, tmp_path: Path) -> None:
        written(tmp_path, k_0=profile(0), et_0=et.trace(et.thread_root(), et.process_root()))
        result = merge(tmp_path / "in", output=tmp_path / "job.tar")
        assert list(unpacked(tmp_path / "job.tar").files) == ["rank_0.json"]
        assert [
            (finding.severity, finding.count)
            for finding in result.findings
            if finding.reason == "not_bundled_format"
        ] == [(Severity.INFO, 1)]

    def test_damaged_files_for_which_perfetto_would_refuse_all(self, tmp_path: Path) -> None:
        written(tmp_path, a=profile(0), b=trace(cpu_op(), cpu_op(), rank=1)[:-20])
        result = merge(tmp_path / "in", output=tmp_path / "job.tar")
        assert list(unpacked(tmp_path / "job.tar").files) == ["rank_0.json"]
        reasons = {finding.reason: finding for finding in result.outputs[0].findings}
        assert list(reasons) == ["not_bundled_broken", "rank_not_bundled"]
        assert reasons["not_bundled_broken"].source == str(tmp_path / "in" / "b.json")
        assert reasons["rank_not_bundled"].message == "no file of rank 1 is in the bundle"

    def test_files_that_are_too_large_for_an_archive(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        written(tmp_path, a=profile(0), b=trace(cpu_op(), cpu_op(), cpu_op(), rank=1))
        monkeypatch.setattr(writer, "MAX_MEMBER_BYTES", len(profile(0)))
        result = merge(tmp_path / "in", output=tmp_path / "job.tar")
        assert [finding.reason for finding in result.outputs[0].findings] == [
            "not_bundled_too_large",
            "rank_not_bundled",
        ]

    def test_nothing_that_is_left_is_an_error(self, tmp_path: Path) -> None:
        path = write(tmp_path / "et_0.json", et.trace(et.thread_root(), et.process_root()))
        with pytest.raises(TraceError, match="nothing to bundle"):
            bundle_of(tmp_path, path)
        assert not (tmp_path / "job.tar").exists()


@pytest.mark.parametrize("cut", [{"window": "0..5us"}, {"steps": "3"}, {"only": "kernels"}])
def test_files_are_not_cut_inside(tmp_path: Path, cut: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=f"--{next(iter(cut))} cannot cut inside"):
        merge(write(tmp_path / "no_trace", b"\0"), output=tmp_path / "job.tar", **cut)


def test_a_graph_in_memory_has_no_files(tmp_path: Path) -> None:
    path = write(tmp_path / "k_0.json", profile(0))
    with pytest.raises(UsageError, match="a graph in memory has none"):
        tracelink.merge(tracelink.load(path), tmp_path / "job.tar")


def test_what_is_said_of_the_output(tmp_path: Path) -> None:
    written(tmp_path, a=profile(0), b=profile(1))
    (output,) = merge(tmp_path / "in", output=tmp_path / "job.tar").outputs
    size = (tmp_path / "job.tar").stat().st_size
    assert replace(output, findings=()) == Output(str(tmp_path / "job.tar"), "perfetto-bundle", None, size, 2)


def test_bytes_are_counted_as_they_are_copied(tmp_path: Path) -> None:
    path, engine = write(tmp_path / "k_0.json", profile(0)), Processes(1)
    discovery = discover_inputs(path)
    job = read_job(Reading(discovery, engine), with_events=False)
    before = engine.meter.total
    PerfettoBundleWriter(found(path).sources).write(job, target_of(str(tmp_path / "job.tar")), engine)
    assert engine.meter.total - before == len(profile(0))
