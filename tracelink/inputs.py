"""What callers name to be read, and how many processes may read it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from tracelink.engine import Engine, Meter
from tracelink.errors import UsageError
from tracelink.sources import Discovery, Request, discover

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
Watch = Callable[[int], None]

RECORDER_FORMAT = "flight-recorder"


def discover_inputs(
    paths: Paths = (),
    *,
    et: Paths = (),
    kineto: Paths = (),
    fr: Paths = (),
    ranks: Mapping[str, int] | None = None,
) -> Discovery:
    """The sources behind the same inputs that `load` takes."""
    said = ((paths, ""), (et, "execution-trace"), (kineto, "kineto"), (fr, RECORDER_FORMAT))
    requested = [(path, format_name) for given, format_name in said for path in _listed(given)]
    if not requested:
        raise UsageError("no inputs", advice="Name files or directories, or use --et, --kineto and --fr.")
    return discover(Request(requested, ranks or {}))


def engine_for(jobs: int | None, watch: Watch | None) -> Engine:
    """An engine with so many processes, or one for each core; `watch` is told the bytes dealt with so far."""
    if jobs is not None and jobs < 1:
        raise UsageError(f"{jobs} jobs", advice="Give at least 1.")
    engine = Engine.of_this_machine() if jobs is None else Engine(jobs)
    engine.meter = Meter(watch)
    return engine


def _listed(paths: Paths) -> list[str]:
    if isinstance(paths, str | os.PathLike):
        return [os.fspath(paths)]
    return [os.fspath(path) for path in paths]
