"""The options of reading, declared once: every function that reads takes them as keywords."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from tracelink._io.engine import Engine
from tracelink._io.sources import Discovery, Paths, discover_inputs
from tracelink._model.errors import did_you_mean
from tracelink._run import EngineChoice, Watch, engine_for

if TYPE_CHECKING:
    from tracelink._model.metrics import Metrics


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


class ReadOptions(InputOptions, total=False):
    """What is read, as what, and where the work runs: keywords of `load`, `merge`, `summarize` and all that read."""

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


_INPUTS, _KNOWN = InputOptions.__annotations__, ReadOptions.__annotations__


def _check(options: ReadOptions) -> None:
    if unknown := next((name for name in options if name not in _KNOWN), ""):
        raise TypeError(f"there is no option {unknown!r}. {did_you_mean(unknown, _KNOWN)}".strip())
