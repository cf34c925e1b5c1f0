"""Readers, writers and conversions: the methods that a format implements, and their results.

`Reader`, `Writer` and `Conversion` are what each of them has. What else some of them can do is a field of the
declaration (`ReaderSpec.unpacks`), so that nothing is imported to ask for it; the methods are in `ReaderMethods`,
`WriterMethods` and `ConversionMethods`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tracelink._io.engine import Engine
    from tracelink._io.sources import Source
    from tracelink._io.targets import Target
    from tracelink._model.findings import Finding
    from tracelink._model.job import LinkedJob
    from tracelink._model.metrics import Readings
    from tracelink._model.records import Recording
    from tracelink._model.selection import Numbers, View
    from tracelink._model.trace import RankTrace, SourceInfo
    from tracelink._model.witnesses import CompileLog
    from tracelink.plugins.outputs import Output

# Readers: bytes of one format to a rank trace.


class Reader(Protocol):
    """Turns the bytes of one format into a rank trace. Knows nothing of other formats."""

    name: str
    """The name of the format, as declared."""

    def read(self, source: Source, engine: Engine) -> RankTrace:
        """Reads a whole source. What cannot be read is a finding; nothing readable is an `UnreadableError`."""
        ...


@dataclass(frozen=True, slots=True)
class Inspected:
    """What a source is: a file, or one rank of a file."""

    source: Source
    info: SourceInfo
    findings: Sequence[Finding] = ()
    devices: frozenset[str] = frozenset()
    """Numbers of the GPUs whose streams are in it."""
    content: object = None
    """What the census of a Chakra trace is made of; None for other formats."""


class ReaderMethods(Reader, Protocol):
    """The methods that a reader has if its `ReaderSpec` says so; each raises `UnreadableError` if nothing is readable.

    `read_records`, `read_log`, `read_metrics` and `read_job` belong to its content.
    """

    def unpacked(self, source: Source, engine: Engine) -> tuple[list[Source], list[Finding]]:
        """A source for each rank of a file, which `read` takes, and what did not fit."""
        ...

    def inspect(self, source: Source, engine: Engine) -> list[Inspected]:
        """What the source is, for each of its ranks."""
        ...

    def read_records(self, source: Source, engine: Engine) -> Recording:
        """Reads a whole source as `read` does, but only its entries."""
        ...

    def read_log(self, source: Source, engine: Engine) -> CompileLog:
        """Reads a whole source as `read` does, but as tables of what was compiled."""
        ...

    def read_metrics(self, source: Source, engine: Engine) -> Readings:
        """Reads a whole source as `read` does, but as what it says of hosts and devices."""
        ...

    def read_job(self, source: Source, engine: Engine, wanted: Numbers) -> LinkedJob:
        """The job with only the wanted ranks, or all if it is empty.

        Its parts are small values that load their events in any process.
        """
        ...


# Writers: a job to the bytes of one format.


@dataclass(frozen=True, slots=True)
class Forecast:
    """How large an output will be, about."""

    bytes: int
    """As it is stored."""
    unpacked: int
    """Once it is decompressed."""


class Writer(Protocol):
    """Turns a job into the bytes of one format. Knows nothing of readers."""

    name: str
    """The name of the format, as declared."""

    def write(self, job: LinkedJob, target: Target, engine: Engine) -> list[Output]:
        """Writes the whole job; a rank is in memory only while its part is loaded."""
        ...


class WriterMethods(Writer, Protocol):
    """The methods that a writer has if its `WriterSpec` says so."""

    def configured(self, **options: str) -> WriterMethods:
        """A writer with these options."""
        ...

    def forecast(self, job: LinkedJob, engine: Engine, *, compressed: bool) -> Forecast:
        """How large the output will be, in a small part of the time that writing takes."""
        ...

    def of_files(self, sources: Sequence[Source]) -> WriterMethods:
        """A writer of jobs that were read from these sources: it can leave out files, and nothing inside of one."""
        ...


# Conversions: a file of one format to a file of another, without a graph in between.


class Conversion(Protocol):
    """Rewrites one file of one format as another, with everything that is in it."""

    name: str
    """The name of the format that it makes, as declared."""

    def convert(self, source: Source, target: Target, engine: Engine) -> list[Output]:
        """Rewrites a whole source. What does not fit is a finding of an output."""
        ...


class ConversionMethods(Conversion, Protocol):
    """The method that a conversion has if its `ConversionSpec` says so."""

    def draw(self, sources: Sequence[Source], target: Target, engine: Engine, view: View) -> list[Output]:
        """Draws them as one picture. What is not drawn is a finding of the output."""
        ...
