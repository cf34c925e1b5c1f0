"""The page of a diagnosis in a browser: it opens from disk, asks for nothing, and fits a phone and a sheet of paper."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from builders.dumps import dumps, hang
from builders.recorder import collective
from peers.peers_cache import cache
from tracelink._hang.examine import examine
from tracelink._hang.report import report_of
from tracelink._show import html

pytestmark = pytest.mark.peer

LOOK = Path(__file__).parent / "html_report" / "look.mjs"
LIGHT, DARK = "rgb(255, 255, 255)", "rgb(22, 24, 29)"
HOSTILE = '</title></style><script>alert(1)</script><img src="//host/x" onerror="alert(2)">'


def looked_at(folder: Path, entries: dict[int, Any], browser: str) -> dict[str, Any]:
    examined = examine([str(dumps(folder / "dumps", entries))])
    report = report_of(examined.diagnosis, examined.journal)
    (folder / "report.html").write_text(html.draw(report), "utf-8")
    run = subprocess.run(
        ["node", str(LOOK), str(folder / "report.html"), browser],
        env=os.environ | {"NODE_PATH": str(cache() / "node_modules")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    seen: dict[str, Any] = json.loads(run.stdout)
    return seen


def hostile() -> dict[int, Any]:
    """Rank 1 never joins the second collective of a group whose name is a page of its own."""
    group = (HOSTILE, HOSTILE)
    first, second = (collective(f"nccl:{HOSTILE}", number, group=group) for number in (1, 2))
    return {0: [first | {"retired": True, "state": "completed"}, second], 1: [first]}


@pytest.mark.parametrize("ranks", [4, 64])
def test_the_page_is_quiet_and_fits(ranks: int, browser: str, tmp_path: Path) -> None:
    seen = looked_at(tmp_path, hang(ranks, culprit=2), browser)
    assert (seen["complaints"], seen["requests"]) == ([], [])
    for name, (width, ground) in seen["widths"].items():
        media, scheme, room = name.split()
        assert ground == (DARK if (media, scheme) == ("screen", "dark") else LIGHT), name
        assert media == "print" or width <= int(room), name


def test_hostile_names_run_nothing_and_load_nothing(browser: str, tmp_path: Path) -> None:
    seen = looked_at(tmp_path, hostile(), browser)
    assert (seen["complaints"], seen["requests"]) == ([], [])
