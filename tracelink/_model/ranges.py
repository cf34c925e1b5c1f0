"""Numbers (0-7,64) and Spans of time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise

import numpy as np
from msgspec import Struct

from tracelink._model.columns import Bools, Int64s
from tracelink._model.errors import UsageError

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
