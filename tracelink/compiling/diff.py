"""Two runs compared: recompilations, graph breaks and failures that are new or gone, and time by function."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from tracelink.compiling.model import Compiled, CompileReport, GraphBreak, lasting
from tracelink.compiling.summary import cause
from tracelink.model.columns import SECOND

RESUMED = re.compile(r"(?<=_at)_\d+$")
SLOWER_BY, SLOWER_THAN = SECOND, 1.2
"""A function compiles slower if it takes longer by this time and this factor: less is noise."""


class Change(Struct, frozen=True):
    """Something that happens in one run, and not or less often in the other one."""

    function: str
    """Empty for a difference between ranks."""
    file: str
    line: int | None
    """Of the definition of the function; of a graph break its own, in the run after if it is there."""
    reason: str
    before: int
    """How often, on the rank where it happens most."""
    after: int
    before_ns: int = 0
    """What that cost, on the rank where it cost most."""
    after_ns: int = 0

    @property
    def is_worse(self) -> bool:
        """Whether it is new, or happens more often."""
        return self.after > self.before


class FunctionTime(Struct, frozen=True):
    """A function in both runs, by its name and the place of its definition."""

    function: str
    file: str
    """In the run after, if it is there."""
    line: int | None
    before: int
    """Compilations on the rank with most."""
    after: int
    before_ns: int
    """Time of all its compilations, on the rank where it took longest."""
    after_ns: int

    @property
    def is_worse(self) -> bool:
        """Whether it compiles slower by more than noise."""
        return self.after_ns > max(self.before_ns * SLOWER_THAN, self.before_ns + SLOWER_BY)


class CompileDiff(Struct, frozen=True):
    """What changed between two runs; tables have only what differs, except that of functions."""

    recompiles: Sequence[Change]
    graph_breaks: Sequence[Change]
    failures: Sequence[Change]
    open: Sequence[Change]
    divergences: Sequence[Change]
    functions: Sequence[FunctionTime]
    """Those with the largest difference first."""
    before_ns: int
    """Time of all compilations, on the rank where it took longest."""
    after_ns: int

    @property
    def changes(self) -> Sequence[Change]:
        """All changes except those of time."""
        return [*self.failures, *self.open, *self.divergences, *self.graph_breaks, *self.recompiles]

    @property
    def is_worse(self) -> bool:
        """Whether something is new or more frequent, or a function compiles slower."""
        return any(one.is_worse for one in self.changes) or any(one.is_worse for one in self.functions)


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
    return CompileDiff(
        recompiles=_changes(old.recompiles(), new.recompiles()),
        graph_breaks=_graph_breaks(old, new),
        failures=_changes(old.failures(), new.failures()),
        open=_changes(old.open(), new.open()),
        divergences=_changes(old.divergences(), new.divergences()),
        functions=_functions(old, new),
        before_ns=_longest(before.compiles),
        after_ns=_longest(after.compiles),
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
        Change(*key, count, new_count, cost, new_cost)
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
        FunctionTime(*key[:3], count, new_count, cost, new_cost)
        for key in dict.fromkeys([*new, *old])
        for (count, cost), (new_count, new_cost) in [(old.get(key, (0, 0)), new.get(key, (0, 0)))]
    ]
    return sorted(times, key=lambda one: -abs(one.after_ns - one.before_ns))
