"""`PYTHONPATH=tests python -m fuzz`: mutates inputs until the time is over; the exit code is 1 if anything broke."""

from __future__ import annotations

import argparse
import gc
import shutil
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from fuzz.mutations import mutated
from fuzz.runs import End, folder, peak, run
from fuzz.seeds import CRASHES, Seed, all_seeds
from tracelink import plugins

FILE = "{in}"
"""The damaged file alone; other commands read its whole folder."""
COMMANDS: dict[str, list[list[str]]] = {
    "": [
        ["inspect"],
        ["merge", "-o", "{out}/x.json"],
        ["merge", "-o", "{out}/x.pftrace"],
        ["merge", "-o", "{out}/x", "-t", "chakra"],
        ["merge", "-o", "{out}/x", "-t", "chakra", "--variant", "astra-sim"],
        ["merge", "-o", "{out}/", "-t", "chakra-json"],
        ["merge", "-o", "{out}/x.tar", "--bundle"],
        ["summary", "-v", "--shapes"],
        ["summary", "--json"],
        ["collectives", "--messages"],
        ["clocks"],
        ["diagnose"],
    ],
    "flight-recorder": [
        ["diagnose"],
        ["diagnose", "-o", "{out}/x.html"],
        ["diagnose", "-o", "{out}/x.sqlite"],
        ["diagnose", "--entries"],
    ],
    "chakra": [["validate"], ["merge", FILE, "-o", "{out}/x.nodes.json"], ["merge", "-o", "{out}/x.svg"]],
    "chakra-nodes": [["merge", FILE, "-o", "{out}/x.et"]],
    "perfetto": [["merge", FILE, "-o", "{out}/x.json"], ["inspect"]],
    "clog": [["diagnose"], ["diagnose", "--entries"], ["diagnose", "-o", "{out}/x.sqlite"]],
    "metrics": [
        ["merge", "--metrics-start", "1794984130", "--interval", "1", "-o", "{out}/x.json"],
        ["inspect", "--tz", "+02:00", "--map", "0-1=0-1,n1:0=7"],
    ],
    "torch-trace": [["compile"]],
    "watchdog-log": [["diagnose"], ["diagnose", "-v"], ["diagnose", "-o", "{out}/x.html"]],
    "nccl-ras": [["diagnose"], ["diagnose", "--hung", "--json"]],
}
"""Commands for all formats, and those for one."""


@dataclass
class Tally:
    """What was run, and what broke."""

    ends: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    first: dict[str, int] = field(default_factory=dict)
    """The first case of each fault."""


def main() -> int:
    """Runs cases, prints how they ended, and saves the first input of each fault."""
    arguments = _arguments()
    with folder() as place:
        work = Path(place) / "seeds"
        work.mkdir()
        seeds = all_seeds(work)
        _print_seeds(seeds)
        cases = range(arguments.case, arguments.case + 1) if arguments.case is not None else range(10**9)
        until = time.monotonic() + arguments.hours * 3600 + arguments.minutes * 60
        tally, started = Tally(), time.monotonic()
        for number in cases:
            if arguments.case is None and (time.monotonic() > until or number == arguments.inputs):
                break
            end = _run_case(arguments, seeds, number, Path(place) / "case", tally)
            if arguments.case is not None:
                print(end.output)
            if number % 100 == 0:
                gc.collect()
    _print_tally(tally, time.monotonic() - started)
    return bool(tally.faults)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="cases depend on this number only (default: 1)")
    parser.add_argument("--hours", type=float, default=0)
    parser.add_argument("--minutes", type=float, default=0, help="default: 2, unless --hours is given")
    parser.add_argument("--inputs", type=int, help="stop after so many inputs")
    parser.add_argument("--case", type=int, help="run only this case, and print its output")
    parser.add_argument("--only", default="", help="run only inputs of this format")
    parser.add_argument("--save", type=Path, default=Path("fuzz-faults"), help="folder for inputs of faults")
    arguments = parser.parse_args()
    if not arguments.hours and not arguments.minutes:
        arguments.minutes = 2
    return arguments


