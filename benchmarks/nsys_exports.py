"""Reading Nsight Systems exports, beside SQLite's own scan of the same columns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import inputs
import measure
from measure import Job
from results import Bar, Options, Result, cpu, rows_of, warmed

from generators import nsys_export

BYTES_PER_KERNEL, RANGES_PER_KERNEL, RANKS = 200, 10, 8
"""At the default size there are a million kernels, as many calls, and ten times as many ranges."""
TIMES_OF_SCAN, MOST_MEGABYTES = 3.0, 600.0


def nsys(options: Options) -> Result:
    """Read an export of eight ranks, and find what they did together, beside a scan of the same columns."""
    file = export(options.size // BYTES_PER_KERNEL)
    paths = warmed([file])
    jobs = [
        Job("sqlite3 scan", "sqlite_scan", paths),
        Job("tracelink, reading", "read_ranks", paths),
        Job("tracelink.collectives, 1 job", "collectives", (1, *paths)),
    ]
    result = Result(rows_of(jobs, [file], options.repeats))
    scan, read, _ = (row.costs for row in result.rows)
    result.bars = [
        Bar("reading, CPU / scan", measure.best_ratio(read, scan, cpu), TIMES_OF_SCAN),
        Bar("reading, peak MB", result.rows[1].peak_mb, MOST_MEGABYTES),
        Bar("collectives, peak MB", result.rows[2].peak_mb, MOST_MEGABYTES),
    ]
    return result


def export(kernels: int) -> inputs.Input:
    """An export with so many kernels."""
    name = "report.sqlite"

    def write(folder: Path) -> int:
        nsys_export.write_export(folder / name, kernels, RANGES_PER_KERNEL * kernels, RANKS)
        return 1

    folder, copies = inputs.cached(f"nsys-{kernels}", (Path(nsys_export.__file__),), write)
    return inputs.Input(folder / name, "generated", copies)


SUITES: dict[str, Callable[[Options], Result]] = {"nsys": nsys}
