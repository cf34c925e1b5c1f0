"""The reader of native traces; what it needs to read is imported only then, because every file is shown to it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tracelink.converters.perfetto.recognition import is_own
from tracelink.errors import UnreadableError

if TYPE_CHECKING:
    from tracelink.engine import Engine
    from tracelink.errors import Finding
    from tracelink.io.sources import Source
    from tracelink.model.trace import RankTrace


class PerfettoReader:
    """Reads the native traces that tracelink wrote, as far as profilers recorded what is in them."""

    name = "perfetto"

    def unpacked(self, source: Source, engine: Engine) -> tuple[list[Source], list[Finding]]:
        """A profile of each rank."""
        from tracelink.converters.perfetto.native.trace import findings_of, left_out, native_of
        from tracelink.converters.perfetto.reading.profiles import Profiles

        profiles = Profiles(source, native_of(source, engine))
        sources = profiles.of_ranks()
        if not sources:
            broken = profiles.native.troubles.truncated_at
            raise UnreadableError(
                f"{broken}; nothing before that is of a profiler"
                if broken
                else "nothing in this trace is of a profiler",
                source=source.path,
                advice="Give tracelink the files that it was made of; `tracelink convert` writes it as JSON.",
            )
        findings = [*findings_of(source.path, profiles.native), *left_out(source.path, profiles.left_out())]
        return sources, findings

    def read(self, source: Source, engine: Engine) -> RankTrace:
        """The events of a rank, whose profile or whole file this is."""
        from tracelink.plugins import reader

        if not is_own(source.head()):
            return _called(reader("kineto").read(source, engine))
        ranks, findings = self.unpacked(source, engine)
        if len(ranks) != 1:
            raise UnreadableError(
                f"this is a trace of {len(ranks)} ranks, and one rank was asked for",
                source=source.path,
                advice="tracelink.load reads all of them.",
            )
        trace = self.read(ranks[0], engine)
        trace.findings += findings
        return trace


def _called(trace: RankTrace) -> RankTrace:
    """The same trace under the name of this format; beside the profile that it was made of it is passed over."""
    sources = [replace(source, format=PerfettoReader.name) for source in trace.sources]
    return replace(trace, sources=sources, derived_from=trace.derived_from | {"kineto"})
