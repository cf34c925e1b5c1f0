"""Ten tasks of a harness: python docs/harness.py TRACES DUMPS RUN_BEFORE RUN_AFTER FOLDER.

A test runs it; mypy and pyright check it in strict mode.
"""

# pyright: strict

from __future__ import annotations

import sys
from pathlib import Path

import tracelink


def median_step_ms(traces: Path) -> float:
    return tracelink.summary(traces).step_time.p50 / 1e6


def idle_share_by_rank(job: tracelink.Job) -> dict[int, float]:
    shares: dict[int, float] = {}
    for rank in job.summary().ranks:
        whole = sum(step.duration_ns for step in rank.steps)
        shares[rank.rank] = sum(step.idle_ns for step in rank.steps) / whole
    return shares


def slowest_kernels(job: tracelink.Job, count: int) -> list[tuple[str, int]]:
    kernels = sorted(job.summary().kernels, key=lambda row: -row.total_ns)
    return [(row.name, row.total_ns) for row in kernels[:count]]


def late_ranks(job: tracelink.Job) -> list[int]:
    return [row.rank for row in job.summary().communication.late]


def culprits(dumps: Path) -> list[int]:
    diagnosis = tracelink.diagnose(dumps)
    return [rank for problem in diagnosis.problems for rank in problem.culprits]


def regressions(before: Path, after: Path) -> list[str]:
    return [cause.what for cause in tracelink.diff(before, after).causes if cause.delta_ns > 0]


def all_reduce_bytes(job: tracelink.Job) -> int:
    sql = "SELECT coalesce(sum(bytes), 0) FROM collectives WHERE operation = $operation"
    ((total,),) = job.query(sql, parameters={"operation": "all_reduce"}).rows()
    return int(total)


def launch_of(graph: tracelink.EventGraph, kernel: str) -> str:
    found = graph.find(kernel, kind="kernel")
    operator = graph.launched_by(int(found[0])) if len(found) else None
    return "" if operator is None else graph.name(operator)


def timeline_of_a_step(job: tracelink.Job, folder: Path) -> Path:
    merged = job.select(steps="2", ranks="0").merge(folder / "step.json")
    return Path(merged.outputs[0].path)


def problems_of_inputs(traces: Path) -> list[str]:
    severe = (tracelink.Severity.WARNING, tracelink.Severity.ERROR)
    return [finding.message for finding in tracelink.inspect(traces).findings if finding.severity in severe]


if __name__ == "__main__":
    _, trace_folder, dump_folder, first_run, second_run, output = sys.argv
    folder = Path(trace_folder)
    print(median_step_ms(folder), problems_of_inputs(folder))
    print(culprits(Path(dump_folder)), regressions(Path(first_run), Path(second_run))[:1])
    with tracelink.Job(folder) as opened:
        print(idle_share_by_rank(opened).keys(), slowest_kernels(opened, 2), late_ranks(opened))
        print(all_reduce_bytes(opened), launch_of(opened.graph, "sgemm"))
        print(timeline_of_a_step(opened, Path(output)).name)
