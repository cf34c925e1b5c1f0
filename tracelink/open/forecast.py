"""What is about to be written; what would fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tracelink import plugins
from tracelink.engine import Engine
from tracelink.errors import Finding
from tracelink.io.targets import GZIP_SUFFIX, STDOUT
from tracelink.model.job import Job
from tracelink.open.offer import OUTSIDE, Kind, heap_of, heavy, limit_passed, need
from tracelink.plugins import Forecast, Forecasting, Writer
from tracelink.text import about

# What a browser would take in place of a timeline that is too large for it.


KINDS = {"perfetto-json": Kind.JSON, "perfetto": Kind.NATIVE}
"""What the formats are that the UI shows."""

SMALLEST = "perfetto"
SMALLEST_SUFFIX = ".pftrace"

ALL, LINK, NONE = "all", "link", "none"
MARGIN = 0.9
"""What is offered takes at most so much of what a browser has: its size is a forecast, too."""

LEAST_SHARE = 5
"""Percent of a job that are worth to be looked at, and steps of what is offered."""


@dataclass(frozen=True, slots=True)
class Order:
    """How a job is to be written, and in which words that was, or could be, said."""

    format: str
    path: str
    options: Mapping[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()

    @property
    def bare(self) -> bool:
        """Whether most arguments are left out."""
        return self.options.get("args", ALL) != ALL

    def heap(self, unpacked: int) -> int:
        """The memory that the UI needs for it; 0 where it is nothing that the UI shows."""
        kind = KINDS.get(self.format)
        return heap_of(kind, unpacked, bare=self.bare) if kind else 0

    def smallest(self) -> Iterator[Order]:
        """The same in the smallest format, if it is not that."""
        if self.format == SMALLEST:
            return
        stem = self._stem()
        word = f"-o {stem}{SMALLEST_SUFFIX}" if stem else f"--to {SMALLEST}"
        yield replace(self, format=SMALLEST, words=(*self.words, word))

    def with_args(self, args: str) -> Iterator[Order]:
        """The same with fewer arguments, if they are more."""
        known = (ALL, LINK, NONE)
        if known.index(self.options.get("args", ALL)) < known.index(args):
            yield self._with("args", args, f"--args {args}")

    def without_python(self) -> Iterator[Order]:
        """The same without calls of Python functions, if they are not left out."""
        if self.options.get("python", "yes") == "yes":
            yield self._with("python", "no", "--no-python")

    def _with(self, name: str, value: str, word: str) -> Order:
        return replace(self, options={**self.options, name: value}, words=(*self.words, word))

    def _stem(self) -> str:
        """The output's name without what says the format; empty where it has none."""
        suffixes = plugins.writer_spec(self.format).suffixes
        fitting = [suffix for suffix in suffixes if self.path.endswith(suffix)]
        return self.path.removesuffix(max(fitting, key=len)) if fitting and self.path != STDOUT else ""


def too_heavy_to_be(job: Job, engine: Engine, order: Order, unpacked: int) -> list[Finding]:
    """What to know before a timeline is written that is larger than what some browsers take, and what they take."""
    heap = order.heap(unpacked)
    limit = limit_passed(heap)
    if not limit:
        return []
    room = int(MARGIN * limit)
    offers = [*_lighter(job, engine, order, room), *_cuts(len(job.ranks), room / heap)]
    fits = f" What would fit, with `tracelink merge`: {'; '.join(offers)}." if offers else ""
    return [heavy(f"{need(heap)}.{fits} {OUTSIDE}", order.path)]


def _lighter(job: Job, engine: Engine, order: Order, room: int) -> list[str]:
    """Other ways to write all of it that would fit: those that change one thing, else the first that changes more."""
    single = [_first_fitting(job, engine, ways, room) for ways in _single(order)]
    offers = [offer for offer in single if offer]
    return offers or [offer for offer in [_first_fitting(job, engine, _several(order), room)] if offer]


def _first_fitting(job: Job, engine: Engine, ways: Iterable[Order], room: int) -> str:
    for way in ways:
        forecast = _forecast(job, engine, way)
        if way.heap(forecast.unpacked) <= room:
            return f"{' '.join(way.words)} (about {about(forecast.bytes)})"
    return ""


def _single(order: Order) -> Sequence[Iterable[Order]]:
    """Ways that change one thing; those that are alike stand together, what loses least first."""
    return [order.smallest(), [*order.with_args(LINK), *order.with_args(NONE)], order.without_python()]


def _several(order: Order) -> Sequence[Order]:
    """Ways that change several things, what loses least first."""
    small = next(order.smallest(), order)
    ways = [
        way
        for start in (small, *small.without_python())
        for way in (start, *start.with_args(LINK), *start.with_args(NONE))
    ]
    return [way for way in ways if len(way.words) > 1]


def _forecast(job: Job, engine: Engine, order: Order) -> Forecast:
    options = {name: value for name, value in order.options.items() if name != "compress"}
    writer = plugins.writer(order.format, options)
    assert isinstance(writer, Forecasting)
    return writer.forecast(job, engine, compressed=False)


def _cuts(ranks: int, share: float) -> Iterator[str]:
    """How much of the job would fit as it is."""
    if 1 <= (few := int(ranks * share)) < ranks:
        yield f"--ranks with {few} of the {ranks} ranks"
    if (percent := int(100 * share) // LEAST_SHARE * LEAST_SHARE) > 0:
        yield f"--steps or --window with {percent} % of the time"


# What is about to be written: said where it is large, and warned of where it is too large to be looked at.


MAY_BE_HEAVY = 1_000_000
"""With so many events or more an output may be too large for a browser."""


@dataclass(frozen=True, slots=True)
class Prospect:
    """An output to be."""

    path: str
    forecast: Forecast
    findings: Sequence[Finding] = ()
    """What to know before it is written."""


Foresee = Callable[[Prospect], None]


def foreseen(
    job: Job, writer: Writer, path: str, options: Mapping[str, str], engine: Engine, foresee: Foresee | None
) -> Sequence[Finding]:
    """What to know before a job is written, which `foresee` is told; nothing where that is not worth its time."""
    if not isinstance(writer, Forecasting) or (job.events < MAY_BE_HEAVY and not foresee):
        return ()
    forecast = writer.forecast(job, engine, compressed=path.endswith(GZIP_SUFFIX))
    order = Order(writer.name, path, options)
    findings = too_heavy_to_be(job, engine, order, forecast.unpacked)
    if foresee:
        foresee(Prospect(path, forecast, findings))
    return findings
