"""The page of compile logs in a browser: deep links, artifacts, search by keyboard; it asks for nothing."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from builders.compile_log import artifact, log, metrics
from builders.data import shared
from peers.peers_cache import cache
from tracelink.compiling.html.page import write_page
from tracelink.compiling.report import read

pytestmark = pytest.mark.peer

CLICK = Path(__file__).parent / "compile_page" / "click.mjs"
GROUNDS = {"light": "rgb(255, 255, 255)", "dark": "rgb(22, 24, 29)"}
WIDTH = 1200
HOSTILE = '</title></script><script>alert(1)</script><img src="//host/x" onerror="alert(2)">'


def clicked(page: Path, traces: Path, browser: str, *arguments: str) -> dict[str, Any]:
    write_page(read([traces]), str(page))
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


def test_page_of_a_recorded_run(browser: str, tmp_path: Path) -> None:
    traces = shared("torch_trace/multirank_matched")
    seen = clicked(tmp_path / "p.html", traces, browser, "#c-2-0/0", "inductor_output_code", "rank 2 break")
    assert (seen["complaints"], seen["requests"]) == ([], [])
    for scheme, found in seen["schemes"].items():
        assert found["ground"] == GROUNDS[scheme]
        assert found["wide"] <= WIDTH
        assert (found["open"], found["focused"]) == (["c-2-0/0"], "c-2-0/0")
        assert found["text"].startswith("# AOT ID: ['0_forward']")
        assert (found["closed"], found["shown"]) == (True, 1)
        assert found["found"] == f"1 of {found['all']}"


def test_hostile_log_runs_nothing_and_loads_nothing(browser: str, tmp_path: Path) -> None:
    (tmp_path / "dedicated_log_torch_trace_rank_0_x.log").write_bytes(
        log(
            metrics("0/0", co_name=HOSTILE, fail_type=HOSTILE, fail_reason=HOSTILE),
            artifact("inductor_output_code", f"x = '{HOSTILE}\u202e'\n", "0/0"),
        )
    )
    seen = clicked(tmp_path / "p.html", tmp_path, browser, "#c-0-0/0", "inductor_output_code", "alert")
    assert (seen["complaints"], seen["requests"]) == ([], [])
    assert seen["schemes"]["light"]["text"] == f"x = '{HOSTILE}\\u202e'\n"
