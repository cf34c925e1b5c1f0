"""`PYTHONPATH=tests python -m fuzz.laws --seed 1 --cases 1000`: what holds for every diagnosis, on simulated jobs.

Prints how often each law is broken, by class, with the smallest case of each; the exit code is 1 if one is.
`--case 1/17 --save FOLDER` diagnoses one case and writes its dumps.
"""

from __future__ import annotations

import argparse
import io
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from random import Random
from typing import NamedTuple

from fuzz.simulated_jobs import EPOCH_NS, FAULTS, RUNNING, SLOW, Case, View
from tracelink._hang.examine import examine_sources
from tracelink._hang.facts.model import Diagnosis, Kind, Problem, Stage
from tracelink._io.sources import Discovery, Source
from tracelink._run.reading import engine_of

WAITS = frozenset({Kind.NEVER_JOINED, Kind.LAGGING, Kind.FAILED, Kind.DEADLOCK, Kind.SKIPPED})
MILD = frozenset({Kind.IN_FLIGHT, Kind.STRAGGLER})


class Held(NamedTuple):
    """A file in memory: it opens it, and is its stamp."""

    data: bytes
    modified_ns: int = 0
    is_whole: bool = True
    is_cheap: bool = False

    def __call__(self) -> io.BytesIO:
        return io.BytesIO(self.data)

    def check(self) -> None:
        """It is frozen."""


def diagnosed(files: Mapping[str, bytes], written: Mapping[str, float] | None = None) -> Diagnosis:
    """The diagnosis of files in memory; `written` are their times in ms since 1970."""
    held = {name: Held(data, round((written or {}).get(name, 0) * 1e6)) for name, data in files.items()}
    sources = [Source(name, file, len(file.data), stamp=file) for name, file in held.items()]
    return examine_sources(Discovery(sources=sources), engine_of({"jobs": 1})).diagnosis


def proven(diagnosis: Diagnosis) -> set[int]:
    """The ranks that are certainly to blame."""
    sure = [one for one in diagnosis.problems if one.proven and not one.tie and one.kind not in MILD]
    return {rank for one in sure for rank in one.culprits}


def in_words(diagnosis: Diagnosis) -> str:
    found = ", ".join(
        f"{one.kind}{'' if one.proven else '?'} {list(one.culprits)} in {one.operation} #{one.sequence}"
        for one in diagnosis.problems[:3]
    )
    return f"{diagnosis.verdict}: {found}"


# The laws: each returns what is wrong, or nothing.


def never_ok_while_a_rank_waits(case: Case, random: Random) -> str:
    """Law 1."""
    absent = _some(case, random)
    diagnosis = diagnosed(case.dumps(absent))
    if diagnosis.verdict != "ok":
        return ""
    left = [rank for rank in case.moments if rank not in absent]
    gone = [rank for rank in range(max(left)) if rank not in left]
    if case.style.members:
        gone = [rank for rank in range(case.world) if rank not in left]
    if gone:
        return f"ok without dumps of {gone}"
    over = {one.meeting for rank in left for one in case.calls(rank) if case.is_over(rank, one)}
    for rank in left:
        for one in case.calls(rank):
            is_open = one.done > case.moments[rank] and not case.has_left(rank, one)
            if is_open and one.meeting not in over:
                return f"ok while rank {rank} waits in {one.call.name} #{one.sequence}"
    return ""


def never_proven_while_a_member_is_absent(case: Case, random: Random) -> str:
    """Law 2."""
    absent = _some(case, random)
    diagnosis = diagnosed(case.dumps(absent))
    gone = case.gone | absent
    for problem in diagnosis.problems:
        members = {rank for group in _named(case, problem.group) for rank in group}
        blamed = set(problem.culprits) - gone
        others = members - blamed - gone if problem.kind is Kind.SKIPPED else set()
        decides = bool(members & gone) and len(others) <= len(blamed | (members & gone))
        if problem.kind in WAITS and problem.proven and not problem.tie and blamed and decides:
            return f"{problem.kind} {sorted(blamed)} is proven without dumps of {sorted(members & gone)}"
    known = proven(diagnosis)
    for rank in random.sample(sorted(case.moments.keys() - absent), min(2, len(case.moments) - len(absent))):
        less = diagnosed(case.dumps({*absent, rank})) if known else diagnosis
        if others := proven(less) - known:
            return f"proven {sorted(known)}; without the dump of {rank}: {sorted(others)} ({in_words(less)})"
    return ""


