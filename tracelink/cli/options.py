"""Options that commands share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any, TypedDict, TypeVar

import click
from click.shell_completion import CompletionItem

from tracelink import plugins
from tracelink.cli.voice import Voice

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
    """A command that hears -v, -q and --json, gets its `Voice` first, and shows `examples` in its help."""

    def made(function: Callable[..., None]) -> click.Command:
        result = click.command(cls=CommandWithExamples, epilog="\n".join(examples))(click.pass_obj(function))
        result.params += [_flag(names, text) for names, text in FLAGS]
        return result

    return made


def _flag(names: tuple[str, ...], text: str) -> click.Option:
    return click.Option(names, is_flag=True, is_eager=True, expose_value=False, callback=_hear, help=text)


def _hear(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    voice = ctx.ensure_object(Voice)
    assert param.name is not None
    if value:
        setattr(voice, param.name, True)
    if voice.quiet and voice.verbose:
        raise click.UsageError("--quiet and --verbose exclude each other.", ctx)


class InputKeywords(TypedDict):
    """How `tracelink.api` calls the inputs."""

    paths: tuple[str, ...]
    et: tuple[str, ...]
    kineto: tuple[str, ...]
    fr: tuple[str, ...]
    ranks: dict[str, int]


@dataclass(frozen=True, slots=True)
class Inputs:
    """What the user asked to read."""

    paths: tuple[str, ...] = ()
    et: tuple[str, ...] = ()
    kineto: tuple[str, ...] = ()
    fr: tuple[str, ...] = ()
    ranks: tuple[tuple[str, int], ...] = ()

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
            "ranks": dict(self.ranks),
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
        ranks: tuple[tuple[str, int], ...],
        **kwargs: Any,
    ) -> None:
        inputs = Inputs(paths, et, kineto, fr, ranks)
        if not inputs.named:
            raise click.UsageError("Nothing to read: name files or directories, or use --et, --kineto, --fr.")
        function(*args, inputs=inputs, **kwargs)

    taking: Callable[..., None] = update_wrapper(gathering, function)
    for option in (
        click.option(
            "-r",
            "--rank",
            "ranks",
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
        "--profile",
        type=click.Choice(["full", "astra-sim"]),
        help="chakra: everything (the default), or device work and communication as ASTRA-sim runs them.",
    ),
)
"""The options of writers that can write in several ways, the last that help lists first."""


def takes_writing(function: Callable[..., None]) -> Callable[..., None]:
    """Adds the options of those writers that can write in several ways; the function gets them as `options`."""

    def gathering(
        *args: Any,
        profile: str | None,
        deps: str | None,
        gaps: bool,
        arguments: str | None,
        python: bool | None,
        compress: bool,
        **kwargs: Any,
    ) -> None:
        given = {
            "profile": profile,
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
