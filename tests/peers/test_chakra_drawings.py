"""Drawings of Chakra traces in graphviz and in a browser: both take them, whatever the names in them are."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from builders.chakra_files import EtFile, scene_of
from tracelink.converters.chakra.drawings import ARRANGED, dot, svg

pytestmark = pytest.mark.peer

HOSTILE = '</title></style><script>document.title = "run"</script>" \\N \\" ]]> &lt; &#65; \n\0 -> b; } //'
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def job(kernels: int) -> EtFile:
    trace = EtFile()
    outer = trace.operator(HOSTILE, 0, 10 * kernels)
    for number in range(kernels):
        trace.kernel(f"{HOSTILE}{number}", 10 * number, 8, outer, stream=7)
    return trace


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize("kernels", [3, ARRANGED + 1, 1500])
def test_graphviz_draws_it_soon_and_without_a_complaint(kernels: int, tmp_path: Path) -> None:
    program = shutil.which("dot")
    if program is None:
        pytest.skip("graphviz is not installed")
    (tmp_path / "job.dot").write_text("".join(dot(scene_of(job(kernels)), HOSTILE)))
    result = run(program, "-Tsvg", str(tmp_path / "job.dot"))
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.count('<g id="node') == kernels + 1
    assert result.stdout.count('<g id="edge') == kernels
    assert "<script" not in result.stdout


def test_a_browser_shows_it_and_runs_nothing(tmp_path: Path) -> None:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip("no browser is installed")
    (tmp_path / "job.svg").write_text("".join(svg(scene_of(job(3)), HOSTILE)))
    shown = run(
        browser,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path / 'browser'}",
        "--dump-dom",
        (tmp_path / "job.svg").as_uri(),
    ).stdout
    assert shown.count('class="box"') == 4
    assert "<script" not in shown
    assert "parsererror" not in shown
