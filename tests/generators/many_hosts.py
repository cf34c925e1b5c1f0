"""Generates a synthetic job on many hosts, of which everything is known: clocks, collectives, messages.

PYTHONPATH=tests python -m generators.many_hosts FOLDER [--ranks 64] [--pause-ns N] [--sequence-numbers] ...

From Python, `job(folder, ranks=16, straggler_ns=500_000)` writes it and returns the truth.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from generators.cluster import Cluster, train
from generators.files import Kept, Padding, write_files, write_truth
from generators.training import simulate
from generators.truth import clocks, shared_truth

NOT_ON_THE_COMMAND_LINE = frozenset({"clocks", "start_ns"})
KEPT_WHOLE = Kept()


def job(folder: Path, kept: Kept = KEPT_WHOLE, **parameters: Any) -> dict[str, Any]:
    """Writes a job of these parameters of `Cluster`, or what is kept of it; returns the whole truth."""
    return write(Cluster(**parameters), folder, kept)


def write(
    cluster: Cluster,
    folder: Path,
    kept: Kept = KEPT_WHOLE,
    *,
    compressed: bool = False,
    padding: Padding | None = None,
) -> dict[str, Any]:
    """Writes the job into a folder, with `truth.json` next to it; returns the truth."""
    recordings = simulate(cluster, train)
    write_files(cluster, recordings, folder, kept, compressed=compressed, padding=padding)
    facts = {
        "job": asdict(cluster),
        "ranks": clocks(cluster, range(cluster.ranks)),
        "stragglers": [cluster.straggler(step) for step in range(1, cluster.steps + 1)],
        **shared_truth(cluster, recordings, kept),
    }
    write_truth(folder, facts, indent=None)
    return facts


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Generate a synthetic job on many hosts.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--compressed", action="store_true", help="gzip profiles and execution traces")
    defaults = Cluster()
    for name in (field.name for field in fields(Cluster) if field.name not in NOT_ON_THE_COMMAND_LINE):
        option, default = f"--{name.replace('_', '-')}", getattr(defaults, name)
        if isinstance(default, bool):
            parser.add_argument(option, action="store_true")
        else:
            parser.add_argument(option, type=type(default), default=default)
    arguments = vars(parser.parse_args())
    folder, compressed = arguments.pop("folder"), arguments.pop("compressed")
    write(Cluster(**arguments), folder, compressed=compressed)


if __name__ == "__main__":
    main()
