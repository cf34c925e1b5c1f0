"""The reader of native traces. Every file is shown to it, so it imports what it needs only when it reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from tracelink._model.errors import UnreadableError
from tracelink.converters.perfetto import is_own

if TYPE_CHECKING:
    from tracelink._io.engine import Engine
    from tracelink._io.sources import Source
    from tracelink._model.findings import Finding
    from tracelink._model.trace import RankTrace
    from tracelink.converters.perfetto.reading.profiles import Profiles
    from tracelink.plugins import Inspected


class PerfettoReader:
    """Reads native traces that tracelink wrote, as far as profilers recorded their content."""

    name = "perfetto"

    def inspect(self, source: Source, engine: Engine) -> list[Inspected]:
        """What the profile of each rank is; the first rank also has the findings on the file."""
        from tracelink.plugins import Inspected

        profiles, findings = self._profiles(source, engine)
        ranks = profiles.inspected(engine)
        if any(rank.findings for rank in ranks):
            # They may be about other events, too.
            traces = [(rank, self.read(rank, engine)) for rank in profiles.of_ranks()]
            ranks = [
                Inspected(
                    rank,
                    replace(trace.source, bytes=known.info.bytes),
                    trace.findings,
                    trace.devices,
                )
                for known, (rank, trace) in zip(ranks, traces, strict=True)
            ]
        return [
            Inspected(
                rank.source,
                replace(rank.info, format=self.name),
                [*(() if number else findings), *rank.findings],
                rank.devices,
            )
            for number, rank in enumerate(ranks)
        ]

    def unpacked(self, source: Source, engine: Engine) -> tuple[list[Source], list[Finding]]:
        """A profile of each rank."""
        profiles, findings = self._profiles(source, engine)
        return profiles.of_ranks(), findings

    def _profiles(self, source: Source, engine: Engine) -> tuple[Profiles, list[Finding]]:
        """The profiles in a file, and findings on it."""
        from tracelink.converters.perfetto.native.trace import findings_of, read_native, unprofiled_finding
        from tracelink.converters.perfetto.reading.profiles import Profiles

        profiles = Profiles(source, read_native(source, engine))
        if not profiles.ranks:
            broken = profiles.native.damage.truncated_at
            raise UnreadableError(
                f"{broken}; no profile was found before that" if broken else "this trace contains no profile",
                source=source.path,
                advice="Use the files from which it was made; `tracelink merge -o FILE.json` writes it as JSON.",
            )
        findings = [
            *findings_of(source.path, profiles.native),
            *unprofiled_finding(source.path, profiles.unprofiled()),
        ]
        return profiles, findings

    def read(self, source: Source, engine: Engine) -> RankTrace:
        """The events of one rank: `source` is its profile, or a file with only one rank."""
        from tracelink.plugins import reader

        if not is_own(source.head()):
            return _renamed(reader("kineto").read(source, engine))
        ranks, findings = self.unpacked(source, engine)
        if len(ranks) != 1:
            raise UnreadableError(
                f"this trace contains {len(ranks)} ranks; one rank was requested",
                source=source.path,
                advice="tracelink.load reads all of them.",
            )
        trace = self.read(ranks[0], engine)
        trace.findings += findings
        return trace


def _renamed(trace: RankTrace) -> RankTrace:
    """The same trace under the name of this format; if the profile itself is among the inputs, this one is not used."""
    sources = [replace(source, format=PerfettoReader.name) for source in trace.sources]
    return replace(trace, sources=sources, derived_from=trace.derived_from | {"kineto"})
