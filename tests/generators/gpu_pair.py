"""Generates a synthetic GPU job: profiles, execution traces and recorder dumps of any number of ranks.

PYTHONPATH=tests python -m generators.gpu_pair FOLDER [--ranks N] [--steps N] [--layers N] [--seed N]

No GPU ran: the times are invented, the layout is that of torch 2.6 on CUDA, and `truth.json` says what is
linked to what.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from generators.files import Kept, write_files, write_truth
from generators.job import Job
from generators.training import simulate, train
from generators.truth import truth

WHOLE = Kept()


def write(job: Job, folder: Path, kept: Kept = WHOLE, *, compressed: bool = True) -> dict[str, Any]:
    """Writes the job, or what is kept of it, into a folder, with `truth.json` next to it; returns the truth."""
    recordings = simulate(job, train)
    write_files(job, recordings, folder, kept, compressed=compressed)
    facts = truth(job, recordings)
    write_truth(folder, facts)
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
