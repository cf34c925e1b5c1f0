"""Engines: where work runs, and which one the user means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracelink._io.engine import Engine, Meter
from tracelink._io.system import cores, most_processes
from tracelink._model.errors import UsageError
from tracelink._run.processes import Processes
from tracelink.plugins import EngineSpec, connect, engines

__all__ = ["DASK", "EngineChoice", "Watch", "dask", "engine_for", "processes", "reading"]

Watch = Callable[[int], None]
EngineChoice = Engine | str | None
"""An engine, its name (`dask`), the address of a cluster, or nothing for processes of this machine."""

DASK = EngineSpec(
    "dask",
    "Workers of a Dask cluster",
    "tracelink._run.dask:DaskEngine",
    schemes=("dask", "tcp", "tls", "ucx", "ws", "wss"),
    accepts=lambda client: hasattr(client, "scheduler_info"),
    extra="dask",
)


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
        engine: An engine, the name of an installed one ("dask": Dask workers on this machine), the address of a
            cluster, such as "dask://host:8786", or its client; by default processes of this machine.
        on_connect: Is called with an engine that has connected to a cluster.

    Raises:
        UsageError: There is no such engine.
    """
    if jobs is not None and jobs < 1:
        raise UsageError(f"{jobs} jobs", advice="Give at least 1.")
    if engine is None:
        return Processes(min(cores() if jobs is None else jobs, most_processes()), Meter(watch))
    if hasattr(type(engine), "for_events"):
        found: Engine = engine  # type: ignore[assignment]
    else:
        spec, target = _chosen(engine)
        if target and jobs is not None:
            raise UsageError(
                "the number of jobs is that of the workers of the cluster",
                advice=f"Leave out --jobs, or use --engine {spec.name}, which starts that many workers here.",
            )
        found = connect(spec, target, jobs, on_connect)
    found.meter.restart(watch)
    return found


def _chosen(engine: Any) -> tuple[EngineSpec, Any]:
    """The engine that a name, an address or a client means; the name alone has no target."""
    known = engines(engine if isinstance(engine, str) else "")
    if not isinstance(engine, str):
        if spec := next((spec for spec in known.values() if spec.accepts(engine)), None):
            return spec, engine
        raise UsageError(
            f"{engine!r:.80} is no engine", advice='Use "dask", "dask://HOST:PORT" or a distributed.Client.'
        )
    scheme, is_address, _ = engine.partition("://")
    for name, spec in known.items():
        if engine == name or (is_address and scheme in spec.schemes):
            return spec, engine if is_address else ""
    raise UsageError(
        f"there is no engine {engine!r}",
        advice="Use dask for workers on this machine, or dask://HOST:PORT for those of a scheduler. "
        f"Installed: {', '.join(known)}.",
    )