def nothing_depends_on_numbers_names_and_clocks(case: Case, random: Random) -> str:
    """Law 3."""
    diagnosis = diagnosed(case.dumps())
    present = sorted(case.moments)
    numbers = {rank: rank for rank in case.gone} | dict(
        zip(present, random.sample(present, len(present)), strict=True)
    )
    ranks = {number: rank for rank, number in numbers.items()}
    ahead = [random.uniform(-3e5, 3e5) for _ in range(case.world)]
    files = case.dumps()
    written = {f"{case.style.file}{rank}": EPOCH_NS / 1e6 + moment for rank, moment in case.moments.items()}
    other, back = {
        "ranks": lambda: (diagnosed(case.dumps(view=View(ranks=numbers.__getitem__))), ranks.__getitem__),
        "names": lambda: (
            diagnosed(case.dumps(view=View(group=lambda group: str(group * 7)))),
            int,
        ),
        "clocks": lambda: (diagnosed(case.dumps(view=View(ahead_ms=ahead.__getitem__))), int),
        "duplicates": lambda: (
            diagnosed(files | {f"copy/{name}": data for name, data in files.items()}),
            int,
        ),
        "times": lambda: (diagnosed(files, written), int),
    }[change := random.choice(["ranks", "names", "clocks", "duplicates", "times"])]()
    was, now = _found(diagnosis, int), _found(other, back)
    return "" if was == now else f"other {change}: {in_words(diagnosis)} -> {in_words(other)}"


