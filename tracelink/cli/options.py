"""Options that commands share; the console."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any, TypedDict, TypeVar

import click
from click.shell_completion import CompletionItem

from tracelink import plugins
from tracelink.cli.console import Console
from tracelink.model.selection import KINDS, Selection

# Options that commands share.


Function = TypeVar("Function", bound=Callable[..., Any])


FLAGS = (
    (("-v", "--verbose"), "Say everything: each finding, and tracebacks."),
    (("-q", "--quiet"), "Say only what went wrong."),
    (("--json",), "Print the result as JSON, and nothing else, on standard output."),
)
"""What every command understands."""


class CommandWithExamples(click.Command):
    """A command whose epilog, its examples, is shown as it is written."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the examples."""
        with formatter.section("Examples"):
            for line in (self.epilog or "").splitlines():
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")


def command(*examples: str) -> Callable[[Callable[..., None]], click.Command]:
    """A command that hears -v, -q and --json, gets its `Console` first, and shows `examples` in its help."""

    def made(function: Callable[..., None]) -> click.Command:
        result = click.command(cls=CommandWithExamples, epilog="\n".join(examples))(click.pass_obj(function))
        result.params += [_flag(names, text) for names, text in FLAGS]
        return result

    return made


def _flag(names: tuple[str, ...], text: str) -> click.Option:
    return click.Option(names, is_flag=True, is_eager=True, expose_value=False, callback=_hear, help=text)


def _hear(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    console = ctx.ensure_object(Console)
    assert param.name is not None
    if value:
        setattr(console, param.name, True)
    if console.quiet and console.verbose:
        raise click.UsageError("--quiet and --verbose exclude each other.", ctx)


class InputKeywords(TypedDict):
    """How `tracelink.api` calls the inputs."""

    paths: tuple[str, ...]
    et: tuple[str, ...]
    kineto: tuple[str, ...]
    fr: tuple[str, ...]
    rank_of: dict[str, int]


@dataclass(frozen=True, slots=True)
class Inputs:
    """What the user asked to read."""

    paths: tuple[str, ...] = ()
    et: tuple[str, ...] = ()
    kineto: tuple[str, ...] = ()
    fr: tuple[str, ...] = ()
    rank_of: tuple[tuple[str, int], ...] = ()

    @property
    def named(self) -> tuple[str, ...]:
        """Every path, whatever it is said to be."""
        return self.paths + self.et + self.kineto + self.fr

    def keywords(self) -> InputKeywords:
        """The inputs as arguments of `tracelink.api`."""
        return {
            "paths": self.paths,
            "et": self.et,
            "kineto": self.kineto,
            "fr": self.fr,
            "rank_of": dict(self.rank_of),
        }


def _ranks_of_files(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, int], ...]:
    return tuple(_rank_of_file(ctx, param, value) for value in values)


def _rank_of_file(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, int]:
    file, _, rank = value.rpartition("=")
    if not (file and rank.isascii() and rank.isdigit()):
        choosing = f"; to read only some ranks: --ranks {value}" if value[:1].isdigit() else ""
        message = f"{value!r} is not FILE=N, such as --rank trace.json=3{choosing}"
        raise click.BadParameter(message, ctx, param)
    return file, int(rank)


def takes_inputs(function: Callable[..., None]) -> Callable[..., None]:
    """Adds the arguments that say what to read; the function gets them as `inputs`."""

    def gathering(
        *args: Any,
        paths: tuple[str, ...],
        et: tuple[str, ...],
        kineto: tuple[str, ...],
        fr: tuple[str, ...],
        rank_of: tuple[tuple[str, int], ...],
        **kwargs: Any,
    ) -> None:
        inputs = Inputs(paths, et, kineto, fr, rank_of)
        if not inputs.named:
            raise click.UsageError("Nothing to read: name files or directories, or use --et, --kineto, --fr.")
        function(*args, inputs=inputs, **kwargs)

    taking: Callable[..., None] = update_wrapper(gathering, function)
    for option in (
        click.option(
            "-r",
            "--rank",
            "rank_of",
            multiple=True,
            callback=_ranks_of_files,
            metavar="FILE=N",
            help="The rank of a file that does not say it. Repeatable.",
        ),
        _path_option("-f", "--fr", "A flight-recorder dump, or a directory of them. Repeatable."),
        _path_option("-k", "--kineto", "A Kineto profile. Repeatable."),
        _path_option("-e", "--et", "An execution trace. Repeatable."),
        click.argument("paths", nargs=-1, type=click.Path()),
    ):
        taking = option(taking)
    return taking


