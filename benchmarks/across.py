"""What is measured of many ranks at once: merging them, matching what they did together, finding their clocks."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import inputs
import measure
import rank_inputs
from measure import Cost, Job, JobFailed
from other_tools import TRACE_FUSE, of_tool
from results import (
    Bar,
    Options,
    Result,
    Row,
    cpu,
    failures_of,
    measured_rows,
    output_folder,
    slope,
    wall,
    warmed,
)

from generators.clock_errors import mistime_job
from generators.files import KINETO, RECORDER, Kept
from generators.fleet_dumps import Fleet
from generators.job import HostClock
from generators.jobs import write_cluster as many_hosts

RANKS = (8, 32, 128)
LARGEST = 4
MEMORY_OF_LARGEST = 1.5
LEAST_RATE = 150.0
LINEARITY = 1.25
FLEET_RANKS, FLEET_ENTRIES = (64, 128, 256, 512), (500, 1000, 2000, 4000)

HOST_SKEW_NS, HOST_DRIFT_PPM = 50_000_000, 50.0
SEEDS = (0, 1, 2)
MATCHED = "matched8"
MATCHED_BEGIN_NS, MATCHED_END_NS = 1_794_983_735_850_000_000, 1_794_983_736_220_000_000


def ranks(options: Options) -> Result:
    """Merge the profiles of 8, 32 and 128 ranks into one Perfetto JSON."""
    size = options.size // 8
    files = rank_inputs.long_profiles(RANKS[0], size)
    missing = Result()
    with output_folder() as folder:
        paths = warmed(files)
        jobs = [
            Job("tracelink.merge, 2 jobs", "merge", (2, folder / "two.json", *paths)),
            Job("orjson.loads + orjson.dumps", "orjson_round_trip", paths),
        ]
        fuse = of_tool(TRACE_FUSE, (folder / "fused.json", *paths), options, missing)
        result = measured_rows(jobs, list(fuse), files, options.repeats)
    result.failures += missing.failures
    ours, orjson = (row.costs for row in result.rows[:2])
    result.bars = [
        Bar("wall, 2 jobs / orjson.loads + dumps", measure.best_ratio(ours, orjson, wall), 1.2),
        Bar("CPU, 2 jobs / orjson.loads + dumps", measure.best_ratio(ours, orjson, cpu), 2.2),
        memory_bar(result.rows[0], files),
    ]
    for count in RANKS[1:]:
        files = rank_inputs.long_profiles(count, size)
        with failures_of(f"{count} ranks", result):
            row = merged_once(files)
            result.rows.append(row)
            result.bars.append(memory_bar(row, files))
            if count == RANKS[-1]:
                rate = row.megabytes / row.best(cpu)
                result.bars.append(Bar(f"{count} ranks, MB/s of CPU", rate, LEAST_RATE, at_least=True))
    return result


def merged_once(files: Sequence[inputs.Input]) -> Row:
    """One merge of many ranks."""
    with output_folder() as folder:
        paths = [file.path for file in files]
        cost = measure.sampled(Job("", "merge", (2, folder / "two.json", *paths)))
    megabytes = sum(file.megabytes for file in files)
    return Row(f"tracelink.merge, {len(files)} ranks", [cost], megabytes, "once, sampled meanwhile")


def memory_bar(row: Row, files: Sequence[inputs.Input]) -> Bar:
    """The memory of all processes by the largest few of the inputs."""
    return Bar(f"memory, {len(files)} ranks / largest 4", share_of_largest(row, files), MEMORY_OF_LARGEST)


def share_of_largest(row: Row, files: Sequence[inputs.Input]) -> float:
    """How often the largest few of the inputs would fit into the memory of all processes."""
    return row.peak_mb / sum(sorted(file.megabytes for file in files)[-LARGEST:])


def many_dumps(options: Options) -> Result:
    """Match what up to 512 ranks recorded, 2000 entries each; and see what a further entry costs."""
    ours, pickle = beside_pickle(Fleet(), options.repeats)
    by_ranks = [*(matched(Fleet(ranks=count), options.repeats) for count in FLEET_RANKS[:-1]), ours]
    by_entries = [matched(Fleet(ranks=64, entries=count), options.repeats) for count in FLEET_ENTRIES]
    bars = [
        Bar("CPU, 1 job / pickle.load", measure.best_ratio(ours.costs, pickle.costs, cpu), 4.0),
        linearity("ranks", by_ranks),
        linearity("entries", by_entries),
    ]
    return Result([ours, pickle, *by_ranks[:-1], *by_entries], bars)


def beside_pickle(fleet: Fleet, repeats: int) -> list[Row]:
    """Matching, beside unpickling without looking."""
    folder, size = rank_inputs.dumps(fleet)
    jobs = [
        Job("tracelink.collectives, 1 job", "collectives", (1, folder)),
        Job("pickle.load", "pickle_load", [folder]),
    ]
    costs = measure.alternately(jobs, repeats)
    all_matched(fleet, costs[0])
    return [Row(job.label, runs, size / 1e6, named(fleet)) for job, runs in zip(jobs, costs, strict=True)]


def matched(fleet: Fleet, repeats: int) -> Row:
    """Matching alone."""
    folder, size = rank_inputs.dumps(fleet)
    (costs,) = measure.alternately([Job("", "collectives", (1, folder))], repeats)
    all_matched(fleet, costs)
    return Row("tracelink.collectives, 1 job", costs, size / 1e6, named(fleet))


def named(fleet: Fleet) -> str:
    """How much that is."""
    return f"{fleet.ranks} x {fleet.entries} entries"


def all_matched(fleet: Fleet, costs: Sequence[Cost]) -> None:
    """A run that misses a partner does not count."""
    expected = [fleet.collectives, fleet.collectives, fleet.messages, fleet.messages]
    names = ("collectives", "whole_collectives", "messages", "whole_messages")
    for cost in costs:
        if [cost.details[name] for name in names] != expected:
            raise JobFailed(f"{named(fleet)}: {cost.details}, not {expected}")


def linearity(what: str, rows: Sequence[Row]) -> Bar:
    """What a further megabyte costs from the middle on and before it."""
    lower, upper = slope(rows[0], rows[2]), slope(rows[2], rows[3])
    return Bar(f"CPU per MB, many {what} / few", upper / lower, LINEARITY)


@dataclass(frozen=True, slots=True)
class Mistimed:
    """A job whose clocks are known, and how near they have to be found."""

    name: str
    folder: Path
    error_us: float
    mode: str = "host"


def clocks(options: Options) -> Result:
    """Find the clocks of jobs in which they are known."""
    result = Result()
    for case in [*recorded_cases(result), *synthetic_cases()]:
        with failures_of(case.name, result):
            truth = case.folder / "truth.json"
            cost = measure.run(Job("", "clocks", (case.mode, truth, case.folder / "job")))
            result.rows.append(Row(case.name, [cost], remark=in_words(cost)))
            result.bars += clock_bars(case, cost)
    return result


def in_words(cost: Cost) -> str:
    """What was found of the clocks."""
    told = cost.details
    return (
        f"off by {told['median_error_us']:.1f} us, at most {told['max_error_us']:.1f}"
        f" ({told['worst_error_us']:.1f} at any time), known to {told['median_width_us']:.1f} us;"
        f" outside: {told['outside'] or 'none'}, unbounded: {told['unbounded']};"
        f" {told['early_messages']} of {told['timed_messages']} messages early"
    )


def clock_bars(case: Mistimed, cost: Cost) -> list[Bar]:
    """How near, how honest, and whether causes come before effects."""
    told = cost.details
    return [
        Bar(f"{case.name}: median error, us", told["median_error_us"], case.error_us),
        Bar(f"{case.name}: ranks outside", len(told["outside"]), 0),
        Bar(f"{case.name}: early messages", told["early_messages"], 0),
    ]


def recorded_cases(result: Result) -> list[Mistimed]:
    """A recorded job of one host, as if each rank had a host and a clock of its own."""
    folder = inputs.SHARED_DATA / MATCHED
    if not folder.exists():
        result.failures.append(f"{MATCHED}: there is no {folder}")
        return []
    wrong = [
        Mistimed(f"{MATCHED}, wrong clocks {seed}", mistimed(folder, seed, 1.0), 300.0) for seed in SEEDS
    ]
    return [*wrong, Mistimed(f"{MATCHED}, right clocks", mistimed(folder, 0, 0.0), 300.0)]


def mistimed(folder: Path, seed: int, share: float) -> Path:
    """The job with drawn clocks, of which the first is right; `share` of the greatest errors."""
    drawn = Random(f"clocks {seed}")
    wrong = {
        rank: HostClock(
            round(share * drawn.randint(-HOST_SKEW_NS, HOST_SKEW_NS)),
            share * drawn.uniform(-HOST_DRIFT_PPM, HOST_DRIFT_PPM),
            MATCHED_BEGIN_NS,
        )
        for rank in range(1, 8)
    }
    right = {0: HostClock(reference_ns=MATCHED_BEGIN_NS)}

    def fill(target: Path) -> None:
        mistime_job(folder, target / "job", right | wrong)
        told = [
            {
                "rank": rank,
                "clock_offset_ns": clock.offset_ns,
                "clock_drift_ppm": clock.drift_ppm,
                "clock_reference_ns": clock.reference_ns,
            }
            for rank, clock in (right | wrong).items()
        ]
        truth = {"ranks": told, "begin_ns": MATCHED_BEGIN_NS, "end_ns": MATCHED_END_NS}
        (target / "truth.json").write_text(json.dumps(truth))

    return rank_inputs.kept_in_cache(f"{MATCHED}-clocks-{seed}-{share}", [Path(__file__)], fill)


def synthetic_cases() -> list[Mistimed]:
    """The same job of 64 ranks, as different profilers and recorders tell of it."""
    told = {
        "profiles with Seq": (True, (KINETO,)),
        "profiles without": (False, (KINETO,)),
        "profiles and recorder": (False, (KINETO, RECORDER)),
    }
    cases = [
        Mistimed(f"64 ranks, {name}", synthetic(numbered, sources), 10.0)
        for name, (numbered, sources) in told.items()
    ]
    return [*cases, Mistimed("64 ranks, right clocks", synthetic(True, (KINETO,), 0.0), 10.0)]


def synthetic(numbered: bool, sources: Sequence[str], share: float = 1.0) -> Path:
    """Five steps, a second between them."""

    def fill(target: Path) -> None:
        truth = many_hosts(
            target / "job",
            Kept(sources=sources),
            steps=5,
            pause_ns=10**9,
            clock_skew_ns=round(share * HOST_SKEW_NS),
            drift_ppm=share * HOST_DRIFT_PPM,
            sequence_numbers=numbered,
        )
        times = [collective[end] for collective in truth["collectives"] for end in ("start_ns", "end_ns")]
        span = {"begin_ns": min(times), "end_ns": max(times)}
        (target / "truth.json").write_text(json.dumps({"ranks": truth["ranks"], **span}))

    name = f"hosts-{numbered}-{'-'.join(sources)}-{share}"
    return rank_inputs.kept_in_cache(name, [Path(__file__)], fill)


SUITES: dict[str, Callable[[Options], Result]] = {
    "ranks": ranks,
    "recorder-512": many_dumps,
    "clocks": clocks,
}
