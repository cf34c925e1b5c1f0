"""One command on one input, in this process, with limits of time and memory; and how it ended."""

from __future__ import annotations

import re
import resource
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from click.testing import CliRunner, Result

from tracelink.cli import main

SECONDS = 10.0
SECONDS_PER_MB = 5.0
MEMORY = 200 << 20
MEMORY_PER_BYTE = 20
"""The law of every reader: time is linear, memory is at most 20 times the uncompressed bytes and 200 MB."""

ENDS = {0: "used", 1: "problems", 2: "usage", 3: "unreadable", 4: "in flight"}
"""The exit codes that tracelink documents."""

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""What can control a terminal, or reorder what it shows."""
WARNING = re.compile(r"RuntimeWarning: [^\n]*")

FRAME = re.compile(r'File "[^"]*?((?:tracelink|converters)/[^"]*)", line (\d+)')
ERROR = re.compile(r"tracelink: unexpected (\w+)")
BUG = re.compile(r"failed: (\w+).{,400}?\((line \d+ of [^\s)]+)", re.DOTALL)
"""How a finding or an error names a bug of a format."""


@dataclass(frozen=True)
class End:
    """How a command ended; `fault` is empty if that is allowed."""

    outcome: str
    fault: str = ""
    output: str = ""


class _TooSlow(BaseException):
    """Raised by the timer; no command catches it."""


def run(arguments: Sequence[str], size: int) -> End:
    """Runs `tracelink` with these arguments on inputs of `size` uncompressed bytes."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", RuntimeWarning)
        try:
            with (
                _timer(SECONDS + SECONDS_PER_MB * size / (1 << 20)),
                _memory(MEMORY + MEMORY_PER_BYTE * size),
            ):
                result = CliRunner().invoke(main, arguments, prog_name="tracelink")
        except _TooSlow as error:
            return End("slow", f"slow at {_place(error)}")
        except MemoryError:
            return End("memory", "memory")
    return _end(result)


def _end(result: Result) -> End:
    output = f"{result.stdout}\n{result.stderr}"
    outcome = ENDS.get(result.exit_code, "other")
    if "MemoryError" in output or isinstance(result.exception, MemoryError):
        return End("memory", f"memory at {_frame(output)}", output)
    if found := ERROR.search(output):
        return End("unexpected", f"{found[1]} at {_frame(output)}", output)
    if found := BUG.search(output):
        return End("unexpected", f"{found[1]} at {found[2]}", output)
    if result.exception and not isinstance(result.exception, SystemExit):
        return End("unexpected", f"{result.exception!r}", output)
    if outcome == "other":
        return End(outcome, f"exit code {result.exit_code}", output)
    if found := CONTROL.search(output):
        return End("control", f"prints {found[0]!r}", output)
    if found := WARNING.search(output):
        return End("warning", found[0], output)
    return End(outcome, output=output)


def _frame(output: str) -> str:
    frames = FRAME.findall(output)
    return ":".join(frames[-1]) if frames else "an unknown place"


def _place(error: BaseException) -> str:
    """Where a command was, within tracelink, when the time was over."""
    found, step = "an unknown place", error.__traceback__
    while step:
        name = step.tb_frame.f_code.co_filename
        if "/tests/" not in name and ("/tracelink/" in name or "/converters/" in name):
            found = f"{Path(name).name}:{step.tb_frame.f_code.co_name}"
        step = step.tb_next
    return found


@contextmanager
def _timer(seconds: float) -> Iterator[None]:
    def late(number: int, frame: FrameType | None) -> None:
        raise _TooSlow

    previous = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


@contextmanager
def _memory(more: int) -> Iterator[None]:
    """Limits what this process may allocate in addition to what it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def peak() -> int:
    """The most memory that this process had so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << (10 if sys.platform == "linux" else 0)


def folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for inputs and outputs, in memory where that is possible."""
    return tempfile.TemporaryDirectory(
        prefix="tracelink-fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None
    )
