"""Traces that can be opened; memory of the browser."""

from __future__ import annotations

import gzip
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from builders import execution_trace as et
from builders.dumps import dumps, hang
from builders.handover import TRACE
from tracelink import samples
from tracelink._join.forecast import (
    GIGABYTE,
    MAX_MEMORY,
    MAX_MEMORY_32_BIT,
    MEMORY_PER_BYTE,
    TraceKind,
)
from tracelink._model.errors import TraceError, UnreadableError, UsageError
from tracelink._open.trace import (
    MEMORY_PER_BUNDLED_BYTE,
    SAMPLE,
    OpenTrace,
    is_native,
    memory_findings,
)

PACKET = bytes([0x0A, 4, 8 << 3, 7, 10 << 3, 1])
"""A native packet: its time is 7, its sequence 1."""


def offer(folder: Path, content: bytes, name: str = "trace.json") -> OpenTrace:
    path = folder / name
    path.write_bytes(content)
    return OpenTrace.of(path)


class TestWhatTheUiShows:
    @pytest.mark.parametrize(
        ("content", "kind"),
        [
            (TRACE, TraceKind.JSON),
            (b' \n[{"ph": "X", "ts": 1}', TraceKind.JSON),
            (PACKET * 3, TraceKind.NATIVE),
            (PACKET, TraceKind.NATIVE),
        ],
    )
    @pytest.mark.parametrize("stored", [bytes, gzip.compress])
    def test_is_told_by_how_it_begins_under_any_name(
        self, tmp_path: Path, content: bytes, kind: TraceKind, stored: type[bytes]
    ) -> None:
        with offer(tmp_path, stored(content), "anything") as made:
            assert (made.kind, made.size) == (kind, len(stored(content)))
            assert made.unpacked == len(content)

    def test_profiles_and_merged_jobs(self, tmp_path: Path) -> None:
        import tracelink

        tracelink.merge(samples.path("cpu_job"), output=tmp_path / "merged.json.gz")
        for path in (tmp_path / "merged.json.gz", samples.path("gpu_pair") / "kineto_0.json.gz"):
            with OpenTrace.of(path) as made:
                assert made.kind is TraceKind.JSON

    def test_an_archive_that_says_what_belongs_together(self, tmp_path: Path) -> None:
        (tmp_path / "manifest.json").write_text('{"perfetto_manifest": {"version": 1}}')
        with tarfile.open(tmp_path / "bundle.tar", "w") as archive:
            archive.add(tmp_path / "manifest.json", "manifest.json")
        with OpenTrace.of(tmp_path / "bundle.tar") as made:
            assert made.kind is TraceKind.ARCHIVE


