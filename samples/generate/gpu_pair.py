"""Generates a synthetic GPU job: profiles, execution traces and recorder dumps of any number of ranks.

python -m tracelink.samples.generate.gpu_pair FOLDER [--ranks N] [--steps N] [--layers N] [--seed N]

No GPU ran: the times are invented, the layout is that of torch 2.6 on CUDA, and `truth.json` says what is
linked to what.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tracelink.samples.generate.execution_trace_text import execution_trace
from tracelink.samples.generate.flight_recorder import pickled
from tracelink.samples.generate.job import Job
from tracelink.samples.generate.kineto_text import KinetoText
from tracelink.samples.generate.recorder_dump import recorder_dump
from tracelink.samples.generate.recording import Recording
from tracelink.samples.generate.simulation import simulate
from tracelink.samples.generate.truth import truth


def generate(job: Job) -> tuple[dict[str, bytes], dict[str, Any]]:
    """The files of the job, by their names, and the truth about them."""
    recordings = simulate(job)
    files = {name: content for one in recordings for name, content in rank_files(job, one)}
    return files, truth(job, recordings)


def rank_files(job: Job, recording: Recording) -> Iterator[tuple[str, bytes]]:
    """The files of one rank, uncompressed."""
    rank = recording.rank
    yield f"kineto_{rank}.json", KinetoText(job, recording).text().encode()
    yield f"et_{rank}.json", json.dumps(execution_trace(job, recording)).encode()
    yield f"dumps/comm_lib_trace_rank_{rank}", pickled(recorder_dump(job, recording))


def write(job: Job, folder: Path, *, compressed: bool = True) -> dict[str, Any]:
    """Writes the job into a folder, with `truth.json` beside it; returns the truth."""
    files, facts = generate(job)
    for name, content in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if compressed and file.parent == folder:
            file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(content, 9, mtime=0))
        else:
            file.write_bytes(content)
    (folder / "truth.json").write_text(json.dumps(facts, indent=1) + "\n")
    return facts


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Generate a synthetic GPU job.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--plain", action="store_true", help="do not compress")
    defaults = Job()
    for name in ("ranks", "steps", "layers", "seed", "clock_skew_ns"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=getattr(defaults, name))
    arguments = vars(parser.parse_args())
    folder, plain = arguments.pop("folder"), arguments.pop("plain")
    write(Job(**arguments), folder, compressed=not plain)


if __name__ == "__main__":
    main()
