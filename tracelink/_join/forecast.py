"""What is about to be written: its size, whether Perfetto's UI has memory for it, and smaller ways to write it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct, field
from msgspec.structs import replace

import tracelink.plugins as plugins
from tracelink._io.engine import Engine
from tracelink._io.targets import STDOUT
from tracelink._io.temporary import GZIP_SUFFIX
from tracelink._model.findings import Finding, Severity
from tracelink._model.job import LinkedJob
from tracelink._model.text import about
from tracelink.plugins import Forecast, WriterMethods, isolated

LARGE_JOB = 1_000_000
"""A job of fewer events is small enough for any browser."""


class OutputForecast(Struct, frozen=True):
    """An output that is about to be written."""

    path: str
    forecast: Forecast
    findings: Sequence[Finding] = ()
    """What to know before it is written."""


OnForecast = Callable[[OutputForecast], None]


def forecast_output(
    job: LinkedJob,
    writer: WriterMethods,
    path: str,
    options: Mapping[str, str],
    engine: Engine,
    on_forecast: OnForecast | None,
) -> Sequence[Finding]:
    """Findings on an output that is about to be written; calls `on_forecast` with its size if given."""
    if not plugins.writer_spec(writer.name).timeline or (job.events < LARGE_JOB and not on_forecast):
        return ()
    compressed = path.endswith(GZIP_SUFFIX)
    forecast = isolated(writer.name, "writer", lambda: writer.forecast(job, engine, compressed=compressed))
    plan = OutputPlan(writer.name, path, options)
    findings = memory_findings(job, engine, plan, forecast.unpacked)
    if on_forecast:
        on_forecast(OutputForecast(path, forecast, findings))
    return findings


# The memory that Perfetto's UI needs.


class TraceKind(StrEnum):
    """How a trace is written that the UI shows."""

    JSON = "JSON"
    NATIVE = "native"
    ARCHIVE = "archive"


GIGABYTE = 10**9
MEMORY_PER_BYTE = {TraceKind.JSON: 1.6, TraceKind.NATIVE: 1.2}
"""Bytes of memory that the UI's engine needs for a byte of a trace, as measured on traces of GPU jobs.

