"""Generates what nvidia-smi would have sampled next to the synthetic sample gpu_pair: GPU 1 is hot and runs slower.

PYTHONPATH=tests python -m generators.gpu_metrics FOLDER

No GPU ran: the values are invented, the layout is that of `nvidia-smi --query-gpu=... --format=csv -lms 100`.
"""

from __future__ import annotations

import argparse
from datetime import datetime, timedelta
from pathlib import Path
from random import Random

NAME = "nvidia_smi.csv"
HEADER = (
    "timestamp, index, uuid, utilization.gpu [%], memory.used [MiB], power.draw [W], temperature.gpu, "
    "clocks.current.sm [MHz], clocks.current.memory [MHz]"
)
UUIDS = ("GPU-5d0a4c3e-0a51-4c6f-9c55-1f0e6b1f7a00", "GPU-5d0a4c3e-0a51-4c6f-9c55-1f0e6b1f7a01")
FIRST = datetime(2025, 3, 1, 8, 5, 59, 513_000)
"""Half a second before the job; the clock of the machine is in UTC."""
ROUNDS = 12
INTERVAL = timedelta(milliseconds=100)
BETWEEN = timedelta(milliseconds=4)
"""From one GPU to the next."""
LEVELS = ((655, 61, 1980), (430, 87, 1410))
"""Power, temperature and clock of each GPU at work."""


def text() -> str:
    """The whole file."""
    random = Random(1)
    lines = [HEADER]
    for number in range(ROUNDS):
        for gpu, (power, temperature, clock) in enumerate(LEVELS):
            time = FIRST + number * INTERVAL + gpu * BETWEEN
            stamp = f"{time:%Y/%m/%d %H:%M:%S}.{time.microsecond // 1000:03}"
            drawn = power + random.uniform(-8, 8)
            used = random.randint(93, 99)
            lines.append(
                f"{stamp}, {gpu}, {UUIDS[gpu]}, {used} %, 40211 MiB, {drawn:.2f} W, {temperature}, {clock} MHz, "
                "2619 MHz"
            )
    return "\n".join(lines) + "\n"


def write(folder: Path) -> None:
    """Writes the file into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / NAME).write_text(text())


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Generate samples of nvidia-smi for the sample gpu_pair.")
    parser.add_argument("folder", type=Path)
    write(parser.parse_args().folder)


if __name__ == "__main__":
    main()
