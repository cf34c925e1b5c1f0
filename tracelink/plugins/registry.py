"""Formats and engines: what a package declares of each, and which are installed."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tracelink._model import __version__
from tracelink._model.errors import (
    CrashError,
    ReaderCrashError,
    TraceError,
    UsageError,
    did_you_mean,
    printable,
)
from tracelink.plugins.protocols import ConversionMethods, ReaderMethods, WriterMethods

if TYPE_CHECKING:
    from tracelink._io.engine import Engine
    from tracelink._model.trace import RankTrace

FORMATS, ENGINES = "tracelink.formats", "tracelink.engines"
"""The groups of entry points."""

LONGEST = 300
"""Characters of the message of another program's error."""

Result = TypeVar("Result")
_Spec = TypeVar("_Spec", "ReaderSpec", "WriterSpec", "ConversionSpec")

# Declarations: what is known of a format or an engine before any of its code is imported.


class Content(StrEnum):
    """What the files of a format contain, and with which method its reader reads them."""

    EVENTS = "events"
    """Events of any kind: `read`."""
    PROFILE = "profile"
    """Operators and kernels with times, as a profiler saw them: `read`."""
    NODES = "nodes"
    """Operators in their order, without times: `read`."""
    RECORDS = "records"
    """What processes recorded of their communication until they stopped: `read`, or `read_records` for that alone."""
    COMPILATIONS = "compilations"
    """What processes logged of the compilation of their functions: `read`, or `read_log` for that alone."""
    METRICS = "metrics"
    """Samples of hosts and devices, whose ranks and times often only follow from other sources: `read_metrics`."""
    JOB = "job"
    """A whole job, linked and on one clock: `read_job`."""


class Files(StrEnum):
    """How many files a writer makes, and how they are named."""

    ONE = "one"
    """One for the whole job."""
    IN_DIRECTORY = "in_directory"
    """One for each rank, in a directory if there are several."""
    FOLDER = "folder"
    """A folder for the whole job, which is one output."""
    WITH_PREFIX = "with_prefix"
    """One for each rank and others, whose names start with the name of the output."""


def _never(head: bytes) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class ReaderSpec:
    """How files of a format are recognised, and which class reads them."""

    summary: str
    recognises: Callable[[bytes, str], bool]
    """True if a file with these first bytes is of this format; its name is a hint, never a proof."""
    implementation: str
    """The class of the `Reader`, as `module:name`: imported when it is used."""
    refuses: Callable[[bytes], str] = _never
    """Why a recognised file with these first bytes cannot be read, and what to do; empty if it can."""
    many_per_rank: bool = False
    """True if a rank can have several files of the same time: each process that it starts writes its own."""
    on_request: Mapping[str, str] = field(default_factory=dict)
    """What the reader leaves out unless it is requested, and what that is."""
    content: Content = Content.EVENTS
    unpacks: bool = False
    """True if a file can contain several ranks, which the reader's method `unpacked` makes sources of."""
    inspects: bool = False
    """True if the reader's method `inspect` finds out what a file is in less time than `read`."""
    repeats_profiles: bool = False
    """True if it is recorded next to a profiler, whose operators are in it once more."""
    shown_unchanged: bool = False
    """True if Perfetto's UI shows these files as they are."""
    companions: tuple[str, ...] = ()
    """Ends of the names of files that come with traces of this format and are none: they are left out with a note."""


@dataclass(frozen=True, slots=True)
class WriterSpec:
    """What a format is written as, and by which class."""

    summary: str
    suffixes: tuple[str, ...]
    """Names of outputs that mean this format, in `merge -o NAME`; the first is the default."""
    implementation: str
    """The class of the `Writer`, as `module:name`: imported when it is used."""
    files: Files = Files.ONE
    options: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The values that each option can have; the first is the default. `configured` makes a writer with options."""
    timeline: str = ""
    """How what it writes is stored if Perfetto's UI shows it, `JSON` or `native`; `forecast` estimates its size."""
    copies: bool = False
    """True if files of ranks are copied as they are: the method `of_files` makes a writer for these files."""


