"""Formats: what a package declares of each, and which are installed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, cast

from tracelink._model import __version__
from tracelink._model.errors import UsageError, did_you_mean
from tracelink.plugins.protocols import Configurable, Conversion, Reader, Writer

ENTRY_POINTS = "tracelink.formats"

_Spec = TypeVar("_Spec", "ReaderSpec", "WriterSpec", "ConversionSpec")

# Declarations: what is known of a format before any of its code is imported.


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
    """The values that each option can have; the first is the default."""


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
    """True if it is a `Drawing`."""


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


# The formats that are installed.


class PluginError(UsageError):
    """A format that is installed but cannot be imported."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """An entry point that declares a format."""

    name: str
    value: str
    """Where the declaration is, as `module:name`."""
    distribution: str = ""
    """The folder with the metadata of the distribution; empty for a checkout that is not installed."""

    @property
    def origin(self) -> str:
        """The distribution that declares it, with its version."""
        from importlib.metadata import Distribution

        if not self.distribution:
            return f"torch-tracelink {__version__}"
        distribution = Distribution.at(self.distribution)
        return f"{distribution.name} {distribution.version}"

    def format(self) -> Format:
        """What it declares; raises `PluginError` if that cannot be imported."""
        return _declared(self)


@cache
def installed() -> dict[str, Plugin]:
    """All formats that are installed, by name, even those that cannot be imported."""
    found = {plugin.name: plugin for folder in reversed(sys.path) for plugin in _plugins_in(Path(folder))}
    if own := _plugins_of_checkout():
        # Metadata next to a checkout, or of another installation, may be older than the code that runs.
        others = [plugin for plugin in found.values() if not plugin.value.startswith("tracelink.")]
        found = {plugin.name: plugin for plugin in (*own, *others)}
    return dict(sorted(found.items()))


def formats(first: str = "") -> Iterator[Format]:
    """The formats that can be imported, `first` before the others; `tracelink formats` reports the rest."""
    for name in sorted(installed(), key=lambda name: name != first):
        with suppress(PluginError):
            yield installed()[name].format()


def recognised(head: bytes, name: str, first: str = "") -> Iterator[Format]:
    """The formats that recognise a file by its first bytes and its name."""
    return (known for known in formats(first) if known.reader and known.reader.recognises(head, name))


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
def reader(name: str) -> Reader:
    """The reader of a format."""
    return cast(Reader, _instance(name, _spec(name, "reader", readers).implementation))


@cache
def conversion(name: str) -> Conversion:
    """The conversion that makes a format."""
    return cast(Conversion, _instance(name, _spec(name, "conversion", conversions).implementation))


def writer(name: str, options: Mapping[str, str] | None = None) -> Writer:
    """The writer of a format; raises `UsageError` if it has no such option, or the option no such value."""
    found = _writer(name)
    if not options:
        return found
    _check_options(name, writer_spec(name).options, options)
    assert isinstance(found, Configurable)
    return found.configured(**options)


def writer_spec(name: str) -> WriterSpec:
    """How a format is written."""
    return _spec(name, "writer", writers)


@cache
def _writer(name: str) -> Writer:
    return cast(Writer, _instance(name, writer_spec(name).implementation))


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


def _plugins_in(folder: Path) -> Iterator[Plugin]:
    """The formats that distributions in a folder of the module path declare.

    This is `importlib.metadata.entry_points`, the import of which takes as long as that of all declarations.
    """
    try:
        names = [name for name in os.listdir(folder) if name.endswith((".dist-info", ".egg-info"))]
    except OSError:
        return
    for name in names:
        with suppress(OSError):
            text = (folder / name / "entry_points.txt").read_text("utf-8")
            yield from _plugins_declared(text, f"[{ENTRY_POINTS}]", str(folder / name))


def _plugins_of_checkout() -> list[Plugin]:
    """The formats of the checkout in which this module is; none if it is installed."""
    try:
        project = (Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8")
    except OSError:
        return []
    return list(_plugins_declared(project, f'[project.entry-points."{ENTRY_POINTS}"]'))


def _plugins_declared(text: str, heading: str, distribution: str = "") -> Iterator[Plugin]:
    """The lines `name = module:object` of a section; tomllib and configparser take longer than everything else."""
    _, found, section = text.partition(heading)
    for line in section.partition("\n[")[0].splitlines() if found else ():
        point, equals, value = line.partition("=")
        if equals:
            yield Plugin(point.strip(), value.strip().strip('"'), distribution)


@cache
def _declared(plugin: Plugin) -> Format:
    declared = _imported(plugin.name, plugin.value)
    if not isinstance(declared, Format) or declared.name != plugin.name:
        raise PluginError(
            f"the plugin {plugin.name!r} ({plugin.value}) is not a declaration of the format {plugin.name!r}",
            advice="It must be a tracelink.plugins.Format of this name; uninstall it, or install another version.",
        )
    return declared


def _instance(name: str, implementation: str) -> object:
    """An object of a class that a format declares."""
    created: object = _imported(name, implementation, installed()[name].format().extra)()
    return created


def _imported(name: str, value: str, extra: str = "") -> Any:
    module, _, attribute = value.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        missing = error.name if isinstance(error, ImportError) else None
        if missing and extra:
            advice = f"Run: pip install 'torch-tracelink[{extra}]'"
            raise PluginError(f"{name} needs {missing}, which is not installed", advice=advice) from error
        raise PluginError(
            f"the plugin {name!r} ({value}) cannot be imported: {error}",
            advice="Install what it needs, or uninstall it.",
        ) from error
