"""The options of reading, declared once: every function that reads takes them as keywords."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from tracelink._io.engine import Engine
from tracelink._io.sources import Discovery, Paths, discover_inputs
from tracelink._model.errors import UsageError, did_you_mean
from tracelink._model.selection import Selection
from tracelink._run import EngineChoice, Watch, engine_for

if TYPE_CHECKING:
    from tracelink._model.clock import Clocks
    from tracelink._model.metrics import Metrics
    from tracelink._model.ranges import Numbers
    from tracelink._model.selection import Window


class InputOptions(TypedDict, total=False):
    """What is read, and as what."""

    et: Paths
    """Paths that contain execution traces."""
    kineto: Paths
    """Paths that contain Kineto profiles."""
    fr: Paths
    """Paths that contain flight-recorder dumps."""
    rank_of: Mapping[str, int] | None
    """The rank of some files, by path or name, such as `{"odd.json": 3}`; it overrules their content."""
    max_unpacked: int | None
    """The most bytes of an input once it is uncompressed; by default 64 GB."""
    metrics: Metrics | None
    """Zone, start and interval of metrics that do not contain them, and ranks of devices; see `Metrics`."""
    include: Sequence[str]
    """What readers leave out by default, such as `osrt` (calls of the operating system of Nsight Systems)."""


class SelectOptions(TypedDict, total=False):
    """The part of a job that is wanted."""

    ranks: Numbers | str | Iterable[int] | None
    """Only these ranks, such as "0-7,64" or [0, 1]."""
    steps: Numbers | str | Iterable[int] | None
    """Only these training steps, such as "3-5,7" or range(3, 6)."""
    window: Window | str | None
    """Only this time, such as "2.5s..3.1s", "800ms.." or "..2min" after the first event of the job, or
    "2025-03-01 08:06:00..2025-03-01 08:06:02.5" in UTC."""
    only: str | Iterable[str] | None
    """Only these kinds of events, such as "kernels,collectives"."""


class ReadOptions(InputOptions, SelectOptions, total=False):
    """What is read, as what, which part of it, and where the work runs: keywords of `Job` and all that reads."""

    clock: str | os.PathLike[str] | Clocks
    """How the clocks of ranks are corrected: "host" (ranks of one host share a clock), "collectives" (every rank has
    its own), "none" (no correction), a file written by `tracelink clocks --json`, or known `Clocks`."""
    jobs: int | None
    """The number of processes that work at once; by default one for each core."""
    engine: EngineChoice
    """Where the work runs: by default in processes of this machine; "dask", the address of a Dask scheduler such as
    "dask://host:8786", or a `distributed.Client`."""
    watch: Watch | None
    """Is called with the total number of bytes processed so far, as work goes on."""


def inputs_of(paths: Paths, options: ReadOptions, *, all_named: bool = True) -> Discovery:
    """Returns the sources that the options name.

    Args:
        paths: Files, directories, globs and archives.
        options: The keywords of a function.
        all_named: Whether `rank_of` names only these files.

    Raises:
        UsageError: A path does not exist.
        TypeError: There is no such option.
    """
    _check(options)
    inputs: Any = {name: value for name, value in options.items() if name in _INPUTS}
    return discover_inputs(paths, **inputs, all_named=all_named)


def engine_of(options: ReadOptions) -> Engine:
    """Returns where the work runs.

    Args:
        options: The keywords of a function.

    Raises:
        UsageError: There is no such engine.
        TypeError: There is no such option.
    """
    _check(options)
    return engine_for(options.get("jobs"), options.get("watch"), options.get("engine"))


def selection_of(options: Mapping[str, Any]) -> Selection:
    """Returns the part of the job that is wanted.

    Args:
        options: The keywords of a function.

    Raises:
        UsageError: A value is malformed.
    """
    return Selection(**{name: options[name] for name in _SELECTING if name in options})


def check_whole(options: ReadOptions, why: str) -> None:
    """Raises `UsageError` if the options select a part, or correct clocks, of what is only read as a whole.

    Args:
        options: The keywords of a function.
        why: What is read as a whole, such as "who waits for whom is seen in the dumps of all ranks".
    """
    _check(options)
    for name in (*_SELECTING, "clock"):
        if options.get(name) is not None:
            raise UsageError(f"there is no {name} here: {why}", advice=f"Leave out {name}.")


_INPUTS, _SELECTING = InputOptions.__annotations__, SelectOptions.__annotations__
_KNOWN = ReadOptions.__annotations__


def _check(options: ReadOptions) -> None:
    if unknown := next((name for name in options if name not in _KNOWN), ""):
        raise TypeError(f"there is no option {unknown!r}. {did_you_mean(unknown, _KNOWN)}".strip())