@dataclass(frozen=True, slots=True)
class ConversionSpec:
    """Which files can be rewritten as a format, and by which class."""

    summary: str
    reads: tuple[str, ...]
    """Names of the formats that it takes."""
    suffixes: tuple[str, ...]
    """Names of outputs that mean this format if the input is one of `reads`; the first is the default."""
    implementation: str
    """The class of the `Conversion`, as `module:name`: imported when it is used."""
    draws: bool = False
    """True if its method `draw` makes one picture of several files, with only what the view contains."""


@dataclass(frozen=True, slots=True)
class Format:
    """A format: how it is read, written, and made of files of other formats, as far as it is."""

    name: str
    """The name of its entry point, too."""
    reader: ReaderSpec | None = None
    writer: WriterSpec | None = None
    conversion: ConversionSpec | None = None
    extra: str = ""
    """The extra of the distribution that installs what its code imports; empty if it needs nothing."""


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """Where work can run: a cluster, and how to connect to it."""

    name: str
    """The name of its entry point, too: the user's `--engine NAME` starts workers on this machine."""
    summary: str
    implementation: str
    """A function that returns an `Engine`, as `module:name`; it is called with an address (empty for workers on this
    machine) or a client, the number of jobs if that is known, and what to call with the engine once it is connected."""
    schemes: tuple[str, ...] = ()
    """Schemes of addresses that mean this engine: `tcp` is that of `tcp://host:8786`."""
    accepts: Callable[[object], bool] = lambda client: False
    """True for a client, which users of the library give in place of an address."""
    extra: str = ""
    """The extra of the distribution that installs what its code imports; empty if it needs nothing."""


# The formats and engines that are installed.


