"""Reader, Writer, Conversion protocols; discovery."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, Protocol, TypeVar, runtime_checkable

from tracelink.errors import Finding, UsageError

if TYPE_CHECKING:
    from tracelink.engine import Engine
    from tracelink.io.sources import Source
    from tracelink.model.job import Job
    from tracelink.model.records import Entry, Recording
    from tracelink.model.trace import RankTrace
    from tracelink.pipeline.selection import View


READERS = "tracelink.readers"
WRITERS = "tracelink.writers"
CONVERSIONS = "tracelink.conversions"


class Reader(Protocol):
    """Turns the bytes of one format into a rank trace. Knows nothing of other formats."""

    name: str
    summary: str

    def recognises(self, head: bytes, name: str) -> bool:
        """Whether a file that begins with `head` is of this format; `name` is a hint, never a proof."""
        ...

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
class Refusing(Reader, Protocol):
    """A reader that recognises files of its format which nobody should read."""

    def refused(self, head: bytes) -> str:
        """Why a file that begins so is not read, and what to do; empty where it is."""
        ...


@runtime_checkable
class Unpacking(Reader, Protocol):
    """A reader of files of several ranks; it reads what it makes of them rank by rank."""

    def unpacked(self, source: Source, engine: Engine) -> tuple[list[Source], list[Finding]]:
        """A source for each rank, and what did not fit. Nothing readable is an `UnreadableError`."""
        ...


@runtime_checkable
class Retelling(Protocol):
    """Payloads of a recorder, which can be read again as entries."""

    def entries(self, places: Collection[int]) -> Mapping[int, Entry]:
        """What the entries at these places of the dump say; those that cannot be used are left out."""
        ...


@dataclass(frozen=True, slots=True)
class Output:
    """A file that was written."""

    path: str
    format: str
    rank: int | None
    bytes: int
    events: int
    findings: tuple[Finding, ...] = ()
    """What could not be written as it is."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """How large an output will be, about."""

    bytes: int
    """As it is stored."""
    unpacked: int
    """Once it is decompressed."""


class Target(Protocol):
    """Where a writer puts its files. A file appears whole or not at all."""

    def file(self, name: str = "") -> AbstractContextManager[BinaryIO]:
        """A file to write: the target itself, or the file `name` in the target as a directory."""
        ...

    def path(self, name: str = "") -> str:
        """How that file is called."""
        ...

    def size(self, name: str = "") -> int:
        """How many bytes that file has now that it is written."""
        ...


class Files(StrEnum):
    """How many files a writer makes, and how they are called."""

    ONE = "one"
    """One for the whole job."""
    IN_DIRECTORY = "in_directory"
    """One for each rank, in a directory where there are several."""
    WITH_PREFIX = "with_prefix"
    """One for each rank and others, whose names begin as the output is called."""


class Writer(Protocol):
    """Turns a job into the bytes of one format. Knows nothing of readers."""

    name: str
    summary: str
    suffixes: tuple[str, ...]
    """File names that mean this format, in `convert A B` and `merge -o B`; the first is the usual one."""
    files: Files

    def write(self, job: Job, target: Target, engine: Engine) -> list[Output]:
        """Writes the whole job; a rank is in memory only while its part is loaded."""
        ...


@runtime_checkable
class Configurable(Protocol):
    """A writer that can write in several ways."""

    options: Mapping[str, Sequence[str]]
    """What can be chosen, and the words for it; the first is the usual one."""

    def configured(self, **options: str) -> Writer:
        """A writer that writes as these options say."""
        ...


@runtime_checkable
class Forecasting(Writer, Protocol):
    """A writer that can tell how much it will write."""

    def forecast(self, job: Job, engine: Engine, *, compressed: bool) -> Forecast:
        """How large the output will be, in a small part of the time that writing takes."""
        ...


@runtime_checkable
class Copying(Writer, Protocol):
    """A writer that copies files of ranks as they are: it can leave out files, and nothing inside of one."""

    def of_files(self, sources: Sequence[Source]) -> Writer:
        """A writer of jobs that were read from these sources."""
        ...


class Conversion(Protocol):
    """Rewrites one file of one format as another with everything that is in it: no graph lies between them."""

    name: str
    """The format that it makes, as `--to` calls it."""
    summary: str
    reads: tuple[str, ...]
    """The formats that it takes, by the names of their readers."""
    suffixes: tuple[str, ...]
    """Names of outputs that mean this format when the input is one of `reads`; the first is the usual one."""

    def convert(self, source: Source, target: Target, engine: Engine) -> list[Output]:
        """Rewrites a whole source. What does not fit is a finding of an output."""
        ...


@runtime_checkable
class Drawing(Conversion, Protocol):
    """A conversion to a picture: of several files at once, and of no more of them than is asked for."""

    def draw(self, sources: Sequence[Source], target: Target, engine: Engine, view: View) -> list[Output]:
        """Draws them as one picture. What is not drawn is a finding of the output."""
        ...


Format = TypeVar("Format")


class PluginError(UsageError):
    """A plugin that is installed but cannot be imported."""


@dataclass(frozen=True, slots=True)
class Plugin(Generic[Format]):
    """A reader, a writer or a conversion that is installed, and the distribution that it comes from."""

    name: str
    origin: str
    load: Callable[[], Format]


@cache
def readers() -> dict[str, Plugin[Reader]]:
    """Every reader that is installed, by name."""
    return dict(_discover(READERS))


@cache
def writers() -> dict[str, Plugin[Writer]]:
    """Every writer that is installed, by name."""
    return dict(_discover(WRITERS))


@cache
def conversions() -> dict[str, Plugin[Conversion]]:
    """Every conversion that is installed, by the name of the format that it makes."""
    return dict(_discover(CONVERSIONS))


def working(plugins: Mapping[str, Plugin[Format]]) -> Iterator[Format]:
    """Those that can be imported; a broken one costs only itself, and `tracelink formats` names it."""
    for plugin in plugins.values():
        with suppress(PluginError):
            yield plugin.load()


def reader(name: str) -> Reader:
    """The reader of a format."""
    return _named(readers(), name, "reader")


def writer(name: str) -> Writer:
    """The writer of a format."""
    return _named(writers(), name, "writer")


def configured(writer: Writer, options: Mapping[str, str]) -> Writer:
    """The writer as the options say; raises `UsageError` where it has no such option or no such word for it."""
    if not options:
        return writer
    known = writer.options if isinstance(writer, Configurable) else {}
    for name, value in options.items():
        if name not in known:
            raise UsageError(
                f"{writer.name} has no option {name!r}",
                advice=f"It has {', '.join(known)}."
                if known
                else "Leave it out, or choose another format: --to",
            )
        if value not in known[name]:
            raise UsageError(f"{name} can be {', '.join(known[name])}, not {value!r}")
    assert isinstance(writer, Configurable)
    return writer.configured(**options)


def _discover(group: str) -> Iterator[tuple[str, Plugin[Any]]]:
    for point in sorted(entry_points(group=group), key=lambda point: point.name):
        distribution = point.dist
        origin = f"{distribution.name} {distribution.version}" if distribution else "unknown"
        yield point.name, Plugin(point.name, origin, cache(lambda point=point: _loaded(point)))


def _loaded(point: EntryPoint) -> Any:
    try:
        return point.load()()
    except (ImportError, AttributeError) as error:
        raise PluginError(
            f"the plugin {point.name!r} ({point.value}) cannot be imported: {error}",
            advice="Install what it needs, or uninstall it.",
        ) from error


def _named(plugins: dict[str, Plugin[Format]], name: str, what: str) -> Format:
    if name not in plugins:
        known = ", ".join(plugins) or "none"
        raise UsageError(f"there is no {what} {name!r}", advice=f"Installed: {known}. See: tracelink formats")
    return plugins[name].load()
