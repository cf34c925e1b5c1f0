"""From an error to one paragraph and an exit code."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import click

from tracelink.cli.ending import ended_in_order
from tracelink.cli.voice import Voice
from tracelink.errors import RankConflictError, TraceError, UnreadableError, UsageError

FINE = 0
NO = 1
USAGE = 2
UNREADABLE = 3
INTERRUPTED = 130
PIPE_CLOSED = 141


@contextmanager
def explained(ctx: click.Context) -> Iterator[None]:
    """Says what went wrong in `ctx`, in words or as JSON, and ends with the exit code for it."""
    voice: Voice = ctx.obj
    try:
        with ended_in_order():
            yield
    except TraceError as error:
        _report(voice, error)
        ctx.exit(_code(error))
    except click.UsageError as error:
        if voice.json:
            _document(voice, error.format_message(), advice="See: tracelink --help")
        raise
    except (click.ClickException, click.exceptions.Exit, click.Abort):
        raise
    except KeyboardInterrupt:
        voice.complain("interrupted.")
        ctx.exit(INTERRUPTED)
    except BrokenPipeError:
        _drop_output()
        ctx.exit(PIPE_CLOSED)
    except OSError as error:
        _report(voice, _of_system(error))
        if error.errno == errno.ENOSPC and error.filename is None:
            _drop_output()
        ctx.exit(NO)
    except Exception as error:  # noqa: BLE001  a user is shown words, and the traceback only on request
        _report_unexpected(voice, error)
        ctx.exit(NO)


def _code(error: TraceError) -> int:
    if isinstance(error, UsageError | RankConflictError):
        return USAGE
    return UNREADABLE if isinstance(error, UnreadableError) else NO


def _of_system(error: OSError) -> TraceError:
    """What the system refused: a full disk, too many open files, no permission."""
    where = str(error.filename) if error.filename is not None else ""
    reason = (error.strerror or str(error) or type(error).__name__).lower()
    return TraceError(reason, source=where, advice="The system refused it; -v shows the traceback.")


def _report(voice: Voice, error: TraceError) -> None:
    voice.complain(str(error))
    if voice.verbose:
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    if voice.json:
        _document(voice, error.problem, error.source, error.position, error.advice)


def _report_unexpected(voice: Voice, error: Exception) -> None:
    text = f"{type(error).__name__}: {error}".rstrip(": ")
    if voice.verbose:
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
        voice.complain(f"unexpected {text}.")
    else:
        voice.complain(f"unexpected {text}; run with -v for the traceback.")
    if voice.json:
        _document(voice, text, advice="Run with -v for the traceback.")


def _document(voice: Voice, message: str, source: str = "", position: str = "", advice: str = "") -> None:
    voice.document({"error": {"message": message, "source": source, "position": position, "advice": advice}})


def _drop_output() -> None:
    """Standard output is closed or full: what is left in its buffer must not raise again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
