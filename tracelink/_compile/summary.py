"""The tables of compile logs in short: what went wrong in a line each, functions, guards that failed, graph breaks."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Annotated

from msgspec import Struct, field
from msgspec.structs import replace

from tracelink._compile.divergences import CODE, GRAPHS, ORDER, TENSORS
from tracelink._compile.model import (
    Compiled,
    CompileReport,
    Divergence,
    Failure,
    FunctionTime,
    GraphBreak,
    OpenPhase,
    Status,
    lasting,
)
from tracelink._model.fields import Doc, Nanoseconds, Shown, Unit
from tracelink._model.text import (
    counted,
    duration,
    lowered,
    number,
    ranks_in_words,
    shortened,
)

LONGEST, LONGEST_NAME = 100, 60
"""Characters of a reason, and of the name of a function."""
CONSEQUENCES = (GRAPHS, CODE, TENSORS, ORDER)
"""What differs where ranks compiled other functions, or other collectives."""
SIZES = re.compile(r"\. expected .*")
"""What differs where sizes change in each step: such guards are one reason."""
WORTH_SAYING_NS = 1_000_000_000
"""Compilations that took less are not worth a hint."""


# What went wrong, in a line each.


def headlines(report: CompileReport) -> list[str]:
    """A line for each thing that went wrong."""
    return [
        *_open_in_words(report.open),
        *(_divergence_in_words(one, len(report.runs) > 1) for one in _causes(report.divergences)),
        *_failures_in_words(report.failures),
    ]


def summary(report: CompileReport) -> str:
    """All of it in a sentence."""
    if not report.compiles:
        notes = counted(sum(one.count for one in report.exports), "note")
        return f"Nothing was compiled{f'; draft export made {notes}' if report.exports else ''}."
    forward = [one for one in report.compiles if not one.backward]
    functions = set(names_of_functions(report))
    total = sum(one.duration_ns or 0 for one in report.compiles)
    of_rank: Counter[int] = Counter()
    for one in report.compiles:
        of_rank[one.rank] += one.duration_ns or 0
    most = f", {duration(max(of_rank.values()))} on the rank with most" if len(of_rank) > 1 else ""
    recompiled = sum(bool(one.recompile_of) for one in forward)
    ranks = f" on {counted(len(report.ranks), 'rank')}" if len(report.ranks) > 1 else ""
    ranks += f" in {counted(len(report.runs), 'run')}" if len(report.runs) > 1 else ""
    compiled = f"{counted(len(forward), 'compilation')} of {counted(len(functions), 'function')}{ranks}"
    return (
        f"{compiled}{f' took {duration(total)}{most}' if total else ''}: "
        f"{number(recompiled)} recompiled, {counted(sum(one.count for one in report.graph_breaks), 'graph break')}, "
        f"{number(len(report.failures))} failed."
    )


def _open_in_words(phases: Sequence[OpenPhase]) -> list[str]:
    """Ranks that did the same are one line: the phase that has been open longest, and the one that began last."""
    of_rank: dict[int, list[OpenPhase]] = defaultdict(list)
    for phase in phases:
        of_rank[phase.rank].append(phase)
    same: dict[tuple[str, str, str, str], list[OpenPhase]] = defaultdict(list)
    for many in of_rank.values():
        outer = max(many, key=lambda phase: phase.for_ns)
        inner = min(many, key=lambda phase: phase.for_ns)
        same[outer.function, outer.id, outer.name, inner.name].append(outer)
    lines = []
    for (function, id_, name, last), each in same.items():
        what = f"{shortened(function, LONGEST_NAME) or 'a function'}{f' [{id_}]' if id_ else ''}"
        longest = duration(max(phase.for_ns for phase in each))
        newest = f", and {last} began last" if last != name else ""
        ranks = ranks_in_words(sorted(phase.rank for phase in each))
        was, ends, for_ = (
            ("was", "its log ends", "") if len(each) == 1 else ("were", "their logs end", "up to ")
        )
        lines.append(
            f"{ranks} {was} compiling {what} when {ends}: {name} has been open for {for_}{longest}{newest}."
        )
    return lines


def _causes(divergences: Sequence[Divergence]) -> list[Divergence]:
    """Ranks that compiled other functions have other graphs, too, and run them in another order."""
    known = {(one.run, one.outliers) for one in divergences if one.what not in CONSEQUENCES}
    first = {(one.run, one.outliers): one for one in reversed(divergences)}
    return [
        one
        for one in divergences
        if one.what not in CONSEQUENCES
        or ((one.run, one.outliers) not in known and first[one.run, one.outliers] is one)
    ]


def _divergence_in_words(one: Divergence, several_runs: bool) -> str:
    words = _difference_in_words(one)
    return f"In run {one.run}, {lowered(words)}" if several_runs else words


def _difference_in_words(one: Divergence) -> str:
    one, where = _without_id(one)
    what = "compiled something else" if one.what == "compile" else f"have other {one.what}"
    if one.what == ORDER:
        what = f"ran {'its' if len(one.outliers) == 1 else 'their'} graphs in another order"
    elif len(one.outliers) == 1 and one.what != "compile":
        what = f"has other {one.what}"
    if one.tie:
        how = "did not compile the same" if one.what == "compile" else f"have different {one.what}"
        some, rest = ("one", "the other") if len(one.outliers) == 2 else ("some", "the others")
        return (
            f"{ranks_in_words(one.outliers)} {how}{where}: {one.found} on {some}, {one.expected} on {rest}."
        )
    ranks = ranks_in_words(one.outliers)
    return f"{ranks} {what} than the other ranks{where}: {one.found}, where the others have {one.expected}."


def _without_id(one: Divergence) -> tuple[Divergence, str]:
    """What differs, and ` in [1/5]` if that is where both sides are."""
    prefix = f"{one.id} "
    if not (one.id and one.found.startswith(prefix) and one.expected.startswith(prefix)):
        return one, ""
    found, expected = (text.removeprefix(prefix) for text in (one.found, one.expected))
    return replace(one, found=found, expected=expected), f" in [{one.id}]"


def _failures_in_words(failures: Sequence[Failure]) -> list[str]:
    """The same failure on several ranks is one line."""
    ranks: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for one in failures:
        at = f" at {place_of(one)}" if one.file else ""
        name = f"{shortened(one.function, LONGEST_NAME)} [{one.id}]" if one.function else f"[{one.id}]"
        ranks[(name, at, one.type, first_line(one.reason))].append(one.rank)
    several = len({rank for each in ranks.values() for rank in each}) > 1
    lines = []
    for (name, at, kind, reason), each in ranks.items():
        where = f"{f' on {lowered(ranks_in_words(each))}' if several else ''}{at}"
        lines.append(f"{name} failed to compile{where}: {kind}{f': {reason}' if reason else ''}.")
    return lines


def anchor(rank: int, compile_id: str, number: int = 0) -> str:
    """`c-0-1/5`: where a page has a compile id; later logs of a rank have a number."""
    return f"c-{rank}-{compile_id or 'process'}{f'~{number + 1}' if number else ''}"


def first_line(text: str) -> str:
    """The first line of a reason, shortened."""
    return shortened(text.strip().split("\n", 1)[0].rstrip(".: "), LONGEST)


# Functions: how often each was compiled, and what that cost.


class Total(Struct):
    """What compilations of all ranks have in common."""

    ranks: Annotated[set[int], Unit.RANKS, Shown(drop=2)] = field(default_factory=set)
    time_ns: Nanoseconds = 0
    ids: Annotated[dict[str, int], Doc("The first rank with each compile id."), Shown("compile ids")] = field(
        default_factory=dict
    )

    def add(self, one: Compiled | GraphBreak, time_ns: int | None) -> None:
        """Adds a compilation, or a part of one."""
        self.ranks.add(one.rank)
        self.ids.setdefault(one.id, one.rank)
        self.time_ns += time_ns or 0


class FunctionCost(Total):
    """A function on all ranks."""

    function: Annotated[str, Doc("Its name, and the number that torch gives it."), Shown(longest=60)] = ""
    file: Annotated[str, Doc("Where it is defined: `train.py:17`."), Shown("defined at", drop=4)] = ""
    called_at: Annotated[str, Shown(drop=1)] = ""
    compiled: int = 0
    recompiled: int = 0
    breaks: Annotated[int, Shown(drop=3)] = 0
    failed: int = 0
    runtime_ns: Annotated[
        Nanoseconds | None, Doc("How long its compiled code ran; null without a profile."), Shown("ran")
    ] = None
    runs: int = 0


def names_of_functions(report: CompileReport) -> list[tuple[str, str]]:
    """For each compilation the number of its function and its name: ranks can have other functions with a number."""
    names: dict[tuple[int, str], str] = {}
    frames = [one.id.rpartition("/")[0] for one in report.compiles]
    for frame, one in zip(frames, report.compiles, strict=True):
        names[one.rank, frame] = names.get((one.rank, frame)) or one.function
    on_any = {frame: name for (_, frame), name in names.items() if name}
    return [
        (frame, names[one.rank, frame] or on_any.get(frame, ""))
        for frame, one in zip(frames, report.compiles, strict=True)
    ]


def label_of(frame: str, name: str) -> str:
    """`step [0]`: a function with its number."""
    return " ".join(filter(None, (name, f"[{frame}]" if frame else ""))) or "unknown"


def functions_of(report: CompileReport) -> list[FunctionCost]:
    """The functions, the most costly first."""
    functions: dict[tuple[str, str], FunctionCost] = {}
    for one, key in zip(report.compiles, names_of_functions(report), strict=True):
        found = functions.setdefault(key, FunctionCost(function=label_of(*key)))
        found.add(one, one.duration_ns)
        found.file = found.file or place_of(one)
        found.called_at = found.called_at or one.called_at
        found.compiled += not one.backward
        found.recompiled += bool(one.recompile_of)
        found.failed += one.status is Status.ERROR
        if one.runtime_ns is not None:
            found.runtime_ns = (found.runtime_ns or 0) + one.runtime_ns
            found.runs += 0 if one.backward else one.runs or 0
    keys = zip(((one.rank, one.id) for one in report.compiles), names_of_functions(report), strict=True)
    key_of = dict(keys)
    for broken in report.graph_breaks:
        if (broken.rank, broken.id) in key_of:
            functions[key_of[broken.rank, broken.id]].breaks += broken.count
    return sorted(functions.values(), key=lambda one: -one.time_ns)


def unamortised(functions: Sequence[FunctionCost]) -> list[str]:
    """A line for each function that took longer to compile than its code then ran, in the profiled time."""
    lines = []
    for one in functions:
        if one.runtime_ns is None or not WORTH_SAYING_NS <= one.time_ns > one.runtime_ns:
            continue
        took = f"{one.function} took {duration(one.time_ns)} to compile"
        if not one.runtime_ns:
            lines.append(f"{took}, and did not run in the profiled time.")
            continue
        ran = duration(one.runtime_ns)
        if not one.runs:
            lines.append(f"{took}, and its code ran {ran} in the profiled time.")
            continue
        as_many, runs = number(one.time_ns * one.runs // one.runtime_ns), counted(one.runs, "run")
        lines.append(
            f"{took}, as long as {as_many} of its runs take: {runs} in the profiled time took {ran}."
        )
    return lines


# Recompilations by the guard that failed, graph breaks by reason.


class Reason(Total):
    """Why something happened: how often, and at what cost."""

    reason: Annotated[str, Shown(longest=100)] = ""
    line: Annotated[
        str, Doc("Of a guard the line that it is about, else that of the function."), Shown("at")
    ] = ""
    function: Annotated[str, Doc("What was compiled again."), Shown(longest=60)] = ""
    times: int = 0


def guards_of(compiles: Sequence[Compiled]) -> list[Reason]:
    """Guards that failed, the most costly first."""
    reasons: dict[tuple[str, str], Reason] = {}
    sizes: dict[tuple[str, str], set[str]] = defaultdict(set)
    for one in compiles:
        if one.recompile_of:
            reason, function = first_line(one.reason), one.function or f"[{one.id.rpartition('/')[0]}]"
            key = (lasting(SIZES.sub("", reason)), function)
            sizes[key].add(reason)
            found = reasons.setdefault(key, Reason(reason=reason, function=function))
            found.times += 1
            found.line = found.line or one.guard_at or place_of(one)
            found.add(one, one.duration_ns)
    for key, found in reasons.items():
        if len(sizes[key]) > 1:
            found.reason = f"{key[0]} ({number(len(sizes[key]))} different ones)"
    return sorted(reasons.values(), key=lambda one: -one.time_ns)


def place_of(one: Compiled | GraphBreak | Failure | FunctionTime) -> str:
    """`train.py:7`; empty if unknown."""
    return f"{one.file.rsplit('/', 1)[-1]}:{one.line}" if one.file else ""


def breaks_of(report: CompileReport) -> list[Reason]:
    """Graph breaks by reason and line, the most costly first."""
    reasons: dict[tuple[str, str], Reason] = {}
    for one in report.graph_breaks:
        key = cause(one.reason), place_of(one)
        found = reasons.setdefault(key, Reason(reason=key[0], line=key[1]))
        found.add(one, one.cost_ns)
        found.times += one.count
    return sorted(reasons.values(), key=lambda one: (-one.time_ns, -one.times))


def cause(reason: str) -> str:
    """The first line that is not about where it was found."""
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    found = next((line for line in lines if not line.startswith("Encountered graph break")), reason)
    explained = next((line for line in lines if line.startswith("Explanation: ")), "")
    return shortened(explained.removeprefix("Explanation: ") or found, LONGEST)


# Caches.


def caches_in_words(report: CompileReport) -> list[str]:
    """`fx_graph_cache: 3 hit, 1 miss.`"""
    counts = Counter((one.cache, one.state) for one in report.caches)
    lines = []
    for cache in sorted({one.cache for one in report.caches}):
        states = [
            f"{number(counts[cache, state])} {state}"
            for state in ("hit", "miss", "bypass")
            if counts[cache, state]
        ]
        lines.append(f"{cache}: {', '.join(states)}.")
    return lines
