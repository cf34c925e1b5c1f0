"""What `tracelink diagnose` takes, whole command, beside PyTorch's `fr_trace` on the same dumps."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import commands
import measure
import rank_inputs
from across import linearity, named
from commands import Command
from other_tools import first_that_imports
from results import Bar, Options, Result, Row, cpu, failures_of, output_folder, wall

from generators.fleet_dumps import Fleet

FR_TRACE = "torch.distributed.flight_recorder.fr_trace"
ENTRIES = 2000
SMALL = Fleet(8, ENTRIES, tensor_parallel=2, stages=2, pipelined=False)
MIDDLE, LARGE = (Fleet(ranks, ENTRIES, pipelined=False) for ranks in (64, 512))
TIMES_FASTER = {MIDDLE: 8, LARGE: 12}
LARGE_MEGABYTES, FIRST_ANSWER_SECONDS = 300.0, 1.0
BY_ENTRIES = [Fleet(64, entries) for entries in (500, 1000, 2000, 4000)]
BY_RANKS = [Fleet(ranks, 500) for ranks in (64, 256, 1024, 4096)]
STOPPED_RANK = 17
TIMES_PICKLE, DATABASE_SECONDS = 1.05, 8.0
LOADING = """
import pickle, sys
for name in sys.argv[1:]:
    with open(name, "rb") as file:
        pickle.load(file)