class PluginError(UsageError):
    """A plugin that is installed but cannot be imported, or that is no declaration."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """An entry point that declares a format or an engine."""

    name: str
    value: str
    """Where the declaration is, as `module:name`."""
    distribution: str = ""
    """The folder with the metadata of the distribution; empty for a checkout that is not installed."""
    group: str = FORMATS

    @property
    def origin(self) -> str:
        """The distribution that declares it, with its version."""
        from importlib.metadata import Distribution

        if not self.distribution:
            return f"torch-tracelink {__version__}"
        distribution = Distribution.at(self.distribution)
        return f"{distribution.name} {distribution.version}"

    def format(self) -> Format:
        """The format that it declares; raises `PluginError` if that cannot be imported."""
        return cast(Format, _declared(self))


@cache
def installed(group: str = FORMATS) -> dict[str, Plugin]:
    """All plugins of a group that are installed, by name, even those that cannot be imported."""
    found = {
        plugin.name: plugin for folder in reversed(sys.path) for plugin in _plugins_in(Path(folder), group)
    }
    if own := _plugins_of_checkout(group):
        # Metadata next to a checkout, or of another installation, may be older than the code that runs.
        others = [plugin for plugin in found.values() if not plugin.value.startswith("tracelink.")]
        found = {plugin.name: plugin for plugin in (*own, *others)}
    return dict(sorted(found.items()))


def engines(wanted: str = "") -> dict[str, EngineSpec]:
    """The engines that can be imported; raises `PluginError` if the wanted one cannot be."""
    found = {}
    for name, plugin in installed(ENGINES).items():
        with nullcontext() if name == wanted else suppress(PluginError):
            found[name] = cast(EngineSpec, _declared(plugin))
    return found


def connect(
    spec: EngineSpec, target: Any, jobs: int | None, on_connect: Callable[[Any], object] | None
) -> Engine:
    """Connects to the cluster at an address or of a client; starts workers on this machine if it is empty."""
    make = _imported(installed(ENGINES)[spec.name], spec.implementation, spec.extra)
    made: Engine = make(target, jobs, on_connect)
    return made


def formats(first: str = "") -> Iterator[Format]:
    """The formats that can be imported, `first` before the others; `tracelink formats` reports the rest."""
    for name in sorted(installed(), key=lambda name: name != first):
        with suppress(PluginError):
            yield installed()[name].format()


def recognised(
    head: bytes, name: str, first: str = "", crashes: list[CrashError] | None = None
) -> Iterator[Format]:
    """The formats that recognise a file by its first bytes and its name; what fails at that is added to `crashes`."""
    for known in formats(first):
        try:
            if known.reader and isolated(
                known.name, "recognition", partial(known.reader.recognises, head, name)
            ):
                yield known
        except CrashError as error:
            if crashes is not None:
                crashes.append(error)


def readers() -> dict[str, ReaderSpec]:
    """The formats that can be read."""
    return {known.name: known.reader for known in formats() if known.reader}


def writers() -> dict[str, WriterSpec]:
    """The formats that can be written."""
    return {known.name: known.writer for known in formats() if known.writer}


def conversions() -> dict[str, ConversionSpec]:
    """The formats that files of other formats can be rewritten as."""
    return {known.name: known.conversion for known in formats() if known.conversion}


@cache
def reader_spec(name: str) -> ReaderSpec:
    """How a format is read; nothing special of a format that is not installed, or that cannot be imported."""
    with suppress(KeyError, PluginError):
        return installed()[name].format().reader or _UNKNOWN
    return _UNKNOWN


_UNKNOWN = ReaderSpec("", lambda head, name: False, "")


def check_reader(name: str) -> None:
    """Raises `UsageError` if no format of this name can be read."""
    _spec(name, "reader", readers)


@cache
def reader(name: str) -> ReaderMethods:
    """The reader of a format."""
    return cast(ReaderMethods, _instance(name, _spec(name, "reader", readers).implementation))


@cache
def conversion(name: str) -> ConversionMethods:
    """The conversion that makes a format."""
    return cast(ConversionMethods, _instance(name, _spec(name, "conversion", conversions).implementation))


def writer(name: str, options: Mapping[str, str] | None = None) -> WriterMethods:
    """The writer of a format; raises `UsageError` if it has no such option, or the option no such value."""
    found = _writer(name)
    if not options:
        return found
    _check_options(name, writer_spec(name).options, options)
    return isolated(name, "writer", lambda: found.configured(**options))


def writer_spec(name: str) -> WriterSpec:
    """How a format is written."""
    return _spec(name, "writer", writers)


@cache
def _writer(name: str) -> WriterMethods:
    return cast(WriterMethods, _instance(name, writer_spec(name).implementation))


# Bugs of plugins, and of our own formats.


def isolated(name: str, role: str, work: Callable[[], Result]) -> Result:
    """Does `work` with code of a format: whatever it raises by mistake becomes a `CrashError` that names the plugin.

    Errors that say what is wrong with an input or with the system pass, as does the end of memory.
    """
    try:
        return work()
    except (TraceError, OSError, MemoryError):
        raise
    except Exception as error:
        raise crash(name, role, error) from error


def check_trace(trace: RankTrace, name: str, path: str) -> None:
    """Raises `CrashError` if the reader of another distribution returned what others cannot work with."""
    if reader_spec(name).implementation.startswith("tracelink."):
        return
    from tracelink.plugins.traces import trace_problems

    if problem := next(trace_problems(trace, path, name), ""):
        raise _bug(name, "reader", f"returned an invalid trace: {problem}")


def crash(name: str, role: str, error: Exception) -> CrashError:
    """The error for a bug of a format: which plugin, what, where it arose, and what to do."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = "/".join(Path(frame.filename).parts[-3:])
    text = f"{type(error).__name__}: {printable(str(error))[:LONGEST]}".rstrip(": ")
    return _bug(name, role, f"failed: {text} (line {frame.lineno} of {place}, in {frame.name})")


def _bug(name: str, role: str, what: str) -> CrashError:
    origin = installed()[name].origin
    kind = ReaderCrashError if role in ("reader", "recognition") else CrashError
    return kind(
        f"the {role} of {name!r} ({origin}) {what}",
        advice=f"This is a bug of {origin.partition(' ')[0]}: report it with this message.",
    )


