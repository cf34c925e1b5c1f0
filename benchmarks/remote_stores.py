"""Reading and merging profiles from stores on loopback, beside local files; the adapter of obstore beside s3fs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import measure
from inputs import Input
from measure import Cost, Job
from rank_inputs import long_profiles
from results import Bar, Options, Result, Row, failures_of, output_folder, wall, warmed

from builders.stores import BUCKET, Web, s3_server, web_server

RANKS = 8
REQUESTS_OF_A_PROFILE = 24
"""Most requests for a profile in one merge: looks at its start, few large ranges, checks that it is the same."""

Counter = Callable[[], tuple[int, float]]
"""Requests to a store so far, and megabytes that it sent."""


def remote(options: Options) -> Result:
    """Read and merge 8 profiles from files, from S3 (moto) and from a web server."""
    files = long_profiles(RANKS, options.size // RANKS)
    paths = warmed(files)
    result = Result()
    with ExitStack() as stack:
        output = stack.enter_context(output_folder()) / "job.pftrace"
        web = stack.enter_context(served(paths))
        log, keys = stack.enter_context(stored(paths))
        objects = [f"s3://{BUCKET}/{key}" for key in keys]
        pages = [web.url(path.name) for path in paths]
        counters: dict[str, Counter] = {
            "files": lambda: (0, 0.0),
            "S3": lambda: (requests_in(log), 0.0),
            "web": lambda: counted(web),
        }
        places: dict[str, Sequence[object]] = {"files": paths, "S3": objects, "web": pages}
        for place, inputs in places.items():
            for jobs in (1, 2):
                job = Job(f"merge from {place}, {jobs} jobs", "merge", (jobs, output, *inputs))
                result.rows.append(row(job, files, options.repeats, counters[place]))
        for label, function in (("s3fs", "read_ranges"), ("obstore", "read_ranges_by_obstore")):
            job = Job(f"8 MB ranges, one after the other: {label}", function, objects)
            with failures_of(label, result):
                result.rows.append(row(job, files, options.repeats, counters["S3"]))
    local, _, s3, *_ = result.rows
    result.bars = [
        Bar("requests for a profile in S3, merged by 1 job", requests_of(s3) / RANKS, REQUESTS_OF_A_PROFILE),
        Bar(
            "CPU, S3 / files, 1 job", measure.best_ratio(s3.costs, local.costs, lambda cost: cost.cpu_s), 1.5
        ),
    ]
    return result


def row(job: Job, files: Sequence[Input], repeats: int, counter: Counter) -> Row:
    """A job, with the requests and the bytes of a run in its details."""
    costs: list[Cost] = []
    for _ in range(repeats):
        before = counter()
        cost = measure.run(job)
        requests, megabytes = (after - earlier for after, earlier in zip(counter(), before, strict=True))
        costs.append(
            replace(cost, details=cost.details | {"requests": requests, "sent_mb": round(megabytes, 1)})
        )
    fastest = min(costs, key=wall)
    remark = f"{fastest.details['requests']} requests, {fastest.details['sent_mb']} MB sent"
    return Row(job.label, costs, sum(file.megabytes for file in files), remark)


def requests_of(one: Row) -> int:
    """The requests of the fastest run."""
    return int(min(one.costs, key=wall).details["requests"])


@contextmanager
def served(paths: Sequence[Path]) -> Iterator[Web]:
    """A web server with these files."""
    with web_server(Web({path.name: path.read_bytes() for path in paths})) as web:
        yield web


def counted(web: Web) -> tuple[int, float]:
    """Requests and megabytes."""
    return len(web.requests), web.sent / 1e6


@contextmanager
def stored(paths: Sequence[Path]) -> Iterator[tuple[Path, list[str]]]:
    """A server of S3 with these files in the environment of this process: its log, and the keys."""
    with output_folder() as folder, s3_server(folder / "log") as s3:
        for path in paths:
            s3.client().upload_file(str(path), BUCKET, path.name)
        before = dict(os.environ)
        os.environ.update(s3.environment)
        try:
            yield folder / "log", [path.name for path in paths]
        finally:
            os.environ.clear()
            os.environ.update(before)


def requests_in(log: Path) -> int:
    """The requests in the log of moto's server."""
    return sum(b'" 20' in line for line in log.read_bytes().splitlines())


SUITES: dict[str, Callable[[Options], Result]] = {"remote": remote}
