"""A merged trace in Perfetto's own UI, in a headless browser."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from builders.data import foreign
from builders.perfetto_native import read
from peers.merged_case import SAMPLES, SHARED, Case, Merged, merge
from peers.peers_cache import cache

pytestmark = pytest.mark.peer

SCREENSHOT = Path(__file__).parent / "perfetto_ui" / "screenshot.mjs"
OF_ALL_RANKS = ("time (UTC)", "  seconds since 1970")
"""What a native trace has after its ranks."""
EMPTY_PICTURE = 20_000
"""A picture of no trace has fewer bytes."""


@pytest.fixture(autouse=True)
def user_interface() -> None:
    if not (cache() / "ui-v52").exists():
        pytest.skip("there is no Perfetto UI; run tests/peers/perfetto_engine/fetch.sh")


@dataclass(frozen=True)
class Shown:
    """What the UI says of a trace once it shows it."""

    importErrors: int  # noqa: N815  the UI's own word
    outline: list[str]
    """The names of all tracks in their order, each indented below its parent."""
    title: str
    picture: Path


def show(merged: Merged, browser: str) -> Shown:
    picture = merged.path.with_suffix(".png")
    run = subprocess.run(
        ["node", str(SCREENSHOT), str(cache() / "ui-v52"), str(merged.path), str(picture), browser],
        env=os.environ | {"NODE_PATH": str(cache() / "node_modules")},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    return Shown(**json.loads(run.stdout), picture=picture)


@pytest.fixture(
    params=[*(SAMPLES[name] for name in ("cpu_job", "gpu_pair", "hung_job")), *foreign(*SHARED[:2])],
    ids=lambda case: case.name,
)
def case(request: pytest.FixtureRequest) -> Case:
    """The samples that are shipped, which include a pair with GPUs and a hung job, and recorded jobs."""
    found: Case = request.param
    return found


def test_the_ui_shows_the_tree_of_a_native_trace_as_it_was_written(
    case: Case, browser: str, tmp_path: Path
) -> None:
    """In the order of ranks and under their names; lanes of a thread as one track."""
    merged = merge(case, tmp_path / "merged.pftrace")
    shown = show(merged, browser)
    written = read(merged.path.read_bytes()).outline()
    assert shown.importErrors == 0
    tree = [*(name for name, _ in itertools.groupby(written)), *OF_ALL_RANKS]
    assert shown.outline[: len(tree)] == tree
    overview, *threads = shown.outline[len(tree) :]
    assert re.fullmatch(r"all ranks · world size \d+", overview)
    assert all(re.fullmatch(r" +rank \d+", thread) for thread in threads)
    assert shown.picture.stat().st_size > EMPTY_PICTURE


def test_the_ui_shows_every_process_and_thread_of_a_json_trace(
    case: Case, browser: str, tmp_path: Path
) -> None:
    """This version sorts processes itself, and adds their numbers to their names."""
    merged = merge(case, tmp_path / "merged.json")
    shown = show(merged, browser)
    assert shown.importErrors == 0
    names = [re.sub(r" \d+$", "", line.strip()) for line in shown.outline]
    drawn = {
        (event["pid"], event["tid"])
        for event in merged.events
        if event["ph"] == "X" or (event["ph"] == "i" and event["s"] == "t")
    }
    said = {
        event["args"]["name"]
        for event in merged.events
        if event["ph"] == "M"
        and (
            event["name"] == "process_name"
            or (event["name"] == "thread_name" and (event["pid"], event["tid"]) in drawn)
        )
    }
    assert said <= {*names, *map(str.strip, shown.outline)}
    assert shown.picture.stat().st_size > EMPTY_PICTURE
