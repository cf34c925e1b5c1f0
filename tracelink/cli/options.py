"""Options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import update_wrapper
from inspect import signature
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem
from msgspec import Struct

import tracelink.plugins as plugins
from tracelink._io.engine import Engine
from tracelink._model.errors import did_you_mean
from tracelink._model.ranges import Numbers
from tracelink._model.selection import KINDS, Selection, Window, words
from tracelink._model.text import counted
from tracelink._run import engine_for
from tracelink._run.reading import InputOptions
from tracelink.cli.console import Console

if TYPE_CHECKING:
    from tracelink._model.metrics import Metrics

Function = TypeVar("Function", bound=Callable[..., Any])
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

# Commands: each has -v, -q, --json and examples.


FLAGS = (
    (("-v", "--verbose"), "Show every finding, and tracebacks."),
    (("-q", "--quiet"), "Show only errors and problems."),
    (("--json",), "Print only the result, as JSON, on standard output."),
)
"""The options of every command."""


class Under(click.Option):
    """An option that the help lists under a heading, after the common ones."""

    def __init__(self, *args: Any, heading: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.heading = heading


def option(*names: str, heading: str = "", **attributes: Any) -> Decorator:
    """Adds an option; one with a heading is less common."""
    if heading:
        attributes |= {"cls": Under, "heading": heading}
    return click.option(*names, **attributes)


class CommandWithExamples(click.Command):
    """A command whose help has the common options first, and ends with examples, which are not wrapped."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the common options, then those under each heading."""
        under: dict[str, list[tuple[str, str]]] = {"Options": []}
        for param in self.get_params(ctx):
            if isinstance(param, click.Option) and (record := param.get_help_record(ctx)):
                under.setdefault(getattr(param, "heading", "Options"), []).append(record)
        for heading, records in under.items():
            with formatter.section(heading):
                formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the examples."""
        with formatter.section("Examples"):
            for line in (self.epilog or "").splitlines():
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")


def command(*examples: str) -> Callable[[Callable[..., None]], click.Command]:
    """Makes a command with -v, -q and --json; the function gets its `Console` as the first argument."""

    def decorate(function: Callable[..., None]) -> click.Command:
        result = click.command(
            cls=CommandWithExamples,
            epilog="\n".join(examples),
            context_settings={"help_option_names": ["-h", "--help"]},
        )(click.pass_obj(function))
        result.params += [_flag(names, text) for names, text in FLAGS]
        return result

    return decorate


def _flag(names: tuple[str, ...], text: str) -> click.Option:
    return click.Option(names, is_flag=True, is_eager=True, expose_value=False, callback=_set_flag, help=text)


def _set_flag(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    console = ctx.ensure_object(Console)
    assert param.name is not None
    if value:
        setattr(console, param.name, True)
    if console.quiet and console.verbose:
        raise click.UsageError("--quiet and --verbose cannot be combined.", ctx)


def collected(name: str, collect: Callable[..., Any], options: Sequence[Decorator]) -> Decorator:
    """Adds options to a command, which gets what `collect` makes of them as its argument `name`.

    The parameters of `collect` are those of the options; the help lists `options` in this order.
    """
    parameters = tuple(signature(collect).parameters)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        def with_collected(*args: Any, **kwargs: Any) -> None:
            value = collect(**{parameter: kwargs.pop(parameter) for parameter in parameters})
            function(*args, **kwargs, **{name: value})

        decorated: Callable[..., Any] = update_wrapper(with_collected, function)
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate


class Words(click.Choice):  # type: ignore[type-arg]  # it is generic from click 8.2 on
    """The values of an option; a similar one is suggested for an unknown value."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value; the error of click, with a similar value, if it is unknown."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            question = did_you_mean(str(value), self.choices)
            raise click.BadParameter(f"{error.message} {question}".strip(), ctx, param) from None


# Inputs.


INPUTS, METRICS, TIMELINES = (
    "Inputs",
    "Metrics (sampled by other programs)",
    "Timelines (perfetto, perfetto-json)",
)
CHAKRA, DRAWINGS, WORK = (
    "Chakra traces (chakra)",
    "Drawings of Chakra traces (svg, dot, graphml)",
    "Large jobs",
)
"""Headings of the help."""

