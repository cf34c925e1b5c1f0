"""Engines: where work runs, and which one the user means."""

from __future__ import annotations

from collections.abc import Callable

from tracelink.engines.processes import Processes
from tracelink.io.engine import Engine, Meter
from tracelink.io.system import cores, most_processes
from tracelink.model.errors import UsageError

__all__ = ["Watch", "engine_for", "processes"]

Watch = Callable[[int], None]


def engine_for(jobs: int | None, watch: Watch | None) -> Engine:
    """An engine with this many processes, else one for each core; calls `watch` with the bytes read so far."""
    if jobs is not None and jobs < 1:
        raise UsageError(f"{jobs} jobs", advice="Give at least 1.")
    return Processes(min(cores() if jobs is None else jobs, most_processes()), Meter(watch))