def _run_case(
    arguments: argparse.Namespace, seeds: list[Seed], number: int, place: Path, tally: Tally
) -> End:
    """Mutates a seed, runs a command on it, and counts how that ended."""
    random = Random(f"{arguments.seed}/{number}")
    format_name = arguments.only or random.choice(sorted({seed.format for seed in seeds}))
    seed = random.choice([seed for seed in seeds if seed.format == format_name])
    shutil.rmtree(place, ignore_errors=True)
    (place / "out").mkdir(parents=True)
    (place / "in").mkdir()
    name, data = mutated(seed, random)
    for path, text in {**seed.beside, name: data}.items():
        (place / "in" / path).parent.mkdir(parents=True, exist_ok=True)
        (place / "in" / path).write_bytes(text)
    size = 2 * len(seed.data) + len(data) + sum(map(len, seed.beside.values()))
    if random.random() < 0.3:
        partner = random.choice([other for other in seeds if other.format != format_name or other != seed])
        (place / "in" / f"with_{partner.name.replace('/', '_')}").write_bytes(partner.data)
        size += len(partner.data)
    command = _command(format_name, random, place / "in" / name, place)
    end = run(command, size)
    tally.ends[format_name, end.outcome] += 1
    if end.fault:
        tally.faults[end.fault] += 1
        if end.fault not in tally.first:
            tally.first[end.fault] = number
            _save(arguments.save / f"case-{arguments.seed}-{number}", place / "in", command, end)
            print(f"case {number}: {end.fault}   {' '.join(command)}", flush=True)
    return end


def _command(format_name: str, random: Random, file: Path, place: Path) -> list[str]:
    own = COMMANDS.get(format_name, [])
    chosen = random.choice(own) if own and random.random() < 0.5 else random.choice(COMMANDS[""])
    words = [word.format(**{"in": file, "out": place / "out"}) for word in chosen]
    if FILE not in chosen:
        words.append(str(place / "in"))
    return [*words, "-v", "-j", "1"]


def _save(folder_of_fault: Path, inputs: Path, command: list[str], end: End) -> None:
    shutil.rmtree(folder_of_fault, ignore_errors=True)
    shutil.copytree(inputs, folder_of_fault)
    text = f"tracelink {' '.join(command)}\n{end.fault}\n\n{end.output[-4000:]}\n"
    (folder_of_fault / "repro.txt").write_text(text, errors="replace")


def _print_seeds(seeds: list[Seed]) -> None:
    counts = Counter(seed.format for seed in seeds)
    without = sorted(set(plugins.readers()) - set(counts))
    print(f"{len(seeds)} seeds: " + ", ".join(f"{count} {name}" for name, count in sorted(counts.items())))
    if without:
        print(f"no seeds of: {', '.join(without)}")
    if not CRASHES.is_dir():
        print(f"there is no {CRASHES}: its inputs are skipped")


def _print_tally(tally: Tally, seconds: float) -> None:
    formats = sorted({name for name, _ in tally.ends})
    outcomes = sorted({outcome for _, outcome in tally.ends})
    total = tally.ends.total()
    print(f"\n{total} inputs of {len(formats)} formats in {seconds:.0f} s; {peak() >> 20} MB at most")
    print(f"{'format':16}" + "".join(f"{outcome:>12}" for outcome in outcomes))
    for name in formats:
        print(f"{name:16}" + "".join(f"{tally.ends[name, outcome]:>12}" for outcome in outcomes))
    for fault, count in tally.faults.most_common():
        print(f"FAULT {count:5} times, first case {tally.first[fault]}: {fault}")
    print(f"{len(tally.faults)} kinds of faults")


if __name__ == "__main__":
    sys.exit(main())
