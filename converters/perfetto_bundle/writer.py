"""Writes the files of ranks as they are, in one archive with what Perfetto has to know to merge them."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, BinaryIO, cast

from tracelink.converters.perfetto_bundle.left_out import left_out, why_not
from tracelink.converters.perfetto_bundle.members import Member, manifest_of, members_of
from tracelink.converters.perfetto_bundle.schema import LARGEST, MANIFEST
from tracelink.engine import Engine
from tracelink.errors import TraceError, UsageError
from tracelink.findings import Finding, Severity
from tracelink.job import Job
from tracelink.plugins import Files, Output, Target
from tracelink.sources import Opened, Source

FILE_NAME = "trace.tar"
"""The name in a directory."""

PIECE = 1 << 20
NOTICEABLE_NS = 1000
"""Errors of the clock below this are nothing that a person would see."""


@dataclass(frozen=True, slots=True)
class PerfettoBundleWriter:
    """An archive for those who merge in Perfetto itself: it takes v58 or later."""

    sources: Sequence[Source] | None = None

    name = "perfetto-bundle"
    summary = "The profiles of all ranks as they are, with their clocks, for Perfetto v58 and later to merge"
    suffixes = (".tar", ".tar.gz")
    files = Files.ONE

    def of_files(self, sources: Sequence[Source]) -> PerfettoBundleWriter:
        """A writer of jobs that were read from these sources."""
        return PerfettoBundleWriter(sources)

    def write(self, job: Job, target: Target, engine: Engine) -> list[Output]:
        """Writes the manifest, then the files in the order of ranks."""
        if self.sources is None:
            raise UsageError(
                "a bundle holds files, and a graph in memory has none",
                advice="Merge the files: tracelink.merge(paths, to='perfetto-bundle')",
            )
        sources = {source.path: source for source in self.sources}
        sizes, reasons = self._looked_at(job, sources)
        members = members_of([info for info in job.sources if info.path in sizes], job.ranks)
        if not members:
            raise TraceError(
                "nothing to bundle: none of the inputs is a whole profile (Kineto JSON), which is what Perfetto loads",
                advice="To draw everything that was recorded: tracelink merge, without --bundle.",
            )
        with target.file(FILE_NAME) as stream, _archive(stream) as archive:
            text = json.dumps(manifest_of(members), ensure_ascii=False, indent=1).encode()
            _add(archive, MANIFEST, len(text), io.BytesIO(text))
            for member in members:
                path = member.info.path
                _copy(archive, member.name, sizes[path], sources[path], engine)
        rank = job.ranks[0].rank if len(job.ranks) == 1 else None
        events = sum(member.info.events for member in members)
        findings = (*left_out(job, reasons), *_drift(members))
        return [Output(target.path(FILE_NAME), self.name, rank, target.size(FILE_NAME), events, findings)]

    def _looked_at(self, job: Job, sources: Mapping[str, Source]) -> tuple[dict[str, int], dict[str, str]]:
        """The sizes of the files that can stand in the archive, and why others cannot."""
        sizes, reasons = {}, {}
        for info in job.sources:
            reason = why_not(info, job.findings)
            if not reason:
                sizes[info.path] = _size(sources[info.path])
                if sizes[info.path] > LARGEST:
                    del sizes[info.path]
                    reason = "too_large"
            if reason:
                reasons[info.path] = reason
        return sizes, reasons


@dataclass(frozen=True, slots=True)
class _Counted:
    """An open source; its bytes are counted as they pass."""

    stream: Opened
    engine: Engine

    def read(self, size: int) -> bytes:
        """The next bytes."""
        data = self.stream.read(min(size, PIECE))
        self.engine.meter.add(len(data))
        return data


def _archive(stream: BinaryIO) -> tarfile.TarFile:
    return tarfile.open(fileobj=stream, mode="w|", format=tarfile.USTAR_FORMAT)


def _add(archive: tarfile.TarFile, name: str, size: int, content: IO[bytes]) -> None:
    """Adds a file; whoever made it, and when, is not told, so that equal files make equal archives."""
    header = tarfile.TarInfo(name)
    header.size = size
    archive.addfile(header, content)


def _copy(archive: tarfile.TarFile, name: str, size: int, source: Source, engine: Engine) -> None:
    """Adds a file that must not have changed since it was looked at."""
    try:
        with source.open() as stream:
            _add(archive, name, size, cast(IO[bytes], _Counted(stream, engine)))
            grown = bool(stream.read(1))
    except OSError as error:
        raise _changed(source) from error
    if grown:
        raise _changed(source)


def _changed(source: Source) -> TraceError:
    return TraceError(
        "it changed while it was copied",
        source=source.path,
        advice="Wait until the profiler has written it, and run this again.",
    )


def _size(source: Source) -> int:
    """Bytes once it is decompressed."""
    with source.open() as stream:
        if stream.plain and source.local:
            return source.local.stat().st_size
        return sum(len(piece) for piece in iter(lambda: stream.read(PIECE), b""))


def _drift(members: Sequence[Member]) -> Iterator[Finding]:
    """An offset is all that Perfetto takes of a clock."""
    off = [member for member in members if member.drift_ns >= NOTICEABLE_NS]
    if off:
        worst = max(off, key=lambda member: member.drift_ns)
        yield Finding(
            Severity.WARNING,
            "drift_not_corrected",
            f"Perfetto shifts the times of a file and cannot stretch them: clocks that go faster or slower than the "
            f"reference clock are right in the middle of their file and up to {worst.drift_ns / 1000:.1f} us off at "
            "its ends. `tracelink merge` without --bundle corrects that.",
            len(off),
            example=f"rank {worst.rank.rank}, {worst.rank.clock_drift_ppm:+.3f} ppm",
        )