print("read")
"""
HUNG = Fleet(64, 134 * len(MIDDLE.step), pipelined=False)
"""Its last entry is a collective of all ranks."""


def diagnosing(options: Options) -> Result:
    """Diagnose dumps, whole command with imports: healthy ones beside fr_trace, many of them, and those of a hang."""
    result = Result()
    for fleet in (SMALL, MIDDLE, LARGE):
        with failures_of(f"beside fr_trace, {named(fleet)}", result):
            beside_fr_trace(fleet, options, result)
    for part in (of_many_ranks, variants, first_answer):
        with failures_of(part.__name__, result):
            part(options, result)
    for what, fleets in (("ranks", BY_RANKS), ("entries", BY_ENTRIES)):
        with failures_of(f"many {what}", result):
            rows = [diagnosed(fleet, options) for fleet in fleets]
            result.rows += rows
            result.bars.append(linearity(what, rows))
    return result


def beside_fr_trace(fleet: Fleet, options: Options, result: Result) -> None:
    """Both commands on the same dumps, in turns; of very many once, for that takes minutes."""
    folder, size = rank_inputs.dumps(fleet)
    python = first_that_imports(FR_TRACE, options)
    both = [healthy(fleet, folder), Command("fr_trace", [python, "-m", FR_TRACE, str(folder)])]
    costs = in_one_round(both) if fleet is LARGE else commands.alternately(both, options.repeats)
    result.rows += [
        Row(one.label, runs, size / 1e6, named(fleet)) for one, runs in zip(both, costs, strict=True)
    ]
    if times := TIMES_FASTER.get(fleet):
        ratio = times * measure.best_ratio(*costs, cpu)
        result.bars.append(Bar(f"{fleet.ranks} ranks, {times} x CPU / fr_trace", ratio, 1.0))


def in_one_round(both: Sequence[Command]) -> list[list[measure.Cost]]:
    """Each once after a first look at the dumps, the memory sampled meanwhile."""
    commands.run(both[0])
    return [[commands.watched(command)] for command in both]


def healthy(fleet: Fleet, folder: Path, *, compiled: bool = True) -> Command:
    """Our command on dumps of which all is well; a run that says otherwise does not count."""
    return Command("tracelink diagnose", ours(folder), answer=well(fleet), compiled=compiled)


def well(fleet: Fleet) -> str:
    """How the answer begins if nothing is wrong."""
    return f"No problem found: {fleet.ranks:,} ranks,"


def ours(folder: Path) -> list[str]:
    """As a user types it, but with this interpreter."""
    return [sys.executable, "-m", "tracelink", "diagnose", str(folder)]


def diagnosed(fleet: Fleet, options: Options, remark: str = "") -> Row:
    """Our command alone."""
    folder, size = rank_inputs.dumps(fleet)
    return measured(healthy(fleet, folder), size, options, f"{named(fleet)} {remark}".rstrip())


def measured(command: Command, size: int, options: Options, remark: str) -> Row:
    """A command alone."""
    (costs,) = commands.alternately([command], options.repeats)
    return Row(command.label, costs, size / 1e6, remark)


def of_many_ranks(options: Options, result: Result) -> None:
    """The largest job, as often as others, and its memory."""
    row = diagnosed(LARGE, options)
    result.rows.append(row)
    result.bars.append(Bar(f"{LARGE.ranks} ranks, peak MB", row.peak_mb, LARGE_MEGABYTES))


def variants(options: Options, result: Result) -> None:
    """The same from a checkout whose modules are compiled anew each time; and dumps that have messages too."""
    folder, size = rank_inputs.dumps(MIDDLE)
    uncompiled = healthy(MIDDLE, folder, compiled=False)
    result.rows += [
        measured(uncompiled, size, options, f"{named(MIDDLE)}, modules not compiled"),
        diagnosed(Fleet(64, ENTRIES), options, "with messages"),
    ]


def first_answer(options: Options, result: Result) -> None:
    """One rank has stopped; the answer has to name it, and who waits."""
    folder, size = rank_inputs.hung_dumps(HUNG, STOPPED_RANK)
    answer = f"Rank {STOPPED_RANK} is behind: ranks 0-16, 18-63 wait for it in all_reduce"
    command = Command("tracelink diagnose", ours(folder), exit_code=4, answer=answer)
    row = measured(command, size, options, f"{named(HUNG)}, rank {STOPPED_RANK} stopped")
    result.rows.append(row)
    result.bars.append(Bar("hang of 64 ranks, wall s", row.best(wall), FIRST_ANSWER_SECONDS))


def large(options: Options) -> Result:
    """The dumps of 512 ranks, with one process and two, and their database, beside reading them with pickle."""
    folder, size = rank_inputs.dumps(LARGE)
    files = [str(folder / f"nccl_trace_rank_{rank}") for rank in range(LARGE.ranks)]
    with output_folder() as written:
        database = str(written / "dumps.sqlite")
        started = [
            Command("pickle.load", [sys.executable, "-c", LOADING, *files], answer="read"),
            jobs_of("tracelink diagnose, 1 job", folder, "1"),
            jobs_of("tracelink diagnose, 2 jobs", folder, "2"),
            jobs_of("tracelink diagnose to SQLite, 1 job", folder, "1", "-o", database),
            jobs_of("tracelink diagnose to SQLite, 2 jobs", folder, "2", "-o", database),
        ]
        costs = commands.alternately(started, options.repeats)
    remark = named(LARGE)
    result = Result(
        [Row(one.label, runs, size / 1e6, remark) for one, runs in zip(started, costs, strict=True)]
    )
    for row in result.rows[1:3]:
        ratio = measure.best_ratio(row.costs, costs[0], cpu)
        result.bars.append(Bar(f"{row.job}, CPU / pickle.load", ratio, TIMES_PICKLE))
    for row in result.rows[3:]:
        result.bars.append(Bar(f"{row.job}, CPU s", row.best(cpu), DATABASE_SECONDS))
    result.bars += [Bar(f"{row.job}, peak MB", row.peak_mb, LARGE_MEGABYTES) for row in result.rows[1:3]]
    return result


def jobs_of(label: str, folder: Path, jobs: str, *further: str) -> Command:
    """Our command on the dumps of the large job."""
    return Command(label, [*ours(folder), "--jobs", jobs, *further], answer=well(LARGE))


SUITES: dict[str, Callable[[Options], Result]] = {"diagnose": diagnosing, "diagnose-large": large}
