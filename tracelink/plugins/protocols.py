"""Readers, writers and conversions: the methods that a format implements, and their results."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from tracelink._io.engine import Engine
    from tracelink._io.sources import Source
    from tracelink._io.targets import Target
    from tracelink._model.compiles import CompileLog
    from tracelink._model.findings import Finding
    from tracelink._model.job import Job
    from tracelink._model.metrics import Readings
    from tracelink._model.ranges import Numbers
    from tracelink._model.records import Details, Entry, Recording
    from tracelink._model.selection import View
    from tracelink._model.trace import RankTrace, SourceInfo
    from tracelink.plugins.outputs import Output

# Readers: bytes of one format to a rank trace.


class Reader(Protocol):
    """Turns the bytes of one format into a rank trace. Knows nothing of other formats."""

    name: str
    """The name of the format, as declared."""

    def read(self, source: Source, engine: Engine) -> RankTrace:
        """Reads a whole source. What cannot be read is a finding; nothing readable is an `UnreadableError`."""
        ...


@runtime_checkable
class Recorder(Reader, Protocol):
    """A reader of what processes recorded of their communication until they stopped."""

    def read_records(self, source: Source, engine: Engine) -> Recording:
        """Reads a whole source as `read` does, but only its entries."""
        ...


@runtime_checkable
class CompileLogReader(Reader, Protocol):
    """A reader of what processes logged of the compilation of their functions."""

    def read_log(self, source: Source, engine: Engine) -> CompileLog:
        """Reads a whole source as `read` does, but as tables of what was compiled."""
        ...


@runtime_checkable
class MetricsReader(Reader, Protocol):
    """A reader of sampled metrics, whose ranks and times often only follow from other sources."""

    def read_metrics(self, source: Source, engine: Engine) -> Readings:
        """Reads a whole source as `read` does, but as what it says of hosts and devices."""
        ...


@runtime_checkable
class Unpacking(Reader, Protocol):
    """A reader of files of several ranks; it reads the sources that it unpacks them into."""

    def unpacked(self, source: Source, engine: Engine) -> tuple[list[Source], list[Finding]]:
        """A source for each rank, and what did not fit. Nothing readable is an `UnreadableError`."""
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
    """What is known of its content, for the command line."""


@runtime_checkable
class Inspecting(Reader, Protocol):
    """A reader that finds out what a source is in less time than it reads it."""

    def inspect(self, source: Source, engine: Engine) -> list[Inspected]:
        """What the source is, for each of its ranks. Nothing readable is an `UnreadableError`."""
        ...


@runtime_checkable
class EntryPayloads(Protocol):
    """Payloads of a recorder, which can be read again as entries."""

    def entries(self, places: Collection[int]) -> Mapping[int, Entry]:
        """The entries at these indices of the dump, without those that cannot be used."""
        ...


@runtime_checkable
class DetailPayloads(Protocol):
    """Payloads of a recorder, of which some parts can be read again as columns."""

    def details(self) -> Iterator[Details]:
        """These parts of all entries, some entries at a time, in the order of the dump."""
        ...


@runtime_checkable
class JobReader(Reader, Protocol):
    """A reader of sources that contain a whole job, linked and on one clock."""

    def read_job(self, source: Source, engine: Engine, wanted: Numbers) -> Job:
        """The job with only the wanted ranks, or all if it is empty; raises `UnreadableError`.

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

    def write(self, job: Job, target: Target, engine: Engine) -> list[Output]:
        """Writes the whole job; a rank is in memory only while its part is loaded."""
        ...


@runtime_checkable
class Configurable(Writer, Protocol):
    """A writer with options, which its format declares."""

    def configured(self, **options: str) -> Writer:
        """A writer with these options."""
        ...


@runtime_checkable
class Forecasting(Writer, Protocol):
    """A writer that can estimate how much it will write."""

    def forecast(self, job: Job, engine: Engine, *, compressed: bool) -> Forecast:
        """How large the output will be, in a small part of the time that writing takes."""
        ...


@runtime_checkable
class Copying(Writer, Protocol):
    """A writer that copies files of ranks as they are: it can leave out files, and nothing inside of one."""

    def of_files(self, sources: Sequence[Source]) -> Writer:
        """A writer of jobs that were read from these sources."""
        ...


# Conversions: a file of one format to a file of another, without a graph in between.


class Conversion(Protocol):
    """Rewrites one file of one format as another, with everything that is in it."""

    name: str
    """The name of the format that it makes, as declared."""

    def convert(self, source: Source, target: Target, engine: Engine) -> list[Output]:
        """Rewrites a whole source. What does not fit is a finding of an output."""
        ...


@runtime_checkable
class Drawing(Conversion, Protocol):
    """A conversion to a picture, of several files at once and only of what the view contains."""

    def draw(self, sources: Sequence[Source], target: Target, engine: Engine, view: View) -> list[Output]:
        """Draws them as one picture. What is not drawn is a finding of the output."""
        ...
