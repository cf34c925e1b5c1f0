"""The profiles as they are, in one TAR."""

from __future__ import annotations

import io
import json
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import IO, Any, BinaryIO, cast

from tracelink.engine import Engine
from tracelink.errors import Finding, Severity, TraceError, UsageError
from tracelink.io.sources import Opened, Source
from tracelink.io.targets import Target
from tracelink.model.clock import Clock
from tracelink.model.graph import Rank
from tracelink.model.job import Job
from tracelink.model.ranges import Numbers
from tracelink.model.trace import SourceInfo
from tracelink.plugins import Output

# What Perfetto's manifest of an archive of traces says: the only place where its words stand.


MANIFEST = "perfetto_manifest.json"
"""How the manifest is called in an archive."""

VERSION = 1

TAKEN = frozenset({"kineto"})
"""Formats, by their readers, whose files Perfetto loads and places as the manifest says."""

LARGEST = (8 << 30) - 1
"""Bytes of a member at most: the field of its length has eleven octal digits."""


def manifest(files: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The whole document; its first key is what it is known by."""
    return {"perfetto_manifest": {"version": VERSION, "files": list(files)}}


def file_entry(name: str, machine: str) -> dict[str, Any]:
    """A file, and the machine that everything in it is of: so equal process ids of two ranks stay apart."""
    return {"path": name, "machine": {"name": machine}}


def shifted(entry: dict[str, Any], reference: str, offset_ns: int) -> dict[str, Any]:
    """The same file, where what it calls T is T + offset on the timeline of another."""
    return entry | {"clocks": {"sync_to": {"file": reference}, "offset_ns": offset_ns}}


# Which files of a job cannot stand in a bundle, and what is said of them.


BROKEN = frozenset({"truncated", "damaged"})
"""Findings of readers on text that Perfetto refuses, and with it the whole archive."""

WORDS = {
    "broken": "Perfetto refuses an archive for one file in it that is cut off or damaged, so it is left out. To mend "
    "it: tracelink convert FILE MENDED.json",
    "too_large": "a file in an archive can have 8 GiB, so it is left out",
}


def why_not(info: SourceInfo, findings: Sequence[Finding]) -> str:
    """Why a file cannot stand in a bundle; empty where it can."""
    if info.format not in TAKEN:
        return "format"
    broken = any(finding.reason in BROKEN and finding.source == info.path for finding in findings)
    return "broken" if broken else ""


def left_out(job: Job, reasons: Mapping[str, str]) -> Iterator[Finding]:
    """What is said of the files that are left out, and of the ranks of which nothing is left."""
    formats: dict[str, list[str]] = {}
    for info in job.sources:
        if reasons.get(info.path) == "format":
            formats.setdefault(info.format, []).append(info.path)
        elif info.path in reasons:
            reason = reasons[info.path]
            yield Finding(Severity.WARNING, f"not_bundled_{reason}", WORDS[reason], source=info.path)
    for name, paths in formats.items():
        message = f"files of the format {name} are nothing that Perfetto loads: they are not in the bundle"
        yield Finding(Severity.INFO, "not_bundled_format", message, len(paths), example=paths[0])
    present = {info.rank for info in job.sources if info.path not in reasons}
    if absent := [rank.rank for rank in job.ranks if rank.rank not in present]:
        message = f"no file of rank {Numbers.of(absent)} is in the bundle"
        yield Finding(Severity.WARNING, "rank_not_bundled", message, len(absent))


# Which files stand in a bundle, how they are called there, and by how much their times are shifted.


FIRST = "earliest_"
"""What the name of the earliest file begins with where it would not come first: Perfetto reads files in the order of
their names, takes the clock of the first as everybody's, and drops what happened before that clock's 0."""


@dataclass(frozen=True, slots=True)
class Member:
    """A file of the bundle."""

    info: SourceInfo
    rank: Rank
    name: str = ""
    zero_ns: int = 0
    """When its time 0 is, on the reference clock."""
    drift_ns: int = 0
    """How far that is wrong at the file's ends, since its clock goes faster or slower than the reference clock."""


def members_of(infos: Iterable[SourceInfo], ranks: Sequence[Rank]) -> list[Member]:
    """The files in the order of ranks, named, and placed on the reference clock."""
    by_rank = {rank.rank: rank for rank in ranks}
    owned = [(info, by_rank[info.rank]) for info in infos if info.rank is not None and info.rank in by_rank]
    placed = [_placed(info, rank) for info, rank in sorted(owned, key=lambda pair: pair[1].rank)]
    return _with_the_earliest_first(list(_named(placed)))


def manifest_of(members: Sequence[Member]) -> dict[str, Any]:
    """What Perfetto has to know: whose each file is, and what its times are on the timeline of the earliest."""
    first = min(members, key=lambda member: member.name)
    entries = []
    for member in members:
        host = f" · {member.rank.host}" if member.rank.host else ""
        entry = file_entry(member.name, f"rank {member.rank.rank}{host}")
        entries.append(
            entry if member is first else shifted(entry, first.name, member.zero_ns - first.zero_ns)
        )
    return manifest(entries)


def _placed(info: SourceInfo, rank: Rank) -> Member:
    """A clock that drifts is taken as it stands in the middle of the file, where the error at both ends is equal."""
    clock = Clock(
        rank.rank,
        offset_ns=rank.clock_offset_ns,
        drift_ppm=rank.clock_drift_ppm,
        reference_ns=rank.clock_reference_ns,
    )
    start = rank.clock_reference_ns if info.start_ns is None else info.start_ns
    end = start if info.end_ns is None else info.end_ns
    middle = start + (end - start) // 2
    ahead = middle - clock.corrected_time(middle)
    drift = abs(start - clock.corrected_time(start) - ahead)
    return Member(info, rank, zero_ns=info.zero_ns - ahead, drift_ns=drift)


def _named(members: Iterable[Member]) -> Iterable[Member]:
    counts: Counter[int] = Counter()
    for member in members:
        number = member.rank.rank
        counts[number] += 1
        more = f"_{counts[number]}" if counts[number] > 1 else ""
        yield replace(member, name=f"rank_{number}{more}.json")


def _with_the_earliest_first(members: Sequence[Member]) -> list[Member]:
    if not members:
        return []
    earliest = min(member.zero_ns for member in members)
    first = min(members, key=lambda member: member.name)
    if first.zero_ns == earliest:
        return list(members)
    chosen = next(member for member in members if member.zero_ns == earliest)
    return [replace(member, name=FIRST + member.name) if member is chosen else member for member in members]


# Writes the files of ranks as they are, in one archive with what Perfetto has to know to merge them.


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