def _check_options(name: str, known: Mapping[str, Sequence[str]], options: Mapping[str, str]) -> None:
    for option, value in options.items():
        if option not in known:
            others = [other for other, spec in writers().items() if option in spec.options]
            listed = f"It has {', '.join(known)}." if known else "It has no options."
            owners = f" {option} is an option of {', '.join(others)}." if others else ""
            raise UsageError(f"{name} has no option {option!r}", advice=f"{listed}{owners}")
        if value not in known[option]:
            raise UsageError(
                f"{option} can be {', '.join(known[option])}, not {value!r}",
                advice=did_you_mean(value, known[option]),
            )


def _spec(name: str, role: str, all_specs: Callable[[], dict[str, _Spec]]) -> _Spec:
    """What a format declares for a role; only an unknown name costs the import of all declarations."""
    if name in installed() and (found := getattr(installed()[name].format(), role)):
        return cast(_Spec, found)
    suffix = f".{name.lstrip('.')}"
    meant = [known for known, spec in all_specs().items() if suffix in getattr(spec, "suffixes", ())]
    question = f"Did you mean {meant[0]}?" if meant else did_you_mean(name, all_specs())
    installed_names = ", ".join(all_specs()) or "none"
    advice = f"{question} Installed: {installed_names}. See: tracelink formats".strip()
    raise UsageError(f"there is no {role} {name!r}", advice=advice)


def _plugins_in(folder: Path, group: str) -> Iterator[Plugin]:
    """The plugins that distributions in a folder of the module path declare.

    This is `importlib.metadata.entry_points`, the import of which takes as long as that of all declarations.
    """
    try:
        names = [name for name in os.listdir(folder) if name.endswith((".dist-info", ".egg-info"))]
    except OSError:
        return
    for name in names:
        with suppress(OSError):
            text = (folder / name / "entry_points.txt").read_text("utf-8")
            yield from _plugins_declared(text, f"[{group}]", group, str(folder / name))


def _plugins_of_checkout(group: str) -> list[Plugin]:
    """The plugins of the checkout in which this module is; none if it is installed."""
    try:
        project = (Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8")
    except OSError:
        return []
    return list(_plugins_declared(project, f'[project.entry-points."{group}"]', group))


def _plugins_declared(text: str, heading: str, group: str, distribution: str = "") -> Iterator[Plugin]:
    """The lines `name = module:object` of a section; tomllib and configparser take longer than everything else."""
    _, found, section = text.partition(heading)
    for line in section.partition("\n[")[0].splitlines() if found else ():
        point, equals, value = line.partition("=")
        if equals:
            yield Plugin(point.strip(), value.strip().strip('"'), distribution, group)


_DECLARED: Mapping[str, type[Format | EngineSpec]] = {FORMATS: Format, ENGINES: EngineSpec}


@cache
def _declared(plugin: Plugin) -> Format | EngineSpec:
    declared, kind = _imported(plugin, plugin.value), _DECLARED[plugin.group]
    if not isinstance(declared, kind) or declared.name != plugin.name:
        raise PluginError(
            f"the plugin {plugin.name!r} ({plugin.value}) is not a declaration of the name {plugin.name!r}",
            advice=f"It must be a tracelink.plugins.{kind.__name__} of this name; uninstall it, or install another "
            "version.",
        )
    return declared


def _instance(name: str, implementation: str) -> object:
    """An object of a class that a format declares."""
    plugin = installed()[name]
    return isolated(name, "class", _imported(plugin, implementation, plugin.format().extra))


def _imported(plugin: Plugin, value: str, extra: str = "") -> Any:
    module, _, attribute = value.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except MemoryError:
        raise
    except Exception as error:  # whatever the module of a plugin does wrong
        missing = error.name if isinstance(error, ImportError) else None
        if missing and extra:
            advice = f"Run: pip install 'torch-tracelink[{extra}]'"
            raise PluginError(
                f"{plugin.name} needs {missing}, which is not installed", advice=advice
            ) from error
        known = isinstance(error, ImportError | AttributeError)
        raise PluginError(
            f"the plugin {plugin.name!r} ({value}) cannot be imported: "
            f"{'' if known else f'{type(error).__name__}: '}{error}",
            advice="Install what it needs, or uninstall it.",
        ) from error
