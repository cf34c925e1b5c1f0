"""A merged trace in Perfetto's own UI, in a headless browser."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from peers.merged_case import CASES, merge
from peers.peers_cache import cache

pytestmark = pytest.mark.peer

SCREENSHOT = Path(__file__).parent / "perfetto_ui" / "screenshot.mjs"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
EMPTY_PICTURE = 20_000
"""A picture of no trace has fewer bytes."""


@pytest.fixture
def browser() -> str:
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if shutil.which("node") is None or found is None:
        pytest.skip("node or chromium is not installed")
    if not (cache() / "ui-v52").exists() or not (cache() / "node_modules" / "playwright-core").exists():
        pytest.skip("there is no Perfetto UI; run tests/peers/perfetto_engine/fetch.sh")
    return found


@pytest.mark.parametrize("name", ["cpu_job", "gpu_pair"])
def test_the_ui_shows_every_rank_without_an_error(name: str, browser: str, tmp_path: Path) -> None:
    case = next(case for case in CASES if case.name == name)
    merged = merge(case, tmp_path / "merged.json")
    picture = tmp_path / "picture.png"
    run = subprocess.run(
        ["node", str(SCREENSHOT), str(cache() / "ui-v52"), str(merged.path), str(picture), browser],
        env=os.environ | {"NODE_PATH": str(cache() / "node_modules")},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    seen = json.loads(run.stdout)
    assert seen["importErrors"] == 0
    assert all(any(f"rank {rank}" in group for group in seen["groups"]) for rank in (0, 1))
    assert picture.stat().st_size > EMPTY_PICTURE
