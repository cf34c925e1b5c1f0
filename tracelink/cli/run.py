"""`tracelink run`: start a training whose code stays as it is, and record it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import click
import msgspec
from msgspec import UNSET, UnsetType

from tracelink._model.errors import UsageError
from tracelink._model.fields import Count, Doc, RankNumber, Row, Text
from tracelink._model.selection import Numbers
from tracelink._model.text import counted, size
from tracelink._record import environment, rank
from tracelink._record.options import USUAL_STEPS, steps_of
from tracelink.cli.console import Console
from tracelink.cli.main import SIGNALLED
from tracelink.cli.options import command
from tracelink.converters.capture import schema

FINISHED = "finished"
PATIENCE_S = 60.0
"""How long a program that was interrupted has for its last files."""
NSYS = (
    *("nsys", "profile", "--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none"),
    *("--trace-fork-before-exec=true", "--force-overwrite=true"),
)
"""Without calls of the operating system and samples of the CPU, which are most of a report; with forked workers."""
LAUNCHERS = frozenset(
    ["torchrun", "accelerate", "deepspeed", "torch.distributed.run", "torch.distributed.launch"]
)
"""Programs and modules that start all ranks of a host, which one report then contains."""


class RecordedRank(Row, frozen=True):
    """The recording of one rank."""

    rank: RankNumber
    host: str
    outcome: Annotated[
        str, Doc("`finished`, `running` (killed), `terminated`, or the type of the exception that ended it.")
    ]
    steps: Annotated[Count, Doc("Steps that ended.")]
    files: Annotated[Sequence[Text], Doc("Files of the rank, within the folder.")]
    problems: Annotated[Sequence[Text], Doc("What could not be recorded.")]


class Run(Row, frozen=True):
    """The document that `tracelink run --json` prints when the program has ended."""

    output: Annotated[Text, Doc("The folder.")]
    exit_code: Annotated[int, Doc("The exit code of the program.")]
    ranks: Sequence[RecordedRank]
    command: Annotated[Sequence[Text], Doc("With --dry-run: what would be started.")] | UnsetType = UNSET
    variables: (
        Annotated[Mapping[str, str], Doc("With --dry-run: the variables that would be set.")] | UnsetType
    ) = UNSET


@command(
    "tracelink run -o traces/ -- torchrun --nproc-per-node 4 train.py",
    "tracelink run -o traces/ --steps 5-7,100-102 --stacks -- python train.py",
    "tracelink run -o traces/ --watchdog 300 -- torchrun --nproc-per-node 8 train.py    dump all ranks if it hangs",
    "tracelink run -o traces/ --nsys --dry-run -- torchrun --nproc-per-node 8 train.py    print the command of nsys",
    "tracelink merge traces/ -o job.pftrace     and then: tracelink open job.pftrace",
)
@click.option("-o", "--output", required=True, type=click.Path(file_okay=False), help="Folder for all files.")
@click.option(
    "--steps",
    default=USUAL_STEPS,
    show_default=True,
    help="Steps to record: 5-7,20-21. The first is 0.",
)
@click.option("--stacks", is_flag=True, help="Record Python stacks of operators; large.")
@click.option("--memory", is_flag=True, help="Record allocations of memory.")
@click.option("--no-shapes", is_flag=True, help="Do not record the shapes of inputs of operators.")
@click.option(
    "--watchdog",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Dump flight recorder and Python stacks of a rank if none of its steps ends for so long.",
)
@click.option(
    "--nsys", is_flag=True, help="Start it under Nsight Systems, which records GPUs instead of the profiler."
)
@click.option(
    "--dry-run", is_flag=True, help="Print the command with the variables that are set, and start nothing."
)
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
def run(
    console: Console,
    output: str,
    steps: str,
    stacks: bool,
    memory: bool,
    no_shapes: bool,
    watchdog: float | None,
    nsys: bool,
    dry_run: bool,
    program: tuple[str, ...],
) -> None:
    """Start a training whose code stays as it is, and record it.

    PROGRAM is a command with its arguments, after --. Every Python process that it starts and that trains is recorded,
    as tracelink.capture does: profile and execution trace of some steps, flight recorder, log of torch.compile.

    A step ends with each step() of the optimizer that steps first. If none steps, only the flight recorder is dumped.

    The exit code is that of PROGRAM.
    """
    if not steps_of(steps):
        raise UsageError("--steps: no steps", advice="Give at least one.")
    from tracelink._io.targets import check_local

    check_local(output)
    folder = Path(output)
    options = {
        "stacks": stacks,
        "memory": memory,
        "shapes": not no_shapes,
        "watchdog": watchdog,
        "profile": not nsys,
    }
    variables = environment_for(folder, steps, options, os.environ)
    words = [*nsys_command(folder, program, os.environ), *program] if nsys else list(program)
    if dry_run:
        _print(console, output, words, dict(sorted(variables.items() - os.environ.items())))
        return
    if nsys and shutil.which(NSYS[0]) is None:
        raise UsageError("--nsys: there is no nsys on the PATH", advice="Install Nsight Systems.")
    folder.mkdir(parents=True, exist_ok=True)
    begin_ns = time.time_ns()
    code = _result_of(words, variables)
    recorded = [capture for capture in _captures(folder) if capture.start_ns >= begin_ns]
    _report(console, output, code, recorded)
    click.get_current_context().exit(code)


def environment_for(
    folder: Path, steps: str, options: Mapping[str, object], present: Mapping[str, str]
) -> dict[str, str]:
    """The environment of the program: what torch must know before it starts, and the capture."""
    injected = Path(environment.__file__).parent / "injected"
    paths = [str(injected), *filter(None, [present.get("PYTHONPATH")])]
    return {
        **present,
        **environment.settings_for(folder, present),
        environment.FOLDER: str(folder.absolute()),
        environment.STEPS: steps,
        environment.OPTIONS: msgspec.json.encode(options).decode(),
        "PYTHONPATH": os.pathsep.join(paths),
    }


def nsys_command(folder: Path, program: Sequence[str], present: Mapping[str, str]) -> list[str]:
    """The command of nsys before the program: a report for each rank, or for each host if the program starts ranks."""
    name = "nsys_%h"
    if not LAUNCHERS & {Path(word).name for word in program}:
        texts = (present.get(variable, "") for variable in rank.RANK_VARIABLES)
        found = next((text for text in texts if text.isascii() and text.isdecimal()), None)
        name = f"nsys_rank{found}" if found else name
    path = str(folder.absolute()).replace("%", "%%")
    return [*NSYS, "--output", f"{path}/{name}"]


def _print(console: Console, output: str, words: Sequence[str], variables: Mapping[str, str]) -> None:
    """The command as a shell takes it."""
    if console.json:
        console.document(Run(output, 0, [], list(words), dict(variables)))
        return
    lines = ["env", *(f"  {_quoted(f'{name}={value}')}" for name, value in variables.items())]
    *before, last = [*lines, f"  {' '.join(map(_quoted, words))}"]
    console.result(*(f"{line} \\" for line in before), last)


def _quoted(word: str) -> str:
    """A word for a shell; characters that a terminal would interpret are escaped as in bash and zsh."""
    if word.isprintable():
        return shlex.quote(word)
    escaped = (char if char.isprintable() and char not in "'\\" else f"\\U{ord(char):08x}" for char in word)
    return f"$'{''.join(escaped)}'"


def _result_of(words: Sequence[str], variables: Mapping[str, str]) -> int:
    """Runs the program to its end; the exit code as a shell has it."""
    try:
        process = subprocess.Popen(words, env=variables)
    except OSError as error:
        raise UsageError(
            f"{words[0]}: {(error.strerror or str(error)).lower()}", advice="Name a program after --."
        ) from error
    try:
        code = process.wait()
    except BaseException as error:
        if not isinstance(error, KeyboardInterrupt):  # a terminal sends this one to the program too
            process.terminate()
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        raise
    return SIGNALLED - code if code < 0 else code


def _captures(folder: Path) -> list[schema.Capture]:
    """The capture files of the folder, also of restarts, by rank."""
    found = []
    for path in sorted(folder.rglob("capture_*.json")):
        with suppress(OSError, msgspec.DecodeError):
            found.append(msgspec.json.decode(path.read_bytes(), type=schema.Capture))
    return sorted(found, key=lambda capture: capture.rank)


def _report(console: Console, output: str, code: int, captures: Sequence[schema.Capture]) -> None:
    if console.json:
        console.document(_document(output, code, captures))
        return
    troubles = {
        f"{trouble.subject}: {trouble.message}. {trouble.advice}".strip(): None
        for capture in captures
        for trouble in capture.troubles
    }
    for text in troubles if console.verbose else ():
        console.error(text)
    if not captures:
        console.error(
            f"nothing was recorded in {output}: no process of the program stepped an optimizer of torch, or its Python "
            "has no tracelink. To record another loop, use tracelink.capture."
        )
        return
    ranks = Numbers.of(capture.rank for capture in captures)
    files = [file for capture in captures for file in capture.files]
    what = f"{counted(len(files), 'file')}, {size(sum(file.bytes for file in files))}"
    hint = (
        f" {counted(len(troubles), 'problem')} (-v shows them)." if troubles and not console.verbose else ""
    )
    console.info(f"Recorded {ranks.called('rank')} in {output}: {what}.{hint}", to_stderr=True)
    unfinished = [capture for capture in captures if capture.outcome != FINISHED]
    following = "diagnose" if unfinished or code else "merge"
    console.info(f"Next: tracelink {following} {shlex.quote(output)}", to_stderr=True)


def _document(output: str, code: int, captures: Sequence[schema.Capture]) -> Run:
    ranks = [
        RecordedRank(
            capture.rank,
            capture.host,
            capture.outcome,
            capture.steps,
            [file.path for file in capture.files],
            [f"{trouble.subject}: {trouble.message}" for trouble in capture.troubles],
        )
        for capture in captures
    ]
    return Run(output, code, ranks)
