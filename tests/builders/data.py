"""Inputs of tests by name: samples, jobs that our generators make, and traces from elsewhere."""

from __future__ import annotations

import gzip
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet

from builders.recorder import as_json
from generators import jobs
from generators.files import KINETO, Kept
from generators.job import Cluster, Job
from generators.older_profiles import of_2021, of_2023, on_rocm, rewritten
from generators.recorded_jobs import Fault, Plan, Snapshot
from generators.recorded_jobs import job as recorded_job
from tracelink import samples

# Traces from elsewhere: next to the repository, not in it.


DATA = Path(__file__).parents[3] / "shared" / "data"


def shared(path: str) -> Path:
    """The file or folder `path` of the shared data. Its tests are marked `foreign`; without the data they fail."""
    found = DATA / path
    if not found.exists():
        pytest.fail(
            f"missing {found}: a test of shared data is marked foreign and runs where they are", pytrace=False
        )
    return found


def foreign(*cases: Any) -> list[ParameterSet]:
    """Parameters of a test that need shared data; a tuple is the values of one case."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.foreign)
        for case in cases
    ]


# Inputs of our own: recorded by scripts in `generators`, or generated once for each process that needs them.


RECORDED = Path(__file__).parents[1] / "recorded"


def traces(path: str) -> Path:
    """A file or folder of a generated or recorded input, of a sample, or else of the shared data."""
    for name in (path, *map(str, Path(path).parents)):
        if name in GENERATED:
            return _generated(name)[0] / Path(path).relative_to(name)
    first, _, below = path.partition("/")
    if (RECORDED / first).exists():
        return RECORDED / path
    return samples.path(first) / below if first in samples.names() else shared(path)


def plain(path: str) -> bytes:
    data = traces(path).read_bytes()
    return gzip.decompress(data) if path.endswith(".gz") else data


def truth(name: str) -> Any:
    return _generated(name)[1]


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="tracelink-inputs-")


@cache
def _generated(name: str) -> tuple[Path, Any]:
    folder = Path(_folder().name) / name
    folder.mkdir(parents=True)
    return folder, GENERATED[name](folder)


SETTLED = Snapshot()


def _dumps(
    plan: Plan,
    fault: Fault | None = None,
    snapshot: Snapshot = SETTLED,
    *,
    as_text: bool = False,
) -> Callable[[Path], None]:

    def write(folder: Path) -> None:
        job = recorded_job(plan, fault, snapshot)
        job.write(folder)
        for rank, content in job.dumps.items() if as_text else ():
            (folder / f"comm_lib_trace_rank_{rank}").write_bytes(as_json(content))

    return write


GLOO = Plan(backend="gloo")
"""Eight ranks: group 0 of all, 1 to 4 tensor parallel pairs, 5 and 6 data parallel."""
FAULTS = {
    "never_joined": Fault("never_joined", rank=3, role="default_pg"),
    "skipped": Fault("skipped", rank=5),
    "operation_mismatch": Fault("operation_mismatch", rank=4),
    "dtype_mismatch": Fault("dtype_mismatch", rank=1),
    "deadlock": Fault("deadlock", rank=6, step=1),
}
HANGS: Mapping[str, Callable[[Path], None]] = {
    f"gloo/{name}/{when}": _dumps(GLOO, fault, Snapshot(when))
    for name, fault in FAULTS.items()
    for when in ("settled", "timed_out")
} | {
    "gloo/never_joined/json": _dumps(GLOO, FAULTS["never_joined"], as_text=True),
    "gloo/never_joined/missing_other": _dumps(GLOO, FAULTS["never_joined"], Snapshot(missing=(5,))),
}
"""Dumps of jobs that hang, or of which a rank exchanges another type."""
HEALTHY: Mapping[str, Callable[[Path], None]] = {
    "gloo/healthy": _dumps(GLOO),
    "gloo/healthy_json": _dumps(GLOO, as_text=True),
    "gloo/unconfigured": _dumps(replace(GLOO, configured=False)),
    "nccl/wrapped": _dumps(Plan(kind="pipeline", stages=4, buffer=25)),
    "gloo/truncated": _dumps(GLOO, None, Snapshot(cut_short=(4,))),
    "gloo/late": _dumps(GLOO, Fault("straggler", rank=6, share=0.01)),
}
"""Dumps of jobs that end."""


@dataclass(frozen=True, slots=True)
class DataParallel(Job):
    """Ranks that exchange gradients only: collectives of all ranks, one after the other."""

    ranks: int = 4
    steps: int = 3
    layers: int = 5
    clock_skew_ns: int = 0

    roles = ()


def _older(change: Callable[[Any], Any], *ranks: int) -> Callable[[Path], None]:
    """Profiles of a sample in another layout, next to its execution traces."""

    def write(folder: Path) -> None:
        for rank in ranks:
            source = samples.path("gpu_pair")
            rewritten(source / f"kineto_{rank}.json.gz", folder / f"kineto_{rank}.json", change)
            shutil.copy(source / f"et_{rank}.json.gz", folder)

    return write


def _one_iteration(folder: Path) -> None:
    """A profile of twelve steps, and the execution trace of the seventh, without numbers in common."""
    jobs.write(Job(ranks=1, steps=12), folder)
    profile, nodes = folder / "kineto_0.json", folder / "et_0.json"
    document = json.loads(profile.read_bytes(), parse_float=Decimal)
    profile.write_text(json.dumps(of_2023(document)))
    trace = json.loads(nodes.read_bytes())
    numbers = {node["name"]: node["id"] for node in trace["nodes"]}
    steps = range(numbers["ProfilerStep#7"], numbers["ProfilerStep#8"])
    kept = [node for node in trace["nodes"] if node["id"] in steps or node["ctrl_deps"] == 1]
    nodes.write_text(json.dumps(trace | {"nodes": kept}))
    shutil.rmtree(folder / "dumps")


def _three_compilers(folder: Path) -> None:
    """Compile logs of a sample, of which rank 2 does what rank 0 does."""
    name = "dedicated_log_torch_trace_rank_{}_sample.log"
    logs = [plain(f"compile_job/{name.format(rank)}.gz") for rank in (0, 1)]
    for rank, log in enumerate([*logs, logs[0].replace(b'"rank": 0', b'"rank": 2')]):
        (folder / name.format(rank)).write_bytes(log)


CLUSTER = Cluster(ranks=8, tensor_parallel=2, steps=2, clock_skew_ns=0, drift_ppm=0.0)
GENERATED: Mapping[str, Callable[[Path], object]] = {
    "data_parallel": lambda folder: jobs.write(DataParallel(), folder, Kept([KINETO]), compressed=True),
    "cluster": lambda folder: jobs.write(CLUSTER, folder),
    "gpu_2021": _older(of_2021, 0),
    "gpu_2023": _older(of_2023, 0, 1),
    "gpu_rocm": _older(on_rocm, 0),
    "one_iteration": _one_iteration,
    "three_compilers": _three_compilers,
    **HANGS,
    **HEALTHY,
}