It keeps a JSON trace until it has read all of it; of a native trace in order of time it keeps slices and strings.
"""

MEMORY_PER_BYTE_WITHOUT_ARGUMENTS = {TraceKind.JSON: 1.6, TraceKind.NATIVE: 3.6}
"""The same for traces without most arguments, of which slices are a larger part."""

MAX_MEMORY = 16 * GIGABYTE
"""The limit of WebAssembly with 64-bit addresses."""

MAX_MEMORY_32_BIT = 4 * GIGABYTE

REASON = "larger_than_a_browser_takes"

WITHOUT_BROWSER = "Or load it outside of the browser: trace_processor_shell server http FILE"


def ui_memory(kind: TraceKind, unpacked: int, *, bare: bool = False) -> int:
    """The memory that the UI needs for a trace of this size; `bare`: without most arguments."""
    return int(unpacked * (MEMORY_PER_BYTE_WITHOUT_ARGUMENTS if bare else MEMORY_PER_BYTE).get(kind, 0))


def exceeded_limit(memory: int) -> int:
    """The highest memory limit of browsers that is exceeded; 0 if none is."""
    return max((limit for limit in (MAX_MEMORY, MAX_MEMORY_32_BIT) if memory > limit), default=0)


def memory_finding(memory: int, rest: str, path: str) -> Finding:
    """A finding on a trace that needs more memory than some browsers have; `rest` says what to do."""
    needed = f"Perfetto's UI needs about {about(memory)} of memory for this file"
    limit = (
        f", and can have {MAX_MEMORY // GIGABYTE} GB"
        if exceeded_limit(memory) == MAX_MEMORY
        else f"; browsers without 64-bit WebAssembly stop at {MAX_MEMORY_32_BIT // GIGABYTE} GB"
    )
    return Finding(Severity.WARNING, REASON, f"{needed}{limit}.{rest}", source=path)


# Smaller ways to write a job that would fit.


ALL, LINK, NONE = "all", "link", "none"
MARGIN = 0.9
"""A suggested output needs at most this part of the limit, because its size is a forecast too."""

PERCENT_STEP = 5
"""Suggested parts of a job are multiples of this."""


class OutputPlan(Struct, frozen=True):
    """A way to write a job, and the command-line arguments that would change the requested way to it."""

    format: str
    path: str
    options: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()

    @property
    def bare(self) -> bool:
        """Whether most arguments of events are not written."""
        return self.options.get("args", ALL) != ALL

    def memory(self, unpacked: int) -> int:
        """The memory that the UI needs for it; 0 if the UI does not show the format."""
        kind = plugins.writer_spec(self.format).timeline
        return ui_memory(TraceKind(kind), unpacked, bare=self.bare) if kind else 0

    def smallest(self) -> Iterator[OutputPlan]:
        """The same in the smallest format, unless it is that."""
        if plugins.writer_spec(self.format).timeline == TraceKind.NATIVE:
            return
        stem, writers = self._stem(), plugins.writers()
        smallest = next(name for name, spec in writers.items() if spec.timeline == TraceKind.NATIVE)
        argument = f"-o {stem}{writers[smallest].suffixes[0]}" if stem else f"--to {smallest}"
        yield replace(self, format=smallest, arguments=(*self.arguments, argument))

    def with_args(self, args: str) -> Iterator[OutputPlan]:
        """The same with fewer arguments of events, unless it has no more."""
        known = (ALL, LINK, NONE)
        if known.index(self.options.get("args", ALL)) < known.index(args):
            yield self._with("args", args, f"--args {args}")

    def without_python(self) -> Iterator[OutputPlan]:
        """The same without calls of Python functions, unless it has none."""
        if self.options.get("python", "yes") == "yes":
            yield self._with("python", "no", "--no-python")

    def _with(self, name: str, value: str, argument: str) -> OutputPlan:
        return replace(self, options={**self.options, name: value}, arguments=(*self.arguments, argument))

    def _stem(self) -> str:
        """The name of the output without the suffix of its format; empty without such a suffix."""
        suffixes = plugins.writer_spec(self.format).suffixes
        fitting = [suffix for suffix in suffixes if self.path.endswith(suffix)]
        return self.path.removesuffix(max(fitting, key=len)) if fitting and self.path != STDOUT else ""


def memory_findings(job: LinkedJob, engine: Engine, plan: OutputPlan, unpacked: int) -> list[Finding]:
    """A finding on a timeline that needs more memory than some browsers have, with ways to write it that fit."""
    memory = plan.memory(unpacked)
    limit = exceeded_limit(memory)
    if not limit:
        return []
    room = int(MARGIN * limit)
    suggestions = [*_smaller(job, engine, plan, room), *_parts(len(job.ranks), room / memory)]
    fits = f" These fit, with `tracelink merge`: {'; '.join(suggestions)}." if suggestions else ""
    return [memory_finding(memory, f"{fits} {WITHOUT_BROWSER}", plan.path)]


def _smaller(job: LinkedJob, engine: Engine, plan: OutputPlan, room: int) -> list[str]:
    """Other ways to write all of it that fit: those that change one thing, else the first that changes more."""
    single = [_first_fitting(job, engine, plans, room) for plans in _single_changes(plan)]
    found = [suggestion for suggestion in single if suggestion]
    if found:
        return found
    several = _first_fitting(job, engine, _several_changes(plan), room)
    return [several] if several else []


def _first_fitting(job: LinkedJob, engine: Engine, plans: Iterable[OutputPlan], room: int) -> str:
    for plan in plans:
        forecast = _forecast(job, engine, plan)
        if plan.memory(forecast.unpacked) <= room:
            return f"{' '.join(plan.arguments)} (about {about(forecast.bytes)})"
    return ""


def _single_changes(plan: OutputPlan) -> Sequence[Iterable[OutputPlan]]:
    """Ways that change one thing; similar ones are together, the one that loses least first."""
    return [plan.smallest(), [*plan.with_args(LINK), *plan.with_args(NONE)], plan.without_python()]


def _several_changes(plan: OutputPlan) -> Sequence[OutputPlan]:
    """Ways that change several things, the one that loses least first."""
    small = next(plan.smallest(), plan)
    plans = [
        changed
        for start in (small, *small.without_python())
        for changed in (start, *start.with_args(LINK), *start.with_args(NONE))
    ]
    return [changed for changed in plans if len(changed.arguments) > 1]


def _forecast(job: LinkedJob, engine: Engine, plan: OutputPlan) -> Forecast:
    options = {name: value for name, value in plan.options.items() if name != "compress"}
    writer = plugins.writer(plan.format, options)
    return writer.forecast(job, engine, compressed=False)


def _parts(ranks: int, share: float) -> Iterator[str]:
    """Parts of the job that fit as it is."""
    if 1 <= (few := int(ranks * share)) < ranks:
        yield f"--ranks with {few} of the {ranks} ranks"
    if (percent := int(100 * share) // PERCENT_STEP * PERCENT_STEP) > 0:
        yield f"--steps or --window with {percent} % of the time"
