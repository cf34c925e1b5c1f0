"""Compilations in words: why a rank is late, since when it compiles, and how to get rid of the wait."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tracelink._model.records import line_in_words
from tracelink._model.text import capitalized, duration, ranks_in_words, shortened, time_of_day
from tracelink._model.witnesses import Compiling

LONGEST_FUNCTION = 80
LONGEST_GUARD = 120
MOST_SENTENCES = 2
"""Different compilations that a message names."""
WHERE_COMPILE_LOGS_ARE = (
    "Its stack is in torch's compiler: run the job with TORCH_TRACE=DIR in the environment, and give DIR to tracelink "
    "diagnose together with the dumps. Its logs show what is compiled, since when, and whether for the first time."
)
_MISMATCH = re.compile(r"^tensor '|\bmismatch\b")
"""Guards whose texts say that they failed."""


def compilations_in_words(compiling: Sequence[Compiling], lines: Mapping[int, str]) -> str:
    """Sentences about culprits in the compiler: those of most ranks first."""
    alike: dict[tuple[str, str, str, bool], list[Compiling]] = {}
    for one in compiling:
        alike.setdefault((one.function, one.id, one.phases[-1], one.open), []).append(one)
    sentences = [
        f"{ranks_in_words([one.rank for one in same])} {_compiled(same)}."
        for same in sorted(alike.values(), key=len, reverse=True)[:MOST_SENTENCES]
    ]
    if lines:
        are, show = ("are", "their stacks show") if len(lines) > 1 else ("is", "its stack shows")
        where = next(iter(lines.values()))
        sentences.append(f"{ranks_in_words(list(lines))} {are} in torch's compiler ({where}), as {show}.")
    return " ".join(sentences)


def _compiled(alike: Sequence[Compiling]) -> str:
    """`has been compiling train_step [3/2] (async_compile.wait) for at least 6 min 34 s`."""
    longest = max(alike, key=lambda one: one.duration_ns)
    several = len(alike) > 1
    what = _name_of(longest)
    guards = {_failed_guard(one) for one in alike if one.cold is False}
    again = f" (again, because {guard})" if len(guards) == 1 and (guard := guards.pop()) else ""
    if longest.open:
        verb = "have" if several else "has"
        return f"{verb} been compiling {what} for at least {duration(longest.duration_ns)}{again}"
    return f"{'were' if several else 'was'} compiling {what} for {duration(longest.duration_ns)} meanwhile{again}"


def _name_of(compiling: Compiling) -> str:
    """`train_step [3/2] (async_compile.wait)`."""
    function = shortened(compiling.function, LONGEST_FUNCTION)
    named = [function, f"[{compiling.id}]" if compiling.id else "", f"({compiling.phases[-1]})"]
    return " ".join(filter(None, named))


def _failed_guard(compiling: Compiling) -> str:
    """`s.i == 0 failed at train.py:31`; empty if unknown."""
    if not compiling.guard:
        return ""
    guard = shortened(compiling.guard, LONGEST_GUARD)
    failed = "" if _MISMATCH.search(compiling.guard) else " failed"
    return f"{guard}{failed}{f' at {line_in_words(compiling.guard_frame)}' if compiling.guard_frame else ''}"


def advice_on_compilation(one: Compiling) -> str:
    """How to get rid of the wait: another timeout or a warm cache the first time, fewer compilations after that."""
    rank, what = f"rank {one.rank}", shortened(one.function, LONGEST_FUNCTION) or "this function"
    ended = " If the compilation does not end, run py-spy dump --pid PID on its host." if one.open else ""
    if one.cold is False:
        why = _failed_guard(one)
        return (
            f"{capitalized(rank)} had compiled {what} before (warm): "
            f"{f'{why}. Mark' if why else 'mark'} sizes that change as dynamic (torch._dynamo.mark_dynamic), and keep "
            f"other values that guards check constant. tracelink compile {one.sources[0]} shows every guard that "
            f"failed.{ended}"
        )
    first = f"compiles {what} for the first time (cold)" if one.cold else "is in the compiler"
    return (
        f"{capitalized(rank)} {first}: use a longer timeout for the first steps, compile before the first collective, "
        "or start with warm caches (FX graph cache in TORCHINDUCTOR_CACHE_DIR, on storage that outlives the job). "
        f"tracelink compile {one.sources[0]} shows what it compiled.{ended}"
    )


def end_of_compilation(one: Compiling) -> str:
    """What follows from a compilation that ended, if the rank has not joined."""
    if one.open:
        return f"Rank {one.rank} is compiling; other culprits are not."
    return (
        f"Rank {one.rank} finished compiling at {time_of_day(one.since_ns + one.duration_ns, digits=3)} UTC: "
        "if the dumps were written later, it is stuck after that."
    )
