"""Two runs compared: recompilations, graph breaks and failures that are new or gone, and time by function."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated

from msgspec.structs import asdict, replace

from tracelink._compile.model import (
    Change,
    Compiled,
    CompileDiff,
    CompileReport,
    FunctionTime,
    GraphBreak,
    lasting,
)
from tracelink._compile.summary import cause, place_of
from tracelink._model.columns import SECOND
from tracelink._model.fields import Shown, SignedNanoseconds
from tracelink._model.text import counted, duration, number
from tracelink._show.document import Section, Table, Tone

RESUMED = re.compile(r"(?<=_at)_\d+$")
SLOWER_BY, SLOWER_THAN = SECOND, 1.2
"""A function compiles slower if it takes longer by this time and this factor: less is noise."""


MOST_CHANGES = 12
"""Rows of a table without -v."""
TONES = {"new": Tone.PROBLEM, "more": Tone.PROBLEM, "gone": Tone.GOOD, "fewer": Tone.GOOD}

Definition = tuple[str, str, int | None]
"""The name of a function, and the file and the line of its definition."""
Thing = tuple[str, str, int | None, str]
"""What happened: function, file, line and reason."""
Happened = tuple[int, Thing, int, int]
"""On which rank, what, how often, and at what cost."""


def compared(before: CompileReport, after: CompileReport) -> CompileDiff:
    """What changed from one run to the other.

    Runs can have different numbers of ranks: counts and times are those of the rank with most. Ids do not matter; a
    function that moved within its file is the same one.
    """
    sides = _Side(before), _Side(after)
    _align(*sides)
    old, new = sides
    changes = {
        "recompiles": _changes(old.recompiles(), new.recompiles()),
        "graph_breaks": _graph_breaks(old, new),
        "failures": _changes(old.failures(), new.failures()),
        "open": _changes(old.open(), new.open()),
        "divergences": _changes(old.divergences(), new.divergences()),
    }
    functions = _functions(old, new)
    happens_more = any(one.is_worse for rows in changes.values() for one in rows)
    is_worse = happens_more or any(one.is_worse for one in functions)
    return CompileDiff(
        is_worse, _longest(before.compiles), _longest(after.compiles), **changes, functions=functions
    )


def _graph_breaks(old: _Side, new: _Side) -> list[Change]:
    lines = {**old.lines_of_breaks(), **new.lines_of_breaks()}
    found = []
    for one in _changes(old.graph_breaks(), new.graph_breaks()):
        file, line = lines[one.function, one.file, one.line, one.reason]
        found.append(replace(one, file=file, line=line))
    return found


def _longest(compiles: Iterable[Compiled]) -> int:
    times: Counter[int] = Counter()
    for one in compiles:
        times[one.rank] += one.duration_ns or 0
    return max(times.values(), default=0)


class _Side:
    """One run, with the function of each compile id."""

    def __init__(self, report: CompileReport) -> None:
        self.report = report
        self.moved: dict[Definition, Definition] = {}
        """Definitions that the other run has at another line."""
        self._by_frame: dict[tuple[int, str], Definition] = {}
        self._of: list[Definition] = []
        for one in report.compiles:
            frame = (one.rank, one.id.rpartition("/")[0])
            if one.file:
                self._by_frame[frame] = (one.function, one.file.rpartition("/")[2], one.line)
            self._of.append(self._by_frame.get(frame, (one.function, "", None)))

    def definitions(self) -> set[Definition]:
        """All functions."""
        return set(self._of)

    def _at(self, rank: int, id_: str, function: str) -> Definition:
        found = self._by_frame.get((rank, id_.rpartition("/")[0]), (function, "", None))
        return self.moved.get(found, found)

    def compiled(self) -> Iterable[tuple[Definition, Compiled]]:
        """Each compilation, and its function."""
        for definition, one in zip(self._of, self.report.compiles, strict=True):
            yield self.moved.get(definition, definition), one

    def recompiles(self) -> Iterable[Happened]:
        """By function and guard."""
        for definition, one in self.compiled():
            if one.recompile_of:
                yield one.rank, (*definition, _lasting(one.reason)), 1, one.duration_ns or 0

    def graph_breaks(self) -> Iterable[Happened]:
        """By function and reason: lines move."""
        for one in self.report.graph_breaks:
            yield one.rank, self._thing_of(one), one.count, one.cost_ns

    def lines_of_breaks(self) -> Mapping[Thing, tuple[str, int | None]]:
        """The first line of each."""
        return {
            self._thing_of(one): (one.file.rpartition("/")[2], one.line)
            for one in reversed(self.report.graph_breaks)
        }

    def _thing_of(self, one: GraphBreak) -> Thing:
        return (*self._at(one.rank, one.id, ""), cause(lasting(one.reason)))

    def failures(self) -> Iterable[Happened]:
        """By function, type and reason."""
        for one in self.report.failures:
            at = self._at(one.rank, one.id, one.function)
            yield one.rank, (*at, _lasting(f"{one.type}: {one.reason}")), 1, 0

    def open(self) -> Iterable[Happened]:
        """By function and phase."""
        for one in self.report.open:
            yield one.rank, (*self._at(one.rank, one.id, one.function), one.name), 1, one.for_ns

    def divergences(self) -> Iterable[Happened]:
        """By what differs, on all ranks that differ."""
        for one in self.report.divergences:
            yield 0, ("", "", None, one.what), len(one.outliers), 0


def _lasting(reason: str) -> str:
    """The first line of a reason, without what differs in each run."""
    return lasting(reason.strip().partition("\n")[0])


def _align(before: _Side, after: _Side) -> None:
    """Functions that are in one run only, and have the same name and file in both, moved: the k-th is the k-th.

    Of the others those whose name is in both runs once are the same: their file has another name.
    """
    for names_of, once in ((_in_file, False), (_named, True)):
        old, new = before.definitions() - before.moved.keys(), after.definitions()
        new -= set(before.moved.values())
        candidates: dict[tuple[str, ...], tuple[list[Definition], list[Definition]]] = defaultdict(
            lambda: ([], [])
        )
        for side, only in enumerate((old - new, new - old)):
            for definition in sorted(only, key=lambda one: (one[1], one[2] or 0, one[0])):
                candidates[names_of(definition)][side].append(definition)
        for olds, news in candidates.values():
            if not once or len(olds) == len(news) == 1:
                before.moved.update(zip(olds, news, strict=False))


def _in_file(definition: Definition) -> tuple[str, ...]:
    return (*_named(definition), definition[1])


def _named(definition: Definition) -> tuple[str, ...]:
    """The name; that of what runs after a graph break contains the line of the break."""
    return (RESUMED.sub("", definition[0]),)


Total = Mapping[Thing, tuple[int, int]]


def _totals(happened: Iterable[Happened]) -> Total:
    """How often and at what cost each thing happened, on the rank with most."""
    counts: Counter[tuple[int, Thing]] = Counter()
    costs: Counter[tuple[int, Thing]] = Counter()
    for rank, key, count, cost in happened:
        counts[rank, key] += count
        costs[rank, key] += cost
    totals: dict[Thing, tuple[int, int]] = {}
    for (rank, key), count in counts.items():
        most, longest = totals.get(key, (0, 0))
        totals[key] = max(most, count), max(longest, costs[rank, key])
    return totals


def _changes(before: Iterable[Happened], after: Iterable[Happened]) -> list[Change]:
    """What differs: new and more frequent things first, the most costly first."""
    old, new = _totals(before), _totals(after)
    changes = [
        Change(*key[:3], count, new_count, cost, new_cost, new_count > count, key[3])
        for key in dict.fromkeys([*new, *old])
        for (count, cost), (new_count, new_cost) in [(old.get(key, (0, 0)), new.get(key, (0, 0)))]
        if count != new_count
    ]
    return sorted(changes, key=lambda one: (not one.is_worse, -max(one.before_ns, one.after_ns)))


def _functions(before: _Side, after: _Side) -> list[FunctionTime]:
    def totals(side: _Side, counted: Callable[[Compiled], int]) -> Total:
        return _totals(
            (one.rank, (*definition, ""), counted(one), one.duration_ns or 0)
            for definition, one in side.compiled()
        )

    old, new = (totals(side, lambda one: int(not one.backward)) for side in (before, after))
    times = [
        FunctionTime(*key[:3], count, new_count, cost, new_cost, _is_slower(cost, new_cost))
        for key in dict.fromkeys([*new, *old])
        for (count, cost), (new_count, new_cost) in [(old.get(key, (0, 0)), new.get(key, (0, 0)))]
    ]
    return sorted(times, key=lambda one: -abs(one.after_ns - one.before_ns))


def _is_slower(before_ns: int, after_ns: int) -> bool:
    """Whether a function compiles slower by more than noise."""
    return after_ns > max(before_ns * SLOWER_THAN, before_ns + SLOWER_BY)


# For people: what is new or gone, and functions by the difference of their times.


class Changed(Change, frozen=True):
    """A change in words."""

    change: str = ""
    what: str = ""
    at: Annotated[str, Shown(drop=2)] = ""


class Compared(FunctionTime, frozen=True):
    """A function with the difference of its times."""

    at: Annotated[str, Shown("defined at", drop=2)] = ""
    difference_ns: Annotated[SignedNanoseconds, Shown(signed=True)] = 0


def sections_of(diff: CompileDiff) -> list[Section]:
    """The parts of a document on what changed."""
    ordered = sorted(diff.changes, key=lambda item: not item[1].is_worse)
    changes = Table(
        [
            Changed(
                **asdict(one) | {"reason": cause(one.reason)},
                change=_direction(one),
                what=what,
                at=place_of(one),
            )
            for what, one in ordered
        ],
        "New and more frequent first",
        ("change", "what", "function", "at", "reason", "before", "after", "before_ns", "after_ns"),
        brief=MOST_CHANGES,
        thing="change",
        tones=TONES,
        together=("before_ns", "after_ns"),
    )
    functions = Table(
        [
            Compared(**asdict(one), at=place_of(one), difference_ns=one.after_ns - one.before_ns)
            for one in diff.functions
        ],
        "The largest difference first",
        ("function", "at", "before", "after", "before_ns", "after_ns", "difference_ns"),
        {"before": "compiled before"},
        brief=MOST_CHANGES,
        thing="function",
        together=("before_ns", "after_ns", "difference_ns"),
    )
    return [Section("Changes", [changes]), Section("Functions", [functions])]


def _direction(one: Change) -> str:
    if one.is_worse:
        return "more" if one.before else "new"
    return "fewer" if one.after else "gone"


def in_a_sentence(diff: CompileDiff) -> str:
    worse = sum(one.is_worse for _, one in diff.changes)
    slower = sum(one.is_worse for one in diff.functions)
    return (
        f"Compiling took {duration(diff.after_ns)} on the rank with most, before {duration(diff.before_ns)}: "
        f"{number(worse)} new or more frequent, {number(len(diff.changes) - worse)} gone or less frequent, "
        f"{counted(slower, 'function')} slower."
    )


def worse_in_words(diff: CompileDiff) -> list[str]:
    """A line for each thing that is worse in the later run."""
    worse = [_change_in_words(thing, one) for thing, one in diff.changes if one.is_worse]
    slower = (
        f"{one.function or 'A function'}{_defined(one)} compiles in {duration(one.after_ns)}: "
        f"before it took {duration(one.before_ns)}."
        for one in diff.functions
        if one.is_worse
    )
    return [*worse, *slower]


def _change_in_words(thing: str, one: Change) -> str:
    what = f"{thing} of {one.function}" if one.function else thing
    return (
        f"{'More frequent' if one.before else 'New'} {what}{_defined(one)}: {cause(one.reason).rstrip('.')} "
        f"({number(one.before)} before, {number(one.after)} after)."
    )


def _defined(one: Change | FunctionTime) -> str:
    return f" ({place_of(one)})" if one.file else ""
