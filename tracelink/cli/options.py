"""Options that several commands share: those of every command, and those of reading."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import update_wrapper
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal, Unpack, cast

import click
from click.shell_completion import CompletionItem
from msgspec import Struct

from tracelink._model.errors import UsageError, did_you_mean
from tracelink._model.ranges import Numbers
from tracelink._model.selection import KINDS, Selection, Window, words
from tracelink._model.text import counted
from tracelink._run import engine_for
from tracelink._run.reading import ReadOptions, SelectOptions
from tracelink.cli.console import Console
from tracelink.cli.terminal import watching

if TYPE_CHECKING:
    from tracelink._model.metrics import Metrics

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
        raise click.UsageError("--quiet and --verbose cannot be combined: leave one of them out.", ctx)


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


# Options of reading, as they are declared for the library.


class Flag(Struct, frozen=True):
    """How the command line takes an option of reading, whose text is its help."""

    names: tuple[str, ...]
    metavar: str
    heading: str = ""
    """The heading under which the help lists it; empty for the most common ones."""
    parse: Callable[[str, str], Any] | None = None
    """Makes the value of a text, for the flag of this name; raises `UsageError`."""
    collect: Callable[[Sequence[Any]], Any] | None = None
    """Makes the value of all that were given, if the flag can be given several times."""
    field: str = ""
    """The argument of the option's class, if several flags make one value."""
    text: str = ""
    """The help of such a flag."""
    example: str = ""
    """A value, for the help."""


INPUTS, METRICS, WORK = "Inputs", "Metrics (sampled by other programs)", "Large jobs"
SIZE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)\s*(MB|GB|TB)", re.IGNORECASE)
UNIT = {"MB": 10**6, "GB": 10**9, "TB": 10**12}


def parse_size(text: str, flag: str) -> int:
    """Returns the bytes of a size such as 200GB."""
    found = SIZE.fullmatch(text.strip())
    if not found:
        raise UsageError(
            f"{flag}: {text!r} is not a size, such as 200GB", advice="Write a number with MB, GB or TB."
        )
    return int(float(found[1]) * UNIT[found[2].upper()])


def parse_rank(text: str, flag: str) -> tuple[str, int]:
    """Returns a file and its rank."""
    file, _, rank = text.rpartition("=")
    if not (file and rank.isascii() and rank.isdigit()):
        raise UsageError(
            f"{flag}: {text!r} is not of the form FILE=N",
            advice=f"Write, for example, --rank trace.json=3; to read only some ranks, use --ranks {text}"
            if text[:1].isdigit()
            else "Write, for example, --rank trace.json=3",
        )
    return file, int(rank)


READING: Mapping[str, tuple[str, Sequence[Flag]]] = {
    "et": ("Execution traces.", [Flag(("-e", "--et"), "PATH", INPUTS, collect=tuple)]),
    "kineto": ("Kineto profiles.", [Flag(("-k", "--kineto"), "PATH", INPUTS, collect=tuple)]),
    "fr": (
        "Flight-recorder dumps, or directories of dumps.",
        [Flag(("-f", "--fr"), "PATH", INPUTS, collect=tuple)],
    ),
    "rank_of": (
        "The rank of a file, by its path or name; it overrules what its content and name say.",
        [Flag(("-r", "--rank"), "FILE=N", INPUTS, parse_rank, dict)],
    ),
    "max_unpacked": (
        "Refuse an input with more uncompressed bytes. Default: 64 GB.",
        [Flag(("--max-unpacked",), "SIZE", INPUTS, parse_size, example="200GB")],
    ),
    "include": (
        "Read what is left out by default: osrt (calls of the operating system in Nsight Systems).",
        [Flag(("--include",), "PART", INPUTS, collect=tuple)],
    ),
    "metrics": (
        "Zone, start and interval of metrics that do not contain them, and ranks of devices; see `Metrics`.",
        [
            Flag(
                ("--map",),
                "DEVICE=RANK,...",
                METRICS,
                collect=tuple,
                field="map",
                text="Ranks of GPUs by index, host and index, or UUID.",
                example="0-7=8-15, node1:0=3 or GPU-1bdee8b4=3",
            ),
            Flag(
                ("--tz",),
                "ZONE",
                METRICS,
                field="tz",
                text="The time zone of local times.",
                example="Europe/Berlin or +02:00",
            ),
            Flag(
                ("--metrics-start",),
                "TIME",
                METRICS,
                field="start",
                text="If there are no times: the time of the first sample.",
                example="'2026-11-18 06:42:10'",
            ),
            Flag(
                ("--interval",),
                "SECONDS",
                METRICS,
                field="interval",
                text="If there are no times: the time between two samples.",
                example="0.5",
            ),
        ],
    ),
    "jobs": (
        "The most processes that work at once. Default: one for each core.",
        [Flag(("-j", "--jobs"), "N", WORK)],
    ),
    "engine": (
        "Where the work runs: `dask` starts workers of Dask on this machine, an address names its scheduler. Default: "
        "processes of this machine.",
        [Flag(("--engine",), "dask|dask://HOST:PORT", WORK)],
    ),
}
"""The text and the flags of each option of reading."""


