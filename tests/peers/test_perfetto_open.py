"""Perfetto's own UI, in a headless browser, fetches a job from the command that hands it over."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from peers.merged_case import SAMPLES, Case
from peers.peers_cache import cache
from tracelink._open.server import LOOPBACK, PORT

pytestmark = pytest.mark.peer

LOOK = Path(__file__).parent / "perfetto_ui" / "opened.mjs"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
TRACELINK = str(Path(sys.executable).parent / "tracelink")
PATIENCE = 120
EMPTY_PICTURE = 20_000
"""A picture of no trace has fewer bytes."""


@pytest.fixture
def ui(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The UI on an origin of its own, which it prints, and a browser that waits for an address."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if shutil.which("node") is None or found is None:
        pytest.skip("node or chromium is not installed")
    if not (cache() / "ui-v52").exists() or not (cache() / "node_modules" / "playwright-core").exists():
        pytest.skip("there is no Perfetto UI; run tests/peers/perfetto_engine/fetch.sh")
    process = subprocess.Popen(
        ["node", str(LOOK), str(cache() / "ui-v52"), str(tmp_path / "picture.png"), found],
        env=os.environ | {"NODE_PATH": str(cache() / "node_modules")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.communicate()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, f"it ended with exit code {process.wait(PATIENCE)}"
    return line.rstrip("\n")


def document_of(process: subprocess.Popen[str]) -> Any:
    lines = [line_of(process)]
    while lines[-1] != "}":
        lines.append(line_of(process))
    return json.loads("".join(lines))


def shown(ui: subprocess.Popen[str], page: str) -> Any:
    assert ui.stdin is not None
    ui.stdin.write(page + "\n")
    ui.stdin.flush()
    return json.loads(line_of(ui))


def wait_for_the_port() -> None:
    """There is one port that the UI asks, and other tests on this machine ask for it too."""
    deadline = time.monotonic() + PATIENCE
    while True:
        with closing(socket.socket()) as probe:
            if probe.connect_ex((LOOPBACK, PORT)):
                return
        assert time.monotonic() < deadline, f"{LOOPBACK}:{PORT} is taken"
        time.sleep(1)


def merged(case: Case, folder: Path) -> Path:
    path = folder / "merged.json.gz"
    subprocess.run(
        [TRACELINK, "merge", str(case.inputs), "-o", str(path), "-q"], check=True, timeout=PATIENCE
    )
    return path


@pytest.mark.parametrize("name", ["cpu_job", "gpu_pair"])
def test_the_ui_loads_it_pins_the_groups_and_ends_the_command(
    name: str, ui: subprocess.Popen[str], tmp_path: Path
) -> None:
    case = SAMPLES[name]
    path, origin = merged(case, tmp_path), line_of(ui)
    wait_for_the_port()
    command = [
        TRACELINK,
        "open",
        str(path),
        "--origin",
        origin,
        "--no-browser",
        "--json",
        "--timeout",
        str(PATIENCE),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        seen = shown(ui, document_of(process)["url"])
        assert process.wait(PATIENCE) == 0
    assert len(seen["fetched"]) == 1
    assert seen["title"].startswith("merged.json.gz")
    assert seen["importErrors"] == 0
    assert all(any(f"rank {rank}" in group for group in seen["groups"]) for rank in (0, 1))
    assert seen["pinned"]
    assert {"rank 0 steps and waits · row 1", "rank 1 steps and waits · row 2"} < set(seen["pinned"])
    assert {track for track in seen["tracks"] if track.startswith("group ")} < set(seen["pinned"])
    assert (tmp_path / "picture.png").stat().st_size > EMPTY_PICTURE


def test_what_merge_opens_also_shows_what_the_slowest_rank_did(
    ui: subprocess.Popen[str], tmp_path: Path
) -> None:
    case = SAMPLES["gpu_pair"]
    origin = line_of(ui)
    wait_for_the_port()
    command = [TRACELINK, "merge", str(case.inputs), "-o", str(tmp_path / "m.json"), "--open", "--json"]
    code = (
        f"from tracelink._open import server; server.UI = {origin!r}; from tracelink.cli import main; main()"
    )
    offline = {
        name: value
        for name, value in os.environ.items()
        if name not in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    }
    with subprocess.Popen(
        [sys.executable, "-P", "-c", code, *command[1:]], stdout=subprocess.PIPE, text=True, env=offline
    ) as process:
        document_of(process)
        seen = shown(ui, document_of(process)["url"])
        assert process.wait(PATIENCE) == 0
    assert seen["importErrors"] == 0
    (rank,) = {int(said[1]) for name in seen["pinned"] if (said := re.match(r"rank (\d+) stream", name))}
    streams = {
        track for track in seen["tracks"] if re.match(rf"rank {rank} stream \d+\b(?!.*\(\d+\))", track)
    }
    groups = {track for track in seen["tracks"] if track.startswith("group ")}
    assert streams
    summaries = {track for track in seen["tracks"] if "steps and waits" in track}
    assert len(summaries) == 2
    assert set(seen["pinned"]) == streams | groups | summaries
    assert seen["pinned"][-1] in groups
