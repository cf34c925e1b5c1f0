"""Writes the profiles of all ranks unchanged into one TAR, with the manifest that Perfetto needs to merge them."""

from __future__ import annotations

import io
import json
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, BinaryIO, cast

from msgspec import Struct
from msgspec.structs import replace

from tracelink._io.engine import Engine
from tracelink._io.sources import Opened, Source
from tracelink._io.targets import Target
from tracelink._model.clock import Clock
from tracelink._model.errors import TraceError, UsageError
from tracelink._model.findings import Finding, Severity, Truncated
from tracelink._model.graph import Rank
from tracelink._model.job import LinkedJob
from tracelink._model.selection import Numbers
from tracelink._model.trace import SourceInfo
from tracelink.plugins import Output

# The manifest: keys of Perfetto's format.


MANIFEST = "perfetto_manifest.json"
"""The name of the manifest in an archive."""

VERSION = 1

LOADED_FORMATS = frozenset({"kineto"})
"""Formats whose files Perfetto loads."""

MAX_MEMBER_BYTES = (8 << 30) - 1
"""Largest member of an archive: the field of its size has eleven octal digits."""


def manifest(files: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The whole document; its first key identifies it."""
    return {"perfetto_manifest": {"version": VERSION, "files": list(files)}}


def file_entry(name: str, machine: str) -> dict[str, Any]:
    """A file and its machine: equal process ids on different machines are different processes."""
    return {"path": name, "machine": {"name": machine}}


def shifted(entry: dict[str, Any], reference: str, offset_ns: int) -> dict[str, Any]:
    """The file with a clock: its time T is T + offset on the timeline of the reference file."""
    return entry | {"clocks": {"sync_to": {"file": reference}, "offset_ns": offset_ns}}


# Files that cannot be in a bundle.


BROKEN = frozenset({Truncated.reason, "damaged"})
"""Reasons of findings on files that Perfetto rejects, and with them the whole archive."""

MESSAGES = {
    "broken": "Perfetto rejects an archive with a truncated or damaged file, so it is omitted. To repair it: "
    "tracelink merge FILE -o REPAIRED.json",
    "too_large": "a file in an archive can have at most 8 GiB, so it is omitted",
}


def reason_to_omit(info: SourceInfo, findings: Sequence[Finding]) -> str:
    """The reason for which a file cannot be in a bundle; empty if it can."""
    if info.format not in LOADED_FORMATS:
        return "format"
    broken = any(finding.reason in BROKEN and finding.source == info.path for finding in findings)
    return "broken" if broken else ""


def omitted_findings(job: LinkedJob, reasons: Mapping[str, str]) -> Iterator[Finding]:
    """Findings on omitted files, and on ranks without a file in the bundle."""
    formats: dict[str, list[str]] = {}
    for info in job.sources:
        if reasons.get(info.path) == "format":
            formats.setdefault(info.format, []).append(info.path)
        elif info.path in reasons:
            reason = reasons[info.path]
            yield Finding(Severity.WARNING, f"not_bundled_{reason}", MESSAGES[reason], source=info.path)
    for name, paths in formats.items():
        message = f"Perfetto does not load files of the format {name}; they are not in the bundle"
        yield Finding(Severity.INFO, "not_bundled_format", message, len(paths), example=paths[0])
    present = {info.rank for info in job.sources if info.path not in reasons}
    if absent := [rank.rank for rank in job.ranks if rank.rank not in present]:
        message = f"no file of rank {Numbers.of(absent)} is in the bundle"
        yield Finding(Severity.WARNING, "rank_not_bundled", message, len(absent))


# Members: their names and clock offsets.


EARLIEST_PREFIX = "earliest_"
"""Prefix of the name of the earliest file if it would not come first: Perfetto reads files in the order of their
names, uses the clock of the first one, and drops events before the 0 of that clock.
"""


class Member(Struct, frozen=True):
    """A file of the bundle."""

    info: SourceInfo
    rank: Rank
    name: str = ""
    zero_ns: int = 0
    """Its time 0 on the reference clock."""
    drift_ns: int = 0
    """The error of that at the start and end of the file, if its clock drifts."""


def members_of(infos: Iterable[SourceInfo], ranks: Sequence[Rank]) -> list[Member]:
    """The members in the order of ranks, with names and offsets."""
    by_rank = {rank.rank: rank for rank in ranks}
    owned = [(info, by_rank[info.rank]) for info in infos if info.rank is not None and info.rank in by_rank]
    placed = [_placed(info, rank) for info, rank in sorted(owned, key=lambda pair: pair[1].rank)]
    return _with_the_earliest_first(list(_named(placed)))


def manifest_of(members: Sequence[Member]) -> dict[str, Any]:
    """The machine of each file, and the offset of its clock to that of the earliest file."""
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
    """Uses the offset of a drifting clock at the middle of the file, where the errors at both ends are equal."""
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
    return [
        replace(member, name=EARLIEST_PREFIX + member.name) if member is chosen else member
        for member in members
    ]


# The writer.


FILE_NAME = "trace.tar"
"""The name of the file in a directory."""

CHUNK = 1 << 20
NOTICEABLE_NS = 1000
"""Smaller errors of the clock are not visible."""


class PerfettoBundleWriter(Struct, frozen=True):
    """An archive that Perfetto v58 or later merges itself."""

    sources: Sequence[Source] | None = None

    name = "perfetto-bundle"

    def of_files(self, sources: Sequence[Source]) -> PerfettoBundleWriter:
        """A writer of jobs that were read from these sources."""
        return PerfettoBundleWriter(sources)

    def write(self, job: LinkedJob, target: Target, engine: Engine) -> list[Output]:
        """Writes the manifest, then the files in the order of ranks."""
        if self.sources is None:
            raise UsageError(
                "a bundle contains files, and a graph in memory has none",
                advice="Merge the files: tracelink.merge(paths, to='perfetto-bundle')",
            )
        sources = {source.path: source for source in self.sources}
        if not any(info.path in sources for info in job.sources):
            raise UsageError(
                "a bundle contains profiles as they are, and the inputs are tables that were made of them",
                advice="Merge the original profiles.",
            )
        sizes, reasons = self._checked(job, sources)
        members = members_of([info for info in job.sources if info.path in sizes], job.ranks)
        if not members:
            raise TraceError(
                "nothing to bundle: no input is a complete profile (Kineto JSON), which is what Perfetto loads",
                advice="To draw everything that was recorded, use tracelink merge without --bundle.",
            )
        with target.file(FILE_NAME) as stream, _archive(stream) as archive:
            text = json.dumps(manifest_of(members), ensure_ascii=False, indent=1).encode()
            _add(archive, MANIFEST, len(text), io.BytesIO(text))
            for member in members:
                path = member.info.path
                _copy(archive, member.name, sizes[path], sources[path], engine)
        rank = job.ranks[0].rank if len(job.ranks) == 1 else None
        events = sum(member.info.events for member in members)
        findings = (*omitted_findings(job, reasons), *_drift(members))
        return [Output(target.path(FILE_NAME), self.name, rank, target.size(FILE_NAME), events, findings)]

    def _checked(
        self, job: LinkedJob, sources: Mapping[str, Source]
    ) -> tuple[dict[str, int], dict[str, str]]:
        """The sizes of the files that can be in the archive, and why others cannot."""
        sizes, reasons = {}, {}
        for info in job.sources:
            reason = reason_to_omit(info, job.findings)
            if not reason:
                sizes[info.path] = _size(sources[info.path])
                if sizes[info.path] > MAX_MEMBER_BYTES:
                    del sizes[info.path]
                    reason = "too_large"
            if reason:
                reasons[info.path] = reason
        return sizes, reasons


class _Counted(Struct, frozen=True):
    """An open source; counts the bytes that are read."""

    stream: Opened
    engine: Engine

    def read(self, size: int) -> bytes:
        """The next bytes."""
        data = self.stream.read(min(size, CHUNK))
        self.engine.meter.add(len(data))
        return data


def _archive(stream: BinaryIO) -> tarfile.TarFile:
    return tarfile.open(fileobj=stream, mode="w|", format=tarfile.USTAR_FORMAT)


def _add(archive: tarfile.TarFile, name: str, size: int, content: IO[bytes]) -> None:
    """Adds a file without owner and time, so that equal files make equal archives."""
    header = tarfile.TarInfo(name)
    header.size = size
    archive.addfile(header, content)


def _copy(archive: tarfile.TarFile, name: str, size: int, source: Source, engine: Engine) -> None:
    """Adds a file; raises if it changed since its size was read."""
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
        "the file changed while it was copied",
        source=source.path,
        advice="Wait until the profiler has written it, then run this again.",
    )


def _size(source: Source) -> int:
    """The decompressed size in bytes."""
    with source.open() as stream:
        if stream.plain and source.local:
            return source.local.stat().st_size
        if stream.plain and source.in_ranges:
            return source.bytes
        return sum(len(chunk) for chunk in iter(lambda: stream.read(CHUNK), b""))


def _drift(members: Sequence[Member]) -> Iterator[Finding]:
    """A finding on drift: Perfetto only supports an offset for each clock."""
    off = [member for member in members if member.drift_ns >= NOTICEABLE_NS]
    if off:
        worst = max(off, key=lambda member: member.drift_ns)
        yield Finding(
            Severity.WARNING,
            "drift_not_corrected",
            "Perfetto can shift the times of a file, but not scale them: drifting clocks are correct in the middle "
            f"of their file and off by up to {worst.drift_ns / 1000:.1f} us at "
            "its ends. `tracelink merge` without --bundle corrects that.",
            len(off),
            example=f"rank {worst.rank.rank}, {worst.rank.clock_drift_ppm:+.3f} ppm",
        )