def _path_option(short: str, long: str, text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(short, long, multiple=True, type=click.Path(), metavar="PATH", help=text)


def takes_jobs(function: Function) -> Function:
    """Adds the option that bounds how many processes work at once."""
    return click.option(
        "-j",
        "--jobs",
        type=click.IntRange(min=1),
        metavar="N",
        help="At most N processes. Default: one per core.",
    )(function)


def takes_format(function: Function) -> Function:
    """Adds the option that says what to write."""
    return click.option(
        "-t",
        "--to",
        metavar="FORMAT",
        shell_complete=_complete_format,
        help="What to write; see `tracelink formats`. Default: by the output's name, else perfetto-json.",
    )(function)


WRITING = (
    click.option(
        "--compress",
        is_flag=True,
        help="perfetto, perfetto-json: a smaller file: JSON becomes gzip, a native trace is deflated harder.",
    ),
    click.option(
        "--python/--no-python",
        default=None,
        help="perfetto, perfetto-json: with calls of Python functions (the default), or without.",
    ),
    click.option(
        "--args",
        "arguments",
        type=click.Choice(["all", "link", "none"]),
        help="perfetto, perfetto-json: all arguments of events (the default), those that tracelink found out, or none.",
    ),
    click.option("--gaps", is_flag=True, help="chakra: pauses between operators become idle nodes."),
    click.option(
        "--deps",
        type=click.Choice(["both", "time", "data"]),
        help="chakra: nodes wait for what ran before, for what made their tensors, or both (the default).",
    ),
    click.option(
        "--variant",
        type=click.Choice(["full", "astra-sim"]),
        help="chakra: everything (the default), or device work and communication as ASTRA-sim runs them.",
    ),
)
"""The options of writers that can write in several ways, the last that help lists first."""


def takes_writing(function: Callable[..., None]) -> Callable[..., None]:
    """Adds the options of those writers that can write in several ways; the function gets them as `options`."""

    def gathering(
        *args: Any,
        variant: str | None,
        deps: str | None,
        gaps: bool,
        arguments: str | None,
        python: bool | None,
        compress: bool,
        **kwargs: Any,
    ) -> None:
        given = {
            "variant": variant,
            "deps": deps,
            "gaps": "yes" if gaps else None,
            "args": arguments,
            "python": None if python is None else "yes" if python else "no",
            "compress": "yes" if compress else None,
        }
        options = {name: value for name, value in given.items() if value is not None}
        function(*args, options=options, **kwargs)

    taking: Callable[..., None] = update_wrapper(gathering, function)
    for option in WRITING:
        taking = option(taking)
    return taking


BUNDLE = "perfetto-bundle"


def takes_bundle(function: Callable[..., None]) -> Callable[..., None]:
    """Adds the short way to a bundle: the function gets it as the format `to`."""

    def choosing(*args: Any, bundle: bool, to: str | None, **kwargs: Any) -> None:
        if bundle and to not in (None, BUNDLE):
            raise click.UsageError(f"--bundle writes {BUNDLE}, and --to says {to}: leave out one of them.")
        function(*args, to=BUNDLE if bundle else to, **kwargs)

    return click.option(
        "--bundle",
        is_flag=True,
        help="Write the profiles as they are in one TAR, with the clocks of all ranks, for those who merge in "
        f"Perfetto itself (v58 and later). Short for --to {BUNDLE}.",
    )(update_wrapper(choosing, function))


def _complete_format(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in plugins.writers() if name.startswith(incomplete)]


# Options of what to keep of a job, and of how its clocks are taken.


CLOCKS = {
    "none": "nothing is corrected",
    "host": "ranks of one host share a clock",
    "collectives": "every rank has its own clock",
}
"""What `--clock` can be told besides a file."""


def takes_clock(function: Function) -> Function:
    """Adds the option that says how the ranks' clocks are taken."""
    words = "\n".join(f"{word:<11}  {meaning}" for word, meaning in CLOCKS.items())
    return click.option(
        "--clock",
        default="host",
        metavar="none|host|collectives|FILE",
        shell_complete=_complete_clock,
        help=f"How the ranks' clocks are taken. Default: host.\n\n\b\n{words}\n"
        f"{'FILE':<11}  from `tracelink clocks --json`",
    )(function)


def _complete_clock(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    words = [CompletionItem(word, help=text) for word, text in CLOCKS.items() if word.startswith(incomplete)]
    return [*words, CompletionItem(incomplete, type="file")]


def _complete_kinds(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    before, comma, word = incomplete.rpartition(",")
    return [CompletionItem(f"{before}{comma}{kind}") for kind in KINDS if kind.startswith(word)]


RANKS_OR_RANK = "--ranks selects ranks, such as 0-7; --rank FILE=N sets the rank of a file."

SELECTING = (
    click.option(
        "--ranks",
        "only_ranks",
        metavar="N-M,...",
        help="Only these ranks, such as 0-7,64. No other is read.",
    ),
    click.option(
        "--window",
        metavar="FROM..TO",
        help="Only what overlaps this time after the first event, such as 2.5s..3.1s, 800ms.. or ..2min.",
    ),
    click.option(
        "--steps",
        metavar="N-M,...",
        help="Only what runs in these steps, such as 3-5,7, and what they put on the GPU. Steps are annotations "
        "such as ProfilerStep#3 or step 3.",
    ),
    click.option(
        "--only",
        metavar="KIND,...",
        shell_complete=_complete_kinds,
        help=f"Only these kinds of events: {', '.join(KINDS)}. Collectives are everything that takes part in a "
        "collective or a message.",
    ),
)


def takes_selection(function: Callable[..., None]) -> Callable[..., None]:
    """Adds the options that cut a job; the function gets them as `selection`, None where nothing is cut."""

    def gathering(
        *args: Any,
        only_ranks: str | None,
        window: str | None,
        steps: str | None,
        only: str | None,
        **kwargs: Any,
    ) -> None:
        if "=" in (only_ranks or ""):
            raise click.UsageError(RANKS_OR_RANK)
        selection = Selection.parse(ranks=only_ranks, window=window, steps=steps, only=only)
        function(*args, selection=None if selection == Selection() else selection, **kwargs)

    taking: Callable[..., None] = update_wrapper(gathering, function)
    for option in reversed(SELECTING):
        taking = option(taking)
    return taking