SIZE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)\s*(MB|GB|TB)", re.IGNORECASE)
UNIT = {"MB": 10**6, "GB": 10**9, "TB": 10**12}


class InputKeywords(InputOptions, total=False):
    """The inputs as arguments of the functions of the library."""

    paths: tuple[str, ...]


class Inputs(Struct, frozen=True):
    """The inputs that the command line names."""

    named: tuple[str, ...]
    """All paths, of every format."""
    options: InputKeywords

    def keywords(self) -> InputKeywords:
        """The inputs as arguments of the functions of the library."""
        return self.options


def _ranks_of_files(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, int], ...]:
    return tuple(_rank_of_file(ctx, param, value) for value in values)


def _rank_of_file(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, int]:
    file, _, rank = value.rpartition("=")
    if not (file and rank.isascii() and rank.isdigit()):
        ranks = f"; to read only some ranks, use --ranks {value}" if value[:1].isdigit() else ""
        message = f"{value!r} is not of the form FILE=N, such as --rank trace.json=3{ranks}"
        raise click.BadParameter(message, ctx, param)
    return file, int(rank)


def _files(
    paths: tuple[str, ...],
    et: tuple[str, ...],
    kineto: tuple[str, ...],
    fr: tuple[str, ...],
    rank_of: tuple[tuple[str, int], ...],
    max_unpacked: int | None,
    include: tuple[str, ...],
) -> Inputs:
    named = paths + et + kineto + fr
    if not named:
        raise click.UsageError("No input: name files or directories, or use --et, --kineto or --fr.")
    options: InputKeywords = {
        "paths": paths,
        "et": et,
        "kineto": kineto,
        "fr": fr,
        "rank_of": dict(rank_of),
        "max_unpacked": max_unpacked,
        "include": include,
    }
    return Inputs(named, options)


def _metrics(
    tz: str | None, metrics_start: str | None, interval: str | None, device_map: tuple[str, ...]
) -> Metrics | None:
    if tz is metrics_start is interval is None and not device_map:
        return None
    from tracelink._model.metrics import Metrics

    return Metrics(tz, metrics_start, interval, device_map)


