"""Other tools on the same inputs in the same rounds, where they are installed; none of them is a dependency.

Each runs in an environment of its own, as its users run it, with its imports outside the measured time. What a row
does is not the same for all: README.md says what each tool does with a trace.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import perfetto_engine
from measure import Job, JobFailed, Peer
from results import Options, Result, failures_of


@dataclass(frozen=True, slots=True)
class Tool:
    """A Python package that reads the same traces: the module that tells whether it is there, its job, its names."""

    name: str
    module: str
    job: str
    distributions: Sequence[str]
    cpu_limit: int = 60


HTA = Tool("HTA", "hta.common.trace", "holistic_trace_analysis", ("traceinsight", "HolisticTraceAnalysis"))
TRACE_LENS = Tool("TraceLens", "TraceLens.TreePerf", "trace_lens", ("TraceLens",))
HTA_ANSWERS = Tool(
    "HTA, breakdown and kernels", "hta.trace_analysis", "holistic_breakdown", HTA.distributions
)
TRACE_LENS_ANSWERS = Tool(
    "TraceLens, timeline and launchers",
    "TraceLens.TreePerf",
    "trace_lens_breakdown",
    TRACE_LENS.distributions,
)
TRACE_FUSE = Tool("TraceLens TraceFuse", "TraceLens.TraceFusion", "trace_fuse", ("TraceLens",))
CHAKRA = Tool("chakra_trace_link", "et_replay, chakra", "chakra_trace_link", ("mlc-chakra", "chakra"), 150)


def of_profile(path: Path, options: Options, result: Result) -> list[Peer]:
    """What reads one profile."""
    peers: list[Peer] = [
        *of_tool(HTA, [path], options, result),
        *of_tool(TRACE_LENS, [path], options, result),
    ]
    return peers + [perfetto_engine.Load(engine, path) for engine in perfetto_engine.newest(result)]


def answers_on(path: Path, options: Options, result: Result) -> list[Peer]:
    """What answers where the time of one profile went."""
    return [
        *of_tool(HTA_ANSWERS, [path], options, result),
        *of_tool(TRACE_LENS_ANSWERS, [path], options, result),
    ]


def of_tool(tool: Tool, arguments: Sequence[object], options: Options, result: Result) -> Iterator[Peer]:
    """The job of a tool, if an interpreter has it; otherwise its row says so."""
    with failures_of(tool.name, result):
        python = first_that_imports(tool.module, options)
        yield Job(tool.name, tool.job, arguments, python, version(tool, python), tool.cpu_limit)


def first_that_imports(module: str, options: Options) -> str:
    """The first of the peers' interpreters that has what a peer needs."""
    for python in options.peer_pythons:
        if _imports(python, module):
            return python
    raise JobFailed(f"no Python here imports {module} (--peer-python names another)")


@cache
def _imports(python: str, module: str) -> bool:
    done = subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False)
    return done.returncode == 0


@cache
def version(tool: Tool, python: str) -> str:
    """The version of the first distribution of that name that is installed there."""
    script = f"""
from importlib import metadata
names = {{distribution.name.lower(): distribution.version for distribution in metadata.distributions()}}
print(next(names[name.lower()] for name in {tuple(tool.distributions)} if name.lower() in names))
"""
    done = subprocess.run([python, "-c", script], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown version"
