"""The page of a summary in a browser: tables sort and filter by keyboard, rows say commands; it asks for nothing."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import tracelink
from builders.data import shared
from peers.peers_cache import cache
from tracelink import samples
from tracelink._store.results import save

pytestmark = pytest.mark.peer

CLICK = Path(__file__).parent / "report_page" / "click.mjs"
GROUNDS = {"light": "rgb(255, 255, 255)", "dark": "rgb(22, 24, 29)"}
WIDTH = 1200


def clicked(page: Path, browser: str, *arguments: str) -> dict[str, Any]:
    run = subprocess.run(
        ["node", str(CLICK), str(page), browser, *arguments, *filter(None, [os.environ.get("PICTURES")])],
        env=os.environ | {"NODE_PATH": str(cache() / "node_modules")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    seen: dict[str, Any] = json.loads(run.stdout)
    return seen


def test_steps_sort_filter_and_open(browser: str, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    save(tracelink.summary(samples.path("run_after")), page)
    seen = clicked(page, browser, "Steps, the longest first", "idle", "1.444")
    assert (seen["complaints"], seen["requests"]) == ([], [])
    for scheme, found in seen["schemes"].items():
        assert found["ground"] == GROUNDS[scheme]
        assert found["wide"] <= WIDTH
        times = [float(text) for text in found["ascending"]]
        assert (times, found["sorted"]) == (sorted(times), "ascending")
        assert [float(text) for text in found["descending"]] == sorted(times, reverse=True)
        assert (found["all"], len(times)) == (12, 12)
        assert len(found["filtered"]) == 1
        assert found["command"].startswith("tracelink merge ")
        assert found["command"].endswith(" --open")


@pytest.mark.foreign
def test_recorded_job(browser: str, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    save(tracelink.summary(shared("matched8")), page)
    seen = clicked(page, browser, "Steps, the longest first", "compute", "114.752")
    assert (seen["complaints"], seen["requests"]) == ([], [])