def _path_option(short: str, long: str, text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    names, path = (short, long), click.Path()
    return option(*names, heading=INPUTS, multiple=True, type=path, metavar="PATH", help=text)


def size_in_bytes(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """The bytes of a size such as 200GB; the error of click if it is none."""
    found = SIZE.fullmatch(value.strip()) if value else None
    if value and not found:
        raise click.BadParameter(f"{value!r} is not a size, such as 200GB", ctx, param)
    return int(float(found[1]) * UNIT[found[2].upper()]) if found else None


takes_max_unpacked = option(
    "--max-unpacked",
    callback=size_in_bytes,
    metavar="SIZE",
    help="Refuse an input with more uncompressed bytes, such as 200GB. Default: 64GB.",
    heading=INPUTS,
)


takes_ranks_of_files = option(
    "-r",
    "--rank",
    "rank_of",
    multiple=True,
    callback=_ranks_of_files,
    metavar="FILE=N",
    help="Rank of a file; it overrules what its content and name say. Repeatable.",
    heading=INPUTS,
)


METRICS_OPTIONS: Sequence[Decorator] = (
    option(
        "--map",
        "device_map",
        multiple=True,
        metavar="DEVICE=RANK,...",
        help="Ranks of GPUs by index, host and index, or UUID, such as 0-7=8-15, node1:0=3 or GPU-1bdee8b4=3. "
        "Repeatable.",
        heading=METRICS,
    ),
    option(
        "--tz",
        metavar="ZONE",
        help="The time zone of local times, such as Europe/Berlin or +02:00.",
        heading=METRICS,
    ),
    option(
        "--metrics-start",
        metavar="TIME",
        help="If there are no times: the time of the first sample, such as '2026-11-18 06:42:10'.",
        heading=METRICS,
    ),
    option(
        "--interval",
        metavar="SECONDS",
        help="If there are no times: the time between two samples, such as 0.5.",
        heading=METRICS,
    ),
)
"""The options on metrics that other programs sampled."""

takes_metrics = collected("metrics", _metrics, METRICS_OPTIONS)
"""Adds these options; the function gets them as `metrics`, None if none is given."""


takes_include = option(
    "--include",
    multiple=True,
    metavar="PART",
    help="Read what is left out by default: osrt (calls of the operating system in Nsight Systems). Repeatable.",
    heading=INPUTS,
)


FILES: Sequence[Decorator] = (
    click.argument("paths", nargs=-1, type=click.Path()),
    _path_option("-e", "--et", "Execution trace. Repeatable."),
    _path_option("-k", "--kineto", "Kineto profile. Repeatable."),
    _path_option("-f", "--fr", "Flight-recorder dump, or a directory of dumps. Repeatable."),
    takes_ranks_of_files,
    takes_max_unpacked,
    takes_include,
)

takes_files = collected("inputs", _files, FILES)
"""Adds the arguments that name inputs without metrics; the function gets them as `inputs`."""


def takes_inputs(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the arguments that name inputs and the options on metrics; the function gets them as `inputs`."""

    def with_metrics(*args: Any, inputs: Inputs, metrics: Metrics | None, **kwargs: Any) -> None:
        named = Inputs(inputs.named, {**inputs.options, "metrics": metrics})
        function(*args, inputs=named, **kwargs)

    return takes_files(takes_metrics(update_wrapper(with_metrics, function)))


def _engine(jobs: int | None, engine_name: str | None) -> Engine:
    console = click.get_current_context().find_object(Console)

    def report(engine: Any) -> None:
        if console:
            workers = counted(engine.jobs, "worker")
            page = getattr(engine, "dashboard", "")
            dashboard = f"; dashboard: {page}" if page else ""
            console.info(f"Cluster: {workers}{dashboard}", to_stderr=True)

    return engine_for(jobs, None, engine_name, report)


takes_engine = collected(
    "engine",
    _engine,
    (
        option(
            "-j",
            "--jobs",
            type=click.IntRange(min=1),
            metavar="N",
            help="Use at most N processes. Default: one per core.",
            heading=WORK,
        ),
        option(
            "--engine",
            "engine_name",
            metavar="dask|dask://HOST:PORT",
            help="Work on a Dask cluster: dask starts workers on this machine, an address names a scheduler. "
            "Default: processes of this machine.",
            heading=WORK,
        ),
    ),
)
"""Adds the options that say where the work runs; the function gets them as `engine`."""


def takes_format(function: Function) -> Function:
    """Adds the option for the output format."""
    return click.option(
        "-t",
        "--to",
        metavar="FORMAT",
        shell_complete=_complete_format,
        help="Output format; see `tracelink formats`. Default: from the name of the output, else perfetto-json.",
    )(function)


def _writing(
    variant: str | None,
    deps: str | None,
    gaps: bool,
    arguments: str | None,
    python: bool | None,
    compress: bool,
    critical_path: bool,
) -> dict[str, str]:
    given = {
        "variant": variant,
        "deps": deps,
        "gaps": "yes" if gaps else None,
        "args": arguments,
        "python": None if python is None else "yes" if python else "no",
        "compress": "yes" if compress else None,
        "critical_path": "yes" if critical_path else None,
    }
    return {name: value for name, value in given.items() if value is not None}


takes_writing = collected(
    "options",
    _writing,
    (
        option(
            "--args",
            "arguments",
            type=Words(["all", "link", "none"]),
            help="Write all arguments of events (default), only those that linking adds, or none (default of "
            "duckdb and parquet).",
            heading=TIMELINES,
        ),
        option(
            "--python/--no-python",
            default=None,
            help="Write calls of Python functions (default), or leave them out.",
            heading=TIMELINES,
        ),
        option(
            "--compress",
            is_flag=True,
            help="Write a smaller file: gzip for JSON, stronger deflate for native traces.",
            heading=TIMELINES,
        ),
        option(
            "--critical-path",
            is_flag=True,
            help="Draw the critical path: a track of each rank, and arrows between ranks.",
            heading=TIMELINES,
        ),
        option(
            "--variant",
            type=Words(["full", "astra-sim"]),
            help="Write everything (default), or only device work and communication, as ASTRA-sim runs them.",
            heading=CHAKRA,
        ),
        option(
            "--deps",
            type=Words(["both", "time", "data"]),
            help="Let nodes depend on what ran before them (time), on what produced their tensors (data), or "
            "both (default).",
            heading=CHAKRA,
        ),
        option(
            "--gaps",
            is_flag=True,
            help="Write pauses between operators as idle nodes.",
            heading=CHAKRA,
        ),
    ),
)
"""Adds the options of writers; the function gets them as `options`."""


BUNDLE = "perfetto-bundle"


def _format(bundle: bool, to: str | None) -> str | None:
    if bundle and to not in (None, BUNDLE):
        raise click.UsageError(f"--bundle writes {BUNDLE}, but --to is {to}: use only one of them.")
    return BUNDLE if bundle else to


takes_bundle = collected(
    "to",
    _format,
    (
        option(
            "--bundle",
            is_flag=True,
            help="Write the profiles unchanged into one TAR, with the clock offsets of all ranks; Perfetto (v58 and "
            f"later) merges them. Short for --to {BUNDLE}.",
            heading=TIMELINES,
        ),
    ),
)
"""Adds `--bundle`, which is short for a value of `to`."""


def _complete_format(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in plugins.writers() if name.startswith(incomplete)]


# Clock correction, and the selection of events.


CLOCKS = {
    "none": "no correction",
    "host": "ranks of the same host share a clock",
    "collectives": "each rank has its own clock",
}
"""The values of `--clock`, next to a file."""


def takes_clock(function: Function) -> Function:
    """Adds the option for clock correction."""
    words = "\n".join(f"{word:<11}  {meaning}" for word, meaning in CLOCKS.items())
    return click.option(
        "--clock",
        default="host",
        metavar="none|host|collectives|FILE",
        shell_complete=_complete_clock,
        help=f"Correction of clock offsets between ranks. Default: host.\n\n\b\n{words}\n"
        f"{'FILE':<11}  output of `tracelink clocks --json`",
    )(function)


def _complete_clock(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    words = [CompletionItem(word, help=text) for word, text in CLOCKS.items() if word.startswith(incomplete)]
    return [*words, CompletionItem(incomplete, type="file")]


def _complete_kinds(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    before, comma, word = incomplete.rpartition(",")
    return [CompletionItem(f"{before}{comma}{kind}") for kind in KINDS if kind.startswith(word)]


RANKS_OR_RANK = "--ranks selects ranks, such as 0-7; --rank FILE=N sets the rank of a file."


def _selection(
    only_ranks: str | None, window: str | None, steps: str | None, only: str | None
) -> Selection | None:
    if "=" in (only_ranks or ""):
        raise click.UsageError(RANKS_OR_RANK)
    if only_ranks is window is steps is only is None:
        return None
    selection = Selection(
        ranks=None if only_ranks is None else Numbers.parse(only_ranks, "--ranks"),
        window=None if window is None else Window.parse(window, "--window"),
        steps=None if steps is None else Numbers.parse(steps, "--steps"),
        only=None if only is None else words(only, "--only"),
    )
    return None if selection == Selection() else selection


takes_selection = collected(
    "selection",
    _selection,
    (
        click.option(
            "--ranks",
            "only_ranks",
            metavar="N-M,...",
            help="Read only these ranks, such as 0-7,64.",
        ),
        click.option(
            "--window",
            metavar="FROM..TO",
            help="Keep only events that overlap this time range: times after the first event that is read, such as "
            "2.5s..3.1s, 800ms.. or ..2min, or times in UTC, such as '2025-03-01 08:06:00.5..'",
        ),
        click.option(
            "--steps",
            metavar="N-M,...",
            help="Keep only events in these steps, such as 3-5,7, and the device work that they launch. A step is an "
            "annotation such as ProfilerStep#3 or step 3.",
        ),
        click.option(
            "--only",
            metavar="KIND,...",
            shell_complete=_complete_kinds,
            help=f"Keep only these kinds of events: {', '.join(KINDS)}. The kind collectives contains all events of "
            "collectives and messages.",
        ),
    ),
)
"""Adds the options that select events; the function gets them as `selection`, None if none is given."""
