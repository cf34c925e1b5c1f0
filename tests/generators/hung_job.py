"""Generates the recorder dumps of a synthetic job that hangs, or of one with another fault.

PYTHONPATH=tests python -m generators.hung_job FOLDER [--fault KIND] [--ranks N] [--seed N]

`truth.json` says what is wrong. Nothing ran: the dumps are laid out as torch 2.9 writes them for NCCL.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from generators.recorded_jobs import FAULTS, Fault, Plan, RecordedJob, Snapshot, job

FAULT = Fault("never_joined", rank=3, role="mesh_dp")
"""That of the sample."""
WAIT_NS = 4_000_000_000


def write(recorded: RecordedJob, folder: Path) -> None:
    """Writes the dumps into `dumps/` in a folder, with `truth.json` next to them."""
    recorded.write(folder / "dumps")
    truth = asdict(recorded.truth) if recorded.truth else {}
    text = json.dumps(truth, indent=1, default=sorted)
    (folder / "truth.json").write_text(f"{text}\n", "utf-8")


def hung_job(fault: Fault = FAULT, ranks: int = 8, seed: int = 0) -> RecordedJob:
    """The sample; with another fault if that is asked for."""
    return job(Plan(world=ranks, seed=seed), fault, Snapshot(wait_ns=WAIT_NS))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Generate the dumps of a job that hangs.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--fault", choices=FAULTS, help="another fault, in some rank")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    said = parser.parse_args()
    fault = Fault(said.fault) if said.fault else FAULT
    write(hung_job(fault, said.ranks, said.seed), said.folder)


if __name__ == "__main__":
    main()
