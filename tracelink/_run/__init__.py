"""Engines: where work runs, and which one the user means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracelink._io.engine import Engine, Meter
from tracelink._io.system import cores, most_processes
from tracelink._model.errors import UsageError
from tracelink._run.processes import Processes

__all__ = ["EngineChoice", "Watch", "dask", "engine_for", "processes", "reading"]

Watch = Callable[[int], None]
EngineChoice = Engine | str | None
"""An engine, or its name: `dask`, the address of a scheduler, or nothing for processes of this machine."""

DASK = "dask"
SCHEMES = ("dask://", "tcp://", "tls://", "ucx://", "ws://", "wss://")


def engine_for(
    jobs: int | None,
    watch: Watch | None,
    engine: EngineChoice = None,
    on_connect: Callable[[Any], object] | None = None,
) -> Engine:
    """The engine of a call of the library.

    Args:
        jobs: The number of processes; by default one for each core. Only for processes that this call starts.
        watch: Is called with the total number of bytes processed so far, as work goes on.
        engine: An engine, a `distributed.Client`, "dask" for Dask workers on this machine, or the address of a Dask
            scheduler, such as "dask://host:8786"; by default processes of this machine.
        on_connect: Is called with an engine that has connected to a cluster.

    Raises:
        UsageError: There is no such engine.
    """
    if jobs is not None and jobs < 1:
        raise UsageError(f"{jobs} jobs", advice="Give at least 1.")
    if engine is None:
        return Processes(min(cores() if jobs is None else jobs, most_processes()), Meter(watch))
    if isinstance(engine, str):
        found = _dask_engine(engine, jobs, on_connect)
    elif hasattr(type(engine), "for_events"):
        found = engine
    else:
        found = _of_client(engine)
    found.meter.restart(watch)
    return found


def _dask_engine(name: str, jobs: int | None, on_connect: Callable[[Any], object] | None) -> Engine:
    if name != DASK and not name.startswith(SCHEMES):
        raise UsageError(
            f"there is no engine {name!r}",
            advice="Use dask for workers on this machine, or dask://HOST:PORT for those of a scheduler.",
        )
    if name.startswith(SCHEMES) and jobs is not None:
        raise UsageError(
            "the number of jobs is that of the workers of the cluster",
            advice="Leave out --jobs, or use --engine dask, which starts that many workers here.",
        )
    _check_installed()
    from tracelink._run.dask import DaskEngine

    address = name.removeprefix("dask://") if name.startswith("dask://") else name.removeprefix(DASK)
    return DaskEngine(address, jobs, on_connect=on_connect)


def _of_client(client: Any) -> Engine:
    if not hasattr(client, "scheduler_info"):
        raise UsageError(
            f"{client!r:.80} is no engine", advice='Use "dask", "dask://HOST:PORT" or a distributed.Client.'
        )
    from tracelink._run.dask import DaskEngine

    return DaskEngine(client=client)


def _check_installed() -> None:
    try:
        import distributed  # noqa: F401  the extra `dask`
    except ImportError:
        raise UsageError(
            "dask.distributed is not installed", advice="Run: pip install 'torch-tracelink[dask]'"
        ) from None
