"""What is about to be written: said where it is large, and warned of where it is too large to be looked at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tracelink.engine import Engine
from tracelink.findings import Finding
from tracelink.handover.fitting import Order, too_heavy_to_be
from tracelink.job import Job
from tracelink.plugins import Forecast, Forecasting, Writer
from tracelink.targets import GZIP_SUFFIX

WORTH_SAYING = 200_000
"""Fewer events are written in less than a second: they are there before anybody has read how large they will be."""

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
    if not isinstance(writer, Forecasting) or job.events < (WORTH_SAYING if foresee else MAY_BE_HEAVY):
        return ()
    forecast = writer.forecast(job, engine, compressed=path.endswith(GZIP_SUFFIX))
    order = Order(writer.name, path, options)
    findings = too_heavy_to_be(job, engine, order, forecast.unpacked)
    if foresee:
        foresee(Prospect(path, forecast, findings))
    return findings
