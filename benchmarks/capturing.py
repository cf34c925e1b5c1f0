"""What recording costs a training: `tracelink.capture` beside torch.profiler with the observer of execution traces."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import measure
import numpy as np
from measure import Cost
from other_tools import first_that_imports
from results import Bar, Options, Result, Row

JOB = Path(__file__).with_name("capture_job.py")
OFF_PERCENT, RECORDED = 0.1, 1.02
LONGEST_S = 1800
QUICK = 0.25
"""The quantile of the steps of all rounds that is compared: others are slowed down by other programs."""
LEAST_ROUNDS = 12
LABELS = {
    "plain": "training alone",
    "off": "in a capture, not recorded",
    "profiler": "torch.profiler + observer",
    "recorded": "in a capture, recorded",
}


def capture(options: Options) -> Result:
    """Steps of a small training: alone, in a capture, and recorded beside torch.profiler with observer; one process."""
    python = first_that_imports("torch, msgspec, click", options)
    rounds = max(options.repeats, LEAST_ROUNDS)
    done = subprocess.run(
        [python, str(JOB), str(rounds)], capture_output=True, text=True, check=False, timeout=LONGEST_S
    )
    measure.check(done.returncode, done.stdout, done.stderr)
    measured = json.loads(done.stdout.splitlines()[-1])
    found = measured["rounds"]

    def quick(way: str, what: str) -> float:
        """A step that hardly anything else slowed down."""
        return float(np.quantile([seconds for run in found[way] for seconds in run[what]], QUICK))

    rows = []
    for way, label in LABELS.items():
        costs = [Cost(sum(run["cpu_s"]), sum(run["wall_s"]), details=run) for run in found[way]]
        milliseconds = [1e3 * quick(way, what) for what in ("cpu_s", "wall_s")]
        whole = [min(run["whole_cpu_s"] for run in found[name]) for name in (way, "plain")]
        remark = f"a step: {milliseconds[0]:.3f} ms CPU, {milliseconds[1]:.3f} ms wall; begin, end, files: "
        rows.append(Row(label, costs, remark=f"{remark}+{whole[0] - whole[1]:.2f} s CPU"))
    call = 100 * measured["call_s"] / quick("plain", "cpu_s")
    threads = 100 * measured["beside"]
    remark = (
        f"{rows[1].remark}; step(): {1e9 * measured['call_s']:.0f} ns; threads: {threads:.3f} % of a core"
    )
    rows[1] = replace(rows[1], remark=remark)
    bars = [
        Bar("not recorded: step(), % of CPU of a step", call, OFF_PERCENT),
        Bar("not recorded: threads, % of a core", threads, OFF_PERCENT),
        *(
            Bar(
                f"recorded / torch.profiler, {word} of a step",
                quick("recorded", what) / quick("profiler", what),
                RECORDED,
            )
            for word, what in (("CPU", "cpu_s"), ("wall", "wall_s"))
        ),
    ]
    return Result(rows, bars)


SUITES: dict[str, Callable[[Options], Result]] = {"capture": capture}
