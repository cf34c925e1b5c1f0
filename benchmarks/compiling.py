"""`tracelink compile` on a long compile log, as a table and as a page, beside tlparse."""

from __future__ import annotations

import gzip
import hashlib
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import commands
import inputs
import measure
from commands import Command
from results import Bar, Options, Result, Row, cpu, failures_of, memory, output_folder

MEGABYTES_PER_CPU_SECOND, MOST_MEGABYTES = 100.0, 60.0
TIMES_FASTER, SHARE_OF_MEMORY = 2.0, 0.2
FRAMES = 1000
"""A copy's frame ids are larger by this much."""
RECORD = re.compile(rb"^[VIWEC]\d{4} [\d:.]+ \d+ [^:\n]+:\d+\] \{", re.MULTILINE)
FRAME = re.compile(rb'("frame_id": )(\d+)')
COMPILE_ID = re.compile(rb'("compile_id": "(?:!\d+/)?)(\d+)(?=/\d)')
CODE = re.compile(rb'inductor_output_code|_graph"|guards_str|fx_graph_runnable')
DIGEST = re.compile(rb'(?<="has_payload": ")[0-9a-f]{32}')


def compile_logs(options: Options) -> Result:
    """Read a compile log, print its report, and write its page, beside tlparse; whole commands."""
    log = long_log(options.size)
    result = Result()
    with output_folder() as folder:
        report = Command("tracelink compile", ours(log.path, "-q"), exit_code=1)
        page = Command(
            "tracelink compile -o page.html",
            ours(log.path, "-q", "-o", str(folder / "page.html")),
            exit_code=1,
        )
        tlparse = shutil.which("tlparse")
        words = [tlparse or "", str(log.path), "-o", str(folder / "tlparse"), "--overwrite", "--no-browser"]
        every = [report, page, *([Command("tlparse", words)] if tlparse else [])]
        costs = commands.alternately(every, options.repeats)
    result.rows += [Row(one.label, runs, log.megabytes) for one, runs in zip(every, costs, strict=True)]
    rate = log.megabytes / result.rows[0].best(cpu)
    result.bars += [
        Bar("100 MB/s / rate of the report", MEGABYTES_PER_CPU_SECOND / rate, 1.0),
        Bar("report, peak MB", result.rows[0].peak_mb, MOST_MEGABYTES),
    ]
    with failures_of("beside tlparse", result):
        if tlparse is None:
            raise measure.JobFailed(
                "tlparse is not installed: pip install tlparse, and name its folder in PATH"
            )
        ratio = TIMES_FASTER * measure.best_ratio(costs[1], costs[2], cpu)
        result.bars += [
            Bar(f"page, {TIMES_FASTER:g} x CPU / tlparse", ratio, 1.0),
            Bar("page, memory / tlparse", measure.best_ratio(costs[1], costs[2], memory), SHARE_OF_MEMORY),
        ]
    return result


def ours(path: Path, *options: str) -> Sequence[str]:
    """As a user types it, but with this interpreter."""
    return [sys.executable, "-m", "tracelink", "compile", str(path), *options]


def long_log(size: int) -> inputs.Input:
    """Copies of a recorded log, with other frame ids in each, up to `size` bytes."""
    original = inputs.source(
        "torch_trace/single/dedicated_log_torch_trace_jvsbvek1.log.gz",
        "compile_job/dedicated_log_torch_trace_rank_0_sample.log.gz",
    )
    name = "dedicated_log_torch_trace_long.log"

    def write(folder: Path) -> int:
        text = gzip.decompress(original.read_bytes())
        starts = [match.start() for match in RECORD.finditer(text)]
        records = [text[a:b] for a, b in zip(starts, [*starts[1:], len(text)], strict=True)]
        copies = written = 0
        with (folder / name).open("wb") as file:
            while written < size:
                written += sum(file.write(shifted(record, copies * FRAMES)) for record in records)
                copies += 1
        return copies

    folder, copies = inputs.cached(f"compile-log-{size}", (original, Path(__file__)), write)
    return inputs.Input(folder / name, original.name, copies)


def shifted(record: bytes, frames: int) -> bytes:
    """The record with larger frame ids, also in its payload, and the digest of that; code differs in each copy."""

    def larger(match: re.Match[bytes]) -> bytes:
        return match[1] + str(int(match[2]) + frames).encode()

    head, _, stored = COMPILE_ID.sub(larger, FRAME.sub(larger, record)).partition(b"\n")
    if CODE.search(head):
        stored = stored.removesuffix(b"\n") + b"\n\t# %d\n" % frames
    payload = stored.removesuffix(b"\n").removeprefix(b"\t").replace(b"\n\t", b"\n")
    digest = hashlib.md5(payload, usedforsecurity=False).hexdigest().encode()
    return DIGEST.sub(digest, head) + b"\n" + stored


SUITES: dict[str, Callable[[Options], Result]] = {"compile": compile_logs}
