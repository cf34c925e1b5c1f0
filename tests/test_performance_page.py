"""The page about speed shows the numbers of the saved run."""

from __future__ import annotations

import subprocess
import sys

from builders.documentation import ROOT


def test_page_and_picture_agree_with_the_saved_results() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "page.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