class Traces(Struct, frozen=True):
    """The inputs that the command line names, and how they are read."""

    paths: tuple[str, ...]
    options: ReadOptions

    @property
    def named(self) -> tuple[str, ...]:
        """All paths, of every format."""
        return (
            *self.paths,
            *(path for name in OF_FORMATS for path in cast(Sequence[str], self.options.get(name, ()))),
        )

    @contextmanager
    def watched(self, console: Console, *more: str, **others: Unpack[ReadOptions]) -> Iterator[ReadOptions]:
        """The options of reading for a function of the library, with a progress bar while it runs.

        `more` are other paths that are read, `others` options that the command takes itself.
        """
        with watching(console, (*self.named, *more)) as watch:
            yield {**self.options, **others, "watch": watch}


OF_FORMATS: Sequence[Literal["et", "kineto", "fr"]] = ("et", "kineto", "fr")
"""The options of reading that name inputs of one format."""


def reads(*, paths: bool = True, without: Collection[str] = ()) -> Decorator:
    """Adds the options of reading; the function gets them as `traces`.

    Args:
        paths: Whether the command has the argument PATHS, or names its inputs itself.
        without: The options that the command has no use for.
    """
    names = [name for name in READING if name not in without]
    flags = {(name, flag.field): flag for name in names for flag in READING[name][1]}

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        def with_traces(*args: Any, **kwargs: Any) -> None:
            values = {key: kwargs.pop(_parameter(*key)) for key in flags}
            given = kwargs.pop("paths") if paths else ()
            traces = Traces(given, _read_options(names, values))
            if paths and not traces.named:
                options = ", ".join(f"--{name}" for name in OF_FORMATS if name in names)
                or_use = f", or use {options}" if options else ""
                raise click.UsageError(f"No input: name files or directories{or_use}.")
            function(*args, **kwargs, traces=traces)

        decorated: Callable[..., Any] = update_wrapper(with_traces, function)
        for (name, field), flag in reversed(flags.items()):
            decorated = _read_option(name, field, flag)(decorated)
        return click.argument("paths", nargs=-1, type=click.Path())(decorated) if paths else decorated

    return decorate


def _parameter(name: str, field: str) -> str:
    return f"{name}_{field}" if field else name


def _read_option(name: str, field: str, flag: Flag) -> Decorator:
    def parse(ctx: click.Context, param: click.Parameter, given: Any) -> Any:
        if not flag.parse or given is None:
            return given
        return (
            tuple(flag.parse(one, flag.names[-1]) for one in given)
            if flag.collect
            else flag.parse(given, flag.names[-1])
        )

    more = [f"For example {flag.example}."] if flag.example else []
    more += ["Repeatable."] if flag.collect else []
    return option(
        *flag.names,
        _parameter(name, field),
        heading=flag.heading,
        metavar=flag.metavar,
        type=click.IntRange(min=1) if name == "jobs" else click.Path() if name in OF_FORMATS else None,
        multiple=flag.collect is not None,
        callback=parse,
        help=" ".join([flag.text or READING[name][0], *more]),
    )


def _read_options(names: Sequence[str], values: Mapping[tuple[str, str], Any]) -> ReadOptions:
    """The options with these values, by their names and the fields of which they are made."""
    options: dict[str, Any] = {}
    for name in names:
        found = {
            flag.field: flag.collect(values[name, flag.field]) if flag.collect else values[name, flag.field]
            for flag in READING[name][1]
        }
        options[name] = found[""] if "" in found else _metrics(found)
    jobs, engine = options.pop("jobs", None), options.get("engine")
    options["engine"] = engine_for(jobs, None, engine, _report_connection)
    return cast(ReadOptions, options)


def _metrics(fields: Mapping[str, Any]) -> Metrics | None:
    if not any(fields.values()):
        return None
    from tracelink._model.metrics import Metrics

    return Metrics(**fields)


def _report_connection(engine: Any) -> None:
    """Prints where the work runs, if that is a cluster."""
    if console := click.get_current_context().find_object(Console):
        dashboard = f"; dashboard: {engine.dashboard}" if engine.dashboard else ""
        console.info(f"Dask: {counted(engine.jobs, 'worker')}{dashboard}", to_stderr=True)


# Clock correction, and the selection of events.


CLOCKS = {
    "none": "no correction",
    "host": "ranks of the same host share a clock",
    "collectives": "each rank has its own clock",
}
"""The values of `--clock`, next to a file."""


def takes_clock(function: Callable[..., Any]) -> Callable[..., Any]:
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


def selection_options(selection: Selection | None) -> SelectOptions:
    """A selection as keywords of the functions of the library."""
    if selection is None:
        return {}
    return {
        "ranks": selection.ranks,
        "steps": selection.steps,
        "window": selection.window,
        "only": selection.only,
    }