class TestWhatItDoesNotShow:
    @pytest.mark.parametrize(
        "content",
        [
            b"hello",
            b'{"name": "package", "version": 1}',
            b"\xef\xbb\xbf" + TRACE,
            b"\x7fELF" + bytes(100),
            b"\x0a\x05hello\x07",
            bytes(1000),
            gzip.compress(b"hello", mtime=0),
        ],
    )
    def test_is_refused_with_what_it_shows(self, tmp_path: Path, content: bytes) -> None:
        with pytest.raises(UnreadableError, match=r"this is not a trace that Perfetto's UI shows.*\.pftrace"):
            offer(tmp_path, content)

    def test_execution_traces_are_to_be_merged_first(self, tmp_path: Path) -> None:
        with pytest.raises(UnreadableError, match=r"is execution-trace.*tracelink merge FILE --open"):
            offer(tmp_path, et.trace(et.thread_root(2), et.node(3, "aten::add"), et.process_root()))

    def test_so_are_chakra_traces(self, tmp_path: Path) -> None:
        import tracelink

        tracelink.merge(samples.path("gpu_pair"), output=tmp_path / "job", to="chakra")
        with pytest.raises(UnreadableError, match=r"is chakra.*merge FILE --open"):
            OpenTrace.of(tmp_path / "job.0.et")

    def test_so_are_dumps(self, tmp_path: Path) -> None:
        (first, *_) = sorted(dumps(tmp_path / "dumps", hang(2, culprit=1)).iterdir())
        with pytest.raises(UnreadableError, match=r"is flight-recorder.*merge FILE --open"):
            OpenTrace.of(first)

    def test_an_empty_file(self, tmp_path: Path) -> None:
        with pytest.raises(UnreadableError, match="the file is empty"):
            offer(tmp_path, b"")

    def test_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="there is no such file"):
            OpenTrace.of(tmp_path / "gone.json")

    def test_a_folder_and_a_pipe_that_nobody_writes_to(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        for path in (tmp_path, tmp_path / "pipe"):
            with pytest.raises(UsageError, match="is not a file"):
                OpenTrace.of(path)

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
    def test_a_file_that_may_not_be_read(self, tmp_path: Path) -> None:
        (tmp_path / "t.json").write_bytes(TRACE)
        (tmp_path / "t.json").chmod(0)
        with pytest.raises(TraceError, match="permission denied"):
            OpenTrace.of(tmp_path / "t.json")


@given(
    st.lists(st.binary(max_size=40).map(lambda rest: b"\x08\x01" + rest), min_size=1, max_size=5),
    st.integers(1),
)
def test_packets_in_a_row_are_a_native_trace_and_half_a_length_more_is_none(
    packets: list[bytes], more: int
) -> None:
    whole = b"".join(bytes([0x0A, len(packet)]) + packet for packet in packets)
    assert is_native(whole)
    assert not is_native(bytes([0x0A]) + b"\xff" * min(more, 12))


@given(st.binary(max_size=60))
def test_no_bytes_break_the_look_at_them(head: bytes) -> None:
    assert is_native(head) in (True, False)


class TestTheNameInTheAddress:
    @pytest.mark.parametrize(
        ("name", "told"),
        [
            ("merged.json.gz", "merged.json.gz"),
            ("my job (3).json", "my_job_3_.json"),
            ("jöb&url=x#y%2f.json", "j_b_url_x_y_2f.json"),
            (".hidden.json", "hidden.json"),
            ("\n", "_"),
            ("x" * 150 + ".json", "x" * 95 + ".json"),
        ],
    )
    def test_has_no_letter_that_means_something(self, tmp_path: Path, name: str, told: str) -> None:
        with offer(tmp_path, TRACE, name) as made:
            assert made.name == told


class TestRoomInABrowser:
    def test_is_there_for_what_is_small(self, tmp_path: Path) -> None:
        with offer(tmp_path, TRACE) as made:
            assert memory_findings(made) == []

    @pytest.mark.parametrize("kind", [TraceKind.JSON, TraceKind.NATIVE])
    def test_is_not_in_every_browser_from_4_gb_on(self, tmp_path: Path, kind: TraceKind) -> None:
        most = int(MAX_MEMORY_32_BIT / MEMORY_PER_BYTE[kind])
        with offer(tmp_path, TRACE) as made:
            assert memory_findings(replace(made, kind=kind, unpacked=most)) == []
            (finding,) = memory_findings(replace(made, kind=kind, unpacked=most + GIGABYTE))
        assert "browsers without 64-bit WebAssembly stop at 4 GB" in finding.message
        for way_out in (
            "--ranks",
            "--steps",
            "--window",
            "--only",
            "compression does not",
            "trace_processor_shell",
        ):
            assert way_out in finding.message

    def test_of_a_native_trace_in_bundles_is_told_by_their_size(self, tmp_path: Path) -> None:
        most = int(MAX_MEMORY_32_BIT / MEMORY_PER_BUNDLED_BYTE)
        with offer(tmp_path, TRACE) as made:
            for size, warnings in ((most, 0), (most + 1000, 1)):
                bundled = replace(made, kind=TraceKind.NATIVE, size=size, unpacked=size)
                assert len(memory_findings(bundled)) == warnings

    def test_is_in_none_from_16_gb_on(self, tmp_path: Path) -> None:
        with offer(tmp_path, TRACE) as made:
            (finding,) = memory_findings(replace(made, unpacked=MAX_MEMORY))
        assert "needs about 26 GB of memory for this file, and can have 16 GB" in finding.message

    def test_compressed_files_are_judged_by_what_they_become(self, tmp_path: Path) -> None:
        noise = os.urandom(1 << 20).hex().encode()
        content = TRACE + noise * 8
        with offer(tmp_path, b"".join([gzip.compress(content), gzip.compress(noise * 2)])) as made:
            assert made.size > SAMPLE
            assert made.unpacked == pytest.approx(len(content) + len(noise) * 2, rel=0.05)
