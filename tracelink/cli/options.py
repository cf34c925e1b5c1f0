"""Options that several commands share: those of every command, and those of reading."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any, Literal, cast

import click
from click.shell_completion import CompletionItem
from msgspec import Struct

from tracelink._model.errors import did_you_mean
from tracelink._model.text import counted
from tracelink._run import engine_for
from tracelink._run.reading import SELECTING, Flag, ReadOptions, flags_of, text_of
from tracelink.cli.console import Console, watching

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
    def watched(self, console: Console, *more: str) -> Iterator[ReadOptions]:
        """The options of reading for a function of the library, with a progress bar while it runs."""
        with watching(console, (*self.named, *more)) as watch:
            yield {**self.options, "watch": watch}


WHOLE = (*SELECTING, "clock")
"""The options that commands do not have that look at each file by itself, or at all ranks."""
OF_FORMATS: Sequence[Literal["et", "kineto", "fr"]] = ("et", "kineto", "fr")
"""The options of reading that name inputs of one format."""


def reads(*, paths: bool = True, without: Collection[str] = ()) -> Decorator:
    """Adds the options of reading; the function gets them as `traces`.

    Args:
        paths: Whether the command has the argument PATHS, or names its inputs itself.
        without: The options that the command has no use for.
    """
    names = [name for name in ReadOptions.__annotations__ if name not in without and flags_of(name)]
    flags = {(name, flag.field): flag for name in names for flag in flags_of(name)}

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
        default=flag.default,
        shell_complete=partial(_complete, flag.choices) if flag.choices else None,
        callback=parse,
        help=" ".join([flag.text or text_of(name), *more]),
    )


def _read_options(names: Sequence[str], values: Mapping[tuple[str, str], Any]) -> ReadOptions:
    """The options that are given, by their names, of the values of their flags."""
    options: dict[str, Any] = {}
    for name in names:
        fields = {
            flag.field: flag.collect(values[name, flag.field]) if flag.collect else values[name, flag.field]
            for flag in flags_of(name)
        }
        if any(fields.values()):
            options[name] = fields[""] if "" in fields else _metrics(fields)
    jobs, engine = options.pop("jobs", None), options.get("engine")
    options["engine"] = engine_for(jobs, None, engine, _report_connection)
    return cast(ReadOptions, options)


def _metrics(fields: Mapping[str, Any]) -> Metrics:
    from tracelink._model.metrics import Metrics

    return Metrics(**fields)


def _report_connection(engine: Any) -> None:
    """Prints where the work runs, if that is a cluster."""
    if console := click.get_current_context().find_object(Console):
        dashboard = f"; dashboard: {engine.dashboard}" if engine.dashboard else ""
        console.info(f"Dask: {counted(engine.jobs, 'worker')}{dashboard}", to_stderr=True)


def _complete(
    choices: Sequence[str], ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The words that can follow in a list that is separated by commas; a file, where the value can be one."""
    before, comma, word = incomplete.rpartition(",")
    found = [CompletionItem(f"{before}{comma}{choice}") for choice in choices if choice.startswith(word)]
    return [*found, CompletionItem(incomplete, type="file")] if "FILE" in str(param.metavar) else found
