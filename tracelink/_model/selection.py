"""What of a job a user selects: ranks, a time window, steps and kinds of events; and what of it a drawing shows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from tracelink._model.columns import SECOND, Int64s
from tracelink._model.errors import UsageError, choices
from tracelink._model.events import EventKind

if TYPE_CHECKING:
    from tracelink._model.graph import EventGraph


from collections.abc import Iterator
from itertools import chain, pairwise

from tracelink._model.columns import Bools

# Whole numbers as a user lists them: `0-7,64`.


RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?", re.ASCII)


class Numbers(Struct, frozen=True):
    """Numbers from the first to the last of each range; the ranges are sorted and do not touch."""

    ranges: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, numbers: Iterable[int]) -> Numbers:
        """These numbers."""
        return cls._joined([(number, number) for number in numbers])

    @classmethod
    def parse(cls, text: str, option: str) -> Numbers:
        """The numbers that the user gave to `option`."""
        ranges = []
        for part in text.split(","):
            match = RANGE.fullmatch(part.strip())
            if not match:
                raise UsageError(
                    f"{option}: {part.strip()!r} is not a number or a range of numbers",
                    advice=f"Write, for example, {example(option, '0-7,64')}",
                )
            first, last = int(match[1]), int(match[2] or match[1])
            if last < first:
                raise UsageError(
                    f"{option}: {part.strip()!r} runs backwards", advice=f"Write {last}-{first}."
                )
            ranges.append((first, last))
        return cls._joined(ranges)

    @classmethod
    def _joined(cls, ranges: Iterable[tuple[int, int]]) -> Numbers:
        joined: list[tuple[int, int]] = []
        for first, last in sorted(ranges):
            if joined and first <= joined[-1][1] + 1:
                joined[-1] = joined[-1][0], max(joined[-1][1], last)
            else:
                joined.append((first, last))
        return cls(tuple(joined))

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and any(first <= number <= last for first, last in self.ranges)

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(range(first, last + 1) for first, last in self.ranges)

    def __str__(self) -> str:
        return ", ".join(f"{first}-{last}" if last > first else f"{first}" for first, last in self.ranges)

    def called(self, thing: str) -> str:
        """Step 3, or steps 3-5."""
        return (
            f"{thing} {self}" if len(self.ranges) == 1 and len(set(*self.ranges)) == 1 else f"{thing}s {self}"
        )

    def mark(self, numbers: Int64s) -> Bools:
        """Which of these are among the numbers."""
        marked = np.zeros(len(numbers), np.bool_)
        for first, last in self.ranges:
            marked |= (numbers >= first) & (numbers <= last)
        return marked

    def without(self, present: Iterable[int]) -> Numbers:
        """The numbers that are not among `present`."""
        gaps = []
        for first, last in self.ranges:
            inside = sorted(number for number in set(present) if first <= number <= last)
            edges = pairwise([first - 1, *inside, last + 1])
            gaps += [(before + 1, after - 1) for before, after in edges if after - before > 1]
        return Numbers(tuple(gaps))


def example(option: str, value: str) -> str:
    """A value of an option, as it is written on the command line or, without dashes, in Python."""
    return f"{option} {value}" if option.startswith("-") else f'{option}="{value}"'


# Stretches of time, and what lies in them.


EARLIEST = int(np.iinfo(np.int64).min)
LATEST = int(np.iinfo(np.int64).max)


class Spans(Struct, frozen=True):
    """Half-open intervals that are sorted and do not touch: the start is included, the end is not."""

    starts: Int64s
    ends: Int64s

    @classmethod
    def of(cls, starts: Int64s, ends: Int64s) -> Spans:
        """What these stretches cover together."""
        some = starts < ends
        starts, ends = starts[some], ends[some]
        order = np.argsort(starts, kind="stable")
        starts, reached = starts[order], np.maximum.accumulate(ends[order])
        first = np.append(True, starts[1:] > reached[:-1])[: len(starts)]
        last = np.append(first[1:], True)[: len(starts)]
        return cls(starts[first], reached[last])

    @classmethod
    def between(cls, first: int | None, last: int | None) -> Spans:
        """One stretch; None where it has no bound."""
        lower = EARLIEST if first is None else first
        upper = LATEST if last is None else last
        return cls.of(np.array([lower], np.int64), np.array([upper], np.int64))

    def __len__(self) -> int:
        return len(self.starts)

    def within(self, first: int | None, last: int | None) -> Spans:
        """The parts of the stretches that lie between these times."""
        lower = EARLIEST if first is None else first
        upper = LATEST if last is None else last
        return Spans.of(np.maximum(self.starts, lower), np.minimum(self.ends, upper))

    def overlap(self, start: Int64s, end: Int64s) -> Bools:
        """Which of the events from `start` to `end` lie in the stretches, with any part of them.

        An event without length lies where it starts.
        """
        following = np.searchsorted(self.ends, start, side="right")
        begins = np.append(self.starts, LATEST)[following]
        return (following < len(self)) & ((begins < end) | (begins <= start))


UNITS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "min": 60 * 10**9,
}
MOMENT = re.compile(rf"(\d[\d,]{{0,19}}(?:\.\d+)?)\s*({'|'.join(UNITS)})|0", re.ASCII)
"""A time after the first event, as every command prints it: `28 us`, `0.028 ms`, `1,234.567 s`."""

DATE = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?: ?UTC|Z)?", re.ASCII)
"""A time in UTC, as every command prints it: `2025-03-01 08:06:00.000014 UTC`."""

NANOSECONDS = re.compile(r"\d{18,19}", re.ASCII)
"""A time in ns since 1970, as JSON and CSV have it."""

COLLECTIVES = "collectives"
COUNTERS = "counters"

KINDS: Mapping[str, Sequence[EventKind]] = {
    "operators": (EventKind.OPERATOR,),
    "annotations": (EventKind.ANNOTATION, EventKind.GPU_ANNOTATION),
    "python": (EventKind.PYTHON,),
    "runtime": (EventKind.RUNTIME, EventKind.SYNCHRONIZATION),
    "kernels": (EventKind.KERNEL,),
    "copies": (EventKind.MEMCPY, EventKind.MEMSET),
    "gpu": (EventKind.KERNEL, EventKind.MEMCPY, EventKind.MEMSET, EventKind.GPU_ANNOTATION),
    COLLECTIVES: (),
    "memory": (EventKind.MEMORY,),
    COUNTERS: (),
    "nodes": (EventKind.NODE,),
    "records": (EventKind.RECORD,),
    "compilations": (EventKind.COMPILATION,),
    "other": (EventKind.OVERHEAD, EventKind.SPAN, EventKind.INSTANT, EventKind.OTHER),
}
"""The words that choose events by their kind. Collectives are whatever takes part in one, of any kind."""


class Moment(Struct, frozen=True):
    """A time in ns after the first event of the job, or since 1970."""

    ns: int
    since_1970: bool = False

    @classmethod
    def parse(cls, text: str, option: str) -> Moment:
        """The time that the user gave to `option`."""
        if match := MOMENT.fullmatch(text):
            return cls(int(Decimal(match[1].replace(",", "")) * UNITS[match[2]]) if match[1] else 0)
        if NANOSECONDS.fullmatch(text):
            return cls(int(text), since_1970=True)
        if match := DATE.fullmatch(text):
            with suppress(ValueError):
                seconds = datetime.fromisoformat(f"{match[1]} {match[2]}+00:00").timestamp()
                return cls(int(seconds) * SECOND + int((match[3] or "0").ljust(9, "0")), since_1970=True)
        raise UsageError(
            f"{option}: {text!r} is not a time after the first event, or a time in UTC",
            advice=f"Write a number and a unit ({', '.join(UNITS)}), or a time such as 2025-03-01 08:06:00.5",
        )


class Window(Struct, frozen=True):
    """A stretch of time; None where it has no bound."""

    first: Moment | None = None
    last: Moment | None = None

    @classmethod
    def parse(cls, text: str, option: str) -> Window:
        """The window that the user gave to `option`, such as `2.5s..3.1s`, `2.5s..` or `..800ms`."""
        first, separator, last = (part.strip() for part in text.partition(".."))
        if not separator or not (first or last):
            raise UsageError(
                f"{option}: {text!r} is not a time range",
                advice=f"Write, for example, {example(option, '2.5s..3.1s')}, 2.5s.. or ..3.1s",
            )
        window = cls(
            Moment.parse(first, option) if first else None, Moment.parse(last, option) if last else None
        )
        start, end = window.first, window.last
        if start and end and start.since_1970 == end.since_1970 and start.ns >= end.ns:
            raise UsageError(
                f"{option}: {text!r} ends before it begins", advice="Give the earlier time first."
            )
        return window

    def after(self, origin_ns: int) -> tuple[int | None, int | None]:
        """Its bounds as times since 1970, where the first event of the job is at `origin_ns`."""
        first, last = (
            None if moment is None else moment.ns + (0 if moment.since_1970 else origin_ns)
            for moment in (self.first, self.last)
        )
        return first, last


@dataclass(frozen=True, slots=True, init=False)
class Selection:
    """The selected part of a job; None selects everything."""

    ranks: Numbers | None
    window: Window | None
    steps: Numbers | None
    only: frozenset[str] | None
    """Words of `KINDS`."""

    def __init__(
        self,
        ranks: Numbers | str | Iterable[int] | None = None,
        window: Window | str | None = None,
        steps: Numbers | str | Iterable[int] | None = None,
        only: str | Iterable[str] | None = None,
    ) -> None:
        """A selection, of values as the command line takes them, or of numbers and words.

        Args:
            ranks: Ranks to keep, such as "0-7,64" or [0, 1].
            window: A time window, such as "2.5s..3.1s", "800ms.." or "..2min" after the first event of the job, or
                "2025-03-01 08:06:00..2025-03-01 08:06:02.5" in UTC.
            steps: Training steps to keep, such as "3-5,7" or range(3, 6).
            only: Kinds of events to keep, such as "kernels,collectives"; the keys of `KINDS`.

        Raises:
            UsageError: An argument is malformed.
        """
        values = (
            _numbers(ranks, "ranks"),
            _window(window),
            _numbers(steps, "steps"),
            None if only is None else words(only, "only"),
        )
        for name, value in zip(("ranks", "window", "steps", "only"), values, strict=True):
            object.__setattr__(self, name, value)

    @property
    def cuts(self) -> bool:
        """Whether it leaves out events of the ranks that it keeps."""
        return not (self.window is None and self.steps is None and self.only is None)

    def keeps(self, word: str) -> bool:
        """Whether what `word` stands for is wanted."""
        return self.only is None or word in self.only


def _numbers(value: Numbers | str | Iterable[int] | None, name: str) -> Numbers | None:
    if value is None or isinstance(value, Numbers):
        return value
    if isinstance(value, str):
        return Numbers.parse(value, name)
    numbers = [value] if isinstance(value, int) else list(value) if isinstance(value, Iterable) else [value]
    for number in numbers:
        if not isinstance(number, int | np.integer) or isinstance(number, bool) or number < 0:
            raise UsageError(
                f"{name}: {number!r} is not a number from 0", advice=f"Write, for example, {name}=[0, 1]."
            )
    return Numbers.of(map(int, numbers))


def _window(value: Window | str | None) -> Window | None:
    if value is None or isinstance(value, Window):
        return value
    if not isinstance(value, str):
        raise UsageError(
            f"window: {value!r} is not a time range", advice='Write, for example, window="2.5s..3.1s".'
        )
    return Window.parse(value, "window")


def words(value: str | Iterable[str], option: str) -> frozenset[str]:
    """The kinds of events that the user gave to `option`, such as `kernels,collectives`."""
    named = [word.strip() for word in value.split(",")] if isinstance(value, str) else list(value)
    for word in named:
        if word not in KINDS:
            raise UsageError(
                f"{option}: there is no kind of events {word!r}", advice=choices(str(word), KINDS)
            )
    return frozenset(named)


class View(Struct, frozen=True):
    """Nesting down to a depth, a stretch of time, some ranks, no more than so many nodes.

    None stands for all there is; for `limit` it stands for what the drawing can show.
    """

    depth: int | None = None
    window: Window | None = None
    ranks: Numbers | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.depth is not None and self.depth < 1:
            raise UsageError(f"--depth: {self.depth} levels", advice="Give at least 1.")
        if self.limit is not None and self.limit < 1:
            raise UsageError(f"--limit: {self.limit} nodes", advice="Give at least 1.")


# Training steps: annotations with a step number.

STEP_NAMES = (
    re.compile(r"ProfilerStep\s*#\s*(\d{1,18})"),
    re.compile(
        r"[#\s]*(?:train(?:ing)?[\s_]*)?(?:step|iter(?:ation)?)[\s_:#=]*(\d{1,18})[#\s]*", re.IGNORECASE
    ),
)
"""Names of steps, most reliable first: on one rank only names of the first matching pattern count."""


class Steps(Struct, frozen=True):
    """One row for each annotation of a step."""

    number: Int64s
    start: Int64s
    end: Int64s

    @property
    def numbers(self) -> Numbers:
        """The step numbers that occur."""
        return Numbers.of(np.unique(self.number).tolist())

    def spans(self, wanted: Numbers) -> Spans:
        """The time spans of the selected steps."""
        chosen = wanted.mark(self.number)
        return Spans.of(self.start[chosen], self.end[chosen])


def steps_of(graph: EventGraph) -> Steps:
    """The steps of one rank; a step without a recorded end never ends."""
    events = graph.events
    step_of_name = _step_of_name(graph)
    # profiles of before 2022 list annotations among the operators
    marks = events.of_kind(EventKind.ANNOTATION, EventKind.OPERATOR) & events.timed
    rows = np.flatnonzero(marks & (step_of_name[events.name] >= 0))
    end = np.where(events.duration[rows] < 0, LATEST, events.end[rows])
    return Steps(step_of_name[events.name[rows]], events.start[rows], end)


def _step_of_name(graph: EventGraph) -> Int64s:
    """For each string of the table the number of the step that it names, or -1."""
    used = np.zeros(len(graph.strings) + 1, np.bool_)
    used[graph.events.name[graph.events.of_kind(EventKind.ANNOTATION, EventKind.OPERATOR)]] = True
    names = [(code, graph.strings[code]) for code in np.flatnonzero(used).tolist()]
    result = np.full(len(used), -1, np.int64)
    for pattern in STEP_NAMES:
        found = [(code, match) for code, name in names if (match := pattern.fullmatch(name))]
        for code, match in found:
            result[code] = int(match[1])
        if found:
            break
    return result
