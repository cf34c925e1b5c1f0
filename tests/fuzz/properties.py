"""`PYTHONPATH=tests python -m fuzz.properties`: property tests with new examples until the time is over.

The exit code is 1 if an example fails.
"""

from __future__ import annotations

import argparse
import sys
import time
from random import Random, SystemRandom

import pytest


class Search:
    """A plugin of pytest that keeps the property tests only, in random order, and ends in time."""

    def __init__(self, seed: int, seconds: float) -> None:
        self.random = Random(seed)
        self.until = time.monotonic() + seconds

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Other tests would do the same again."""
        items[:] = [item for item in items if item.get_closest_marker("hypothesis")]
        self.random.shuffle(items)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self) -> bool | None:
        """Skips the tests that would start after the end."""
        return True if time.monotonic() > self.until else None


def main() -> int:
    """Runs property tests until the time is over."""
    parser = argparse.ArgumentParser(prog="fuzz.properties", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--seed", type=int, default=SystemRandom().getrandbits(32))
    arguments = parser.parse_args()
    print(f"--seed {arguments.seed}")
    options = [
        "-q",
        "-n",
        "0",
        "--tb",
        "short",
        "-m",
        "not peer and not foreign",
        "--hypothesis-profile",
        "search",
    ]
    seeded = [*options, "--hypothesis-seed", str(arguments.seed)]
    return int(pytest.main(seeded, plugins=[Search(arguments.seed, 60 * arguments.minutes)]))


if __name__ == "__main__":
    sys.exit(main())
