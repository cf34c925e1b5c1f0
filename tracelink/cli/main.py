"""The group of commands: imports a command when it runs, and turns errors into messages and exit codes."""

from __future__ import annotations

import atexit
import gc
import os
import shlex
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from types import FrameType
from typing import Any

import click

from tracelink._io.system import AT_ONCE, ENDING
from tracelink._model import __version__
from tracelink._model.errors import (
    CrashError,
    RankConflictError,
    TraceError,
    UnreadableError,
    UsageError,
    did_you_mean,
    printable,
)
from tracelink.cli.console import Console, drop_output, open_missing_streams

SIGNALLED = 128
"""The exit code after a signal, without its number."""

AGAIN = 0.001
"""Seconds after which a signal is raised again that was raised where Python drops exceptions."""


class Terminated(SystemExit):
    """A signal ended the command."""


@contextmanager
def ended_cleanly() -> Iterator[None]:
    """Makes these signals raise an exception, so that no unfinished files or processes are left behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.getsignal(number) for number in ENDING}
    replaced = {number: old for number, old in previous.items() if old in BY_DEFAULT}
    received: list[int] = []
    last = -AT_ONCE

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal last
        before, last = last, time.monotonic()
        received.append(number)
        if last - before >= AT_ONCE:
            raise _ending(number)

    for number in replaced:
        signal.signal(number, end)
    try:
        with _raised_again():
            yield
    finally:
        for number, old in replaced.items():
            signal.signal(number, old)
        # also if the interpreter raised another error instead, as it does while it imports a module
        if received:
            raise _ending(received[0])


BY_DEFAULT = (signal.SIG_DFL, signal.default_int_handler)


def _ending(number: int) -> BaseException:
    return KeyboardInterrupt() if number == signal.SIGINT else Terminated(SIGNALLED + number)


@contextmanager
def _raised_again() -> Iterator[None]:
    """Raises a signal again that was raised in a callback of the interpreter, which would drop it with a traceback."""
    if not hasattr(signal, "setitimer") or signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL:
        yield
        return
    report, dropped = sys.unraisablehook, list[BaseException]()

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        if isinstance(unraisable.exc_value, KeyboardInterrupt | Terminated):
            dropped.append(unraisable.exc_value)
            signal.setitimer(signal.ITIMER_REAL, AGAIN)
        else:
            report(unraisable)

    def again(number: int, frame: FrameType | None) -> None:
        if dropped:
            raise dropped.pop()

    signal.signal(signal.SIGALRM, again)
    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = report
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


# Errors: one paragraph and an exit code.


FINE = 0
NO = 1
USAGE = 2
UNREADABLE = 3
IN_FLIGHT = 4
INTERRUPTED = 130
PIPE_CLOSED = 141


# Garbage collection.


SELDOM = 100_000
"""New objects between two collections: cyclic garbage is rare, and each import makes thousands of objects that stay."""


@contextmanager
def collecting_seldom() -> Iterator[None]:
    """Collects garbage after more new objects than by default: a tenth of the time of a short command."""
    youngest, *older = gc.get_threshold()
    gc.set_threshold(max(SELDOM, youngest), *older)
    try:
        yield
    finally:
        gc.set_threshold(youngest, *older)


@contextmanager
def reported(ctx: click.Context) -> Iterator[None]:
    """Reports an error of the command in `ctx` as text or JSON, and exits with its code."""
    console: Console = ctx.obj
    try:
        with ended_cleanly(), _warnings_printed_by(console):
            yield
    except TraceError as error:
        _report(console, error)
        ctx.exit(_code(error))
    except click.UsageError as error:
        if console.json:
            _document(console, error.format_message(), advice="See: tracelink --help")
        raise
    except (click.ClickException, click.exceptions.Exit, click.Abort):
        raise
    except KeyboardInterrupt:
        console.error("interrupted.")
        ctx.exit(INTERRUPTED)
    except Terminated:
        console.error("terminated.")
        raise
    except BrokenPipeError:
        drop_output()
        ctx.exit(PIPE_CLOSED)
    except OSError as error:
        with suppress(OSError):  # standard output is full
            _report(console, _of_system(error), cause=error)
        drop_output()
        ctx.exit(NO)
    except Exception as error:  # noqa: BLE001  users see a message, and the traceback only with -v
        _report_unexpected(console, error)
        ctx.exit(NO)


@contextmanager
def _warnings_printed_by(console: Console) -> Iterator[None]:
    """Prints warnings of libraries as errors are printed: they can contain names from traces."""

    def show(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any, **__: Any
    ) -> None:
        console.error(f"{category.__name__}: {message} ({filename}:{lineno})")

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def _code(error: TraceError) -> int:
    if isinstance(error, UsageError | RankConflictError):
        return USAGE
    return UNREADABLE if isinstance(error, UnreadableError) else NO


def _of_system(error: OSError) -> TraceError:
    """An error of the operating system: a full disk, too many open files, no permission."""
    where = str(error.filename) if error.filename is not None else ""
    reason = (error.strerror or str(error) or type(error).__name__).lower()
    return TraceError(
        reason, source=where, advice="The operating system reported this error (-v shows the traceback)."
    )


def _report(console: Console, error: TraceError, cause: BaseException | None = None) -> None:
    console.error(str(error))
    cause = error.__cause__ if isinstance(error, CrashError) else cause
    if console.verbose and cause:
        console.traceback(cause)
    if console.json:
        _document(console, error.problem, error.source, error.position, error.advice)


def _report_unexpected(console: Console, error: Exception) -> None:
    text = f"{type(error).__name__}: {error}".rstrip(": ")
    if console.verbose:
        console.traceback(error)
        console.error(f"unexpected {text}.")
    else:
        console.error(f"unexpected {text} (-v shows the traceback).")
    if console.json:
        _document(console, text, advice="-v shows the traceback.")


def _document(console: Console, message: str, source: str = "", position: str = "", advice: str = "") -> None:
    from tracelink.cli.answer import Failed, Failure

    console.document(Failed(Failure(message, source, position, advice)))


# Imports.


BLAS_THREADS = "OPENBLAS_NUM_THREADS"


@contextmanager
def _without_threads_of_blas() -> Iterator[None]:
    """Keeps the library that NumPy loads from starting a thread for each core: no command multiplies large matrices."""
    if BLAS_THREADS in os.environ:
        yield
        return
    os.environ[BLAS_THREADS] = "1"
    try:
        yield
    finally:
        del os.environ[BLAS_THREADS]  # it is not meant for programs that a command starts


# The group of commands.


COMMANDS = {
    "merge": ("merge", "Merge the traces of all ranks into one, or write a trace in another form."),
    "summary": ("times", "Show where the time went, on every rank and step."),
    "diff": ("diff", "Compare two runs: how much longer a step takes, and why."),
    "diagnose": ("diagnose", "Find out why a job hangs: which rank, which collective."),
    "compile": ("compile", "Show what torch.compile compiled, why, at what cost, and what failed."),
    "collectives": ("times", "List collectives with skew, duration and bandwidth."),
    "clocks": ("inputs", "Show the clock offset of each rank."),
    "query": ("query", "Run SQL on the tables of a job."),
    "inspect": ("inputs", "Show the format, rank, time and problems of each trace."),
    "validate": (
        "validate",
        "Check that simulators can load Chakra traces.",
    ),
    "formats": ("formats", "List the installed readers, writers and conversions."),
    "run": ("run", "Start a training whose code stays as it is, and record it."),
    "open": ("open", "Open a trace in Perfetto's UI."),
    "demo": ("merge", "Merge a sample that comes with tracelink."),
    "completion": ("formats", "Print the completion script for your shell."),
}
"""The module of each command, and the first line of its help."""


class LazyGroup(click.Group):
    """Shows help without importing commands, and turns errors into messages and exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands, in the order of COMMANDS."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports one command."""
        if cmd_name not in COMMANDS:
            return None
        module, _ = COMMANDS[cmd_name]
        with _without_threads_of_blas():
            command: click.Command = getattr(import_module(f"tracelink.cli.{module}"), cmd_name)
        gc.freeze()  # modules stay: collections need not look at them
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first argument names; suggests one if there is none."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            advice = did_you_mean(name, COMMANDS) or "See: tracelink --help"
            if os.path.exists(name):
                advice = f"To see what is in {name}: tracelink inspect {shlex.quote(name)}"
            ctx.fail(f"No such command {name!r}. {advice}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Makes the console before anything can go wrong."""
        ctx.obj = Console(json="--json" in args)
        with _printable_errors(), reported(ctx):
            return super().parse_args(ctx, args or ["--help"])

    def invoke(self, ctx: click.Context) -> Any:
        """Runs a command."""
        with _printable_errors(), reported(ctx), collecting_seldom():
            return super().invoke(ctx)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Runs tracelink as a program."""
        open_missing_streams()
        atexit.register(_keep_garbage)
        try:
            return super().main(*args, **kwargs)
        except OSError:
            # only click's message on wrong arguments is printed here: standard error is full or closed
            sys.exit(USAGE)


def _keep_garbage() -> None:
    """Gives the memory back as a whole at the end: collecting it first takes longer."""
    if "duckdb" in sys.modules:  # it reports what is not collected
        gc.unfreeze()
    else:
        gc.freeze()


@contextmanager
def _printable_errors() -> Iterator[None]:
    """Escapes the arguments in the errors that click prints itself: a glob can match any name."""
    try:
        yield
    except click.UsageError as error:
        text = error.format_message()
        if text == printable(text):
            raise
        raise click.UsageError(printable(text), error.ctx) from error


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", message="%(prog)s %(version)s")
def main() -> None:
    """Link the traces of a distributed PyTorch job into one timeline, and find out why a job hangs.

    Reads Kineto profiles, execution traces, flight-recorder dumps, torch.compile logs, Nsight Systems exports and
    metrics of all ranks, links their events, and writes a timeline for https://ui.perfetto.dev or Chakra traces for
    simulators.

    To try it, run: tracelink demo
    """