def fewer_dumps_weaken(case: Case, random: Random) -> str:
    """Law 3."""
    absent = _some(case, random, most=case.world // 2) or {random.choice(sorted(case.moments))}
    absent = set(sorted(absent)[: len(case.moments) - 1])
    diagnosis, less = diagnosed(case.dumps()), diagnosed(case.dumps(absent))
    turned = proven(less) - proven(diagnosis)
    is_worse = less.verdict == "problem" != diagnosis.verdict
    if turned or is_worse or (less.verdict == "ok" != diagnosis.verdict):
        return f"without {sorted(absent)}: {in_words(diagnosis)} -> {in_words(less)}"
    return ""


def a_running_job_is_no_problem(case: Case, random: Random) -> str:
    """Law 4."""
    absent = set(random.sample(sorted(case.moments), random.randint(0, 1)))
    diagnosis = diagnosed(case.dumps(absent))
    legal = {Kind.STRAGGLER} if case.fault.kind == SLOW else {Kind.DTYPE_MISMATCH}
    decided = {one.kind for one in diagnosis.problems if one.proven and one.kind is not Kind.IN_FLIGHT}
    is_false = diagnosis.verdict == "problem" and not (decided and decided <= legal)
    return f"without {sorted(absent)}: {in_words(diagnosis)}" if is_false and not case.hung else ""


def all_ranks_that_are_behind_are_named(case: Case, random: Random) -> str:
    """Law 5."""
    behind = case.behind()
    if not behind:
        return ""
    diagnosis = diagnosed(case.dumps())
    first = [one for one in diagnosis.problems if one is diagnosis.problems[0] or one.kind is Kind.ABSENT]
    named = {rank for one in first for rank in one.culprits}
    return "" if behind <= named else f"{sorted(behind)} are behind: {in_words(diagnosis)}"


def no_rank_waits_in_what_it_completed(case: Case, random: Random) -> str:
    """Law 6."""
    diagnosis = diagnosed(case.dumps())
    for standing in diagnosis.standings:
        for group in _numbers(case, standing.group) if standing.stage is Stage.WAITING else ():
            for rank in standing.ranks:
                for one in case.calls(rank):
                    here = (one.call.group, one.collective, one.message) == (group, standing.sequence, 0)
                    if here and case.is_over(rank, one):
                        call = f"{standing.operation} #{standing.sequence} of group {standing.group}"
                        return f"rank {rank} waits in {call}, which it completed"
    return ""


Law = Callable[[Case, Random], str]
LAWS: Mapping[int, tuple[Law, ...]] = {
    1: (never_ok_while_a_rank_waits,),
    2: (never_proven_while_a_member_is_absent,),
    3: (nothing_depends_on_numbers_names_and_clocks, fewer_dumps_weaken),
    4: (a_running_job_is_no_problem,),
    5: (all_ranks_that_are_behind_are_named,),
    6: (no_rank_waits_in_what_it_completed,),
}
FAULTS_OF: Mapping[int, tuple[str, ...]] = {
    4: (RUNNING, RUNNING, SLOW),
    5: ("stuck", "two_stuck", "two_stuck", "dead"),
}


def broken(number: int, seed: str, random: Random | None = None) -> tuple[Case, str]:
    """The case of this seed, and what is wrong with its diagnosis."""
    case = Case(f"{number}/{seed}", FAULTS_OF.get(number, FAULTS))
    random = random or Random(seed)
    return case, next(filter(None, (law(case, random) for law in LAWS[number])), "")


def _some(case: Case, random: Random, most: int = 3) -> set[int]:
    """None, one or several ranks whose dumps are missing; at least one is left."""
    count = random.choice([0, 1, random.randint(0, most)])
    return set(random.sample(sorted(case.moments), min(count, len(case.moments) - 1)))


def _numbers(case: Case, name: str) -> Iterable[int]:
    return [int(name)] if name.isdigit() and int(name) < len(case.groups) else []


def _named(case: Case, name: str) -> list[tuple[int, ...]]:
    return [case.groups[number].ranks for number in _numbers(case, name)]


def _found(diagnosis: Diagnosis, back: Callable[[int], int]) -> tuple[str, set[tuple[object, ...]]]:
    def of(problem: Problem) -> tuple[object, ...]:
        return problem.kind, frozenset(map(back, problem.culprits)), problem.proven, problem.category

    return diagnosis.verdict, {of(one) for one in diagnosis.problems}


# The command.


def main() -> int:
    """Runs cases, and prints what breaks a law."""
    parser = argparse.ArgumentParser(prog="fuzz.laws", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--law", type=int, choices=LAWS, action="append")
    parser.add_argument("--case", help="LAW/SEED/NUMBER, as printed: only this one")
    parser.add_argument("--truth", action="store_true", help="count what the headline names, by fault")
    parser.add_argument("--save", type=Path, help="write the dumps of --case into this folder")
    arguments = parser.parse_args()
    if arguments.case:
        return _one(arguments.case, arguments.save)
    if arguments.truth:
        return _truth(arguments.seed, arguments.cases)
    wrong = 0
    for number in arguments.law or LAWS:
        wrong += _many(number, arguments.seed, arguments.cases)
    return bool(wrong)


def _one(name: str, folder: Path | None) -> int:
    number, seed = name.split("/", 1)
    case, message = broken(int(number), seed)
    print(f"{case}\n{in_words(diagnosed(case.dumps()))}\n{message or 'holds'}")
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
        for file, data in case.dumps().items():
            (folder / file).write_bytes(data)
    return bool(message)


def _truth(seed: int, cases: int) -> int:
    """Counts, for each fault, what the diagnosis with all dumps says of the ranks with the fault."""
    said: Counter[tuple[str, str]] = Counter()
    for count in range(cases):
        case = Case(f"truth/{seed}/{count}")
        diagnosis, fault = diagnosed(case.dumps()), case.fault.kind
        named = set(diagnosis.problems[0].culprits) if diagnosis.problems else set()
        what = (
            "exact"
            if named == set(case.fault.ranks)
            else "among"
            if named & set(case.fault.ranks)
            else "other"
        )
        said[
            f"{fault}, {'hung' if case.hung else 'runs'}", f"{diagnosis.verdict}: {what if named else 'none'}"
        ] += 1
    for (fault, what), number in sorted(said.items()):
        print(f"{fault:16} {what:20} {number:5}")
    return 0


def _many(number: int, seed: int, cases: int) -> int:
    classes: dict[str, list[tuple[int, str, str, str]]] = {}
    started = time.process_time()
    for count in range(cases):
        case, message = broken(number, f"{seed}/{count}")
        if message:
            size = sum(map(len, case.issued))
            kind = re.sub(r"\[[^]]*\]|\(.*|\d+| in \S+ #\S+", "", message)
            classes.setdefault(kind, []).append((size, str(case.seed), str(case), message))
    wrong = sum(map(len, classes.values()))
    print(
        f"law {number}: {wrong} of {cases} cases, {(time.process_time() - started) / cases * 1000:.0f} ms each"
    )
    for found in sorted(classes.values(), key=len, reverse=True):
        _, name, what, message = min(found)
        print(f"  {len(found):4} times, as --case {name}: {what}\n       {message}")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
