"""The page of compile logs in a browser: deep links, artifacts, search by keyboard; it asks for nothing."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from builders.compile_log import artifact, log, metrics
from builders.compile_reading import read
from builders.data import shared
from peers.peers_cache import cache
from tracelink._compile.report import report_of
from tracelink._show.html import draw

pytestmark = pytest.mark.peer

CLICK = Path(__file__).parent / "compile_page" / "click.mjs"
GROUNDS = {"light": "rgb(255, 255, 255)", "dark": "rgb(22, 24, 29)"}
WIDTH = 1200
HOSTILE = '</title></script><script>alert(1)</script><img src="//host/x" onerror="alert(2)">'


def clicked(page: Path, traces: Path, browser: str, *arguments: str) -> dict[str, Any]:
    logs = read([traces])
    page.write_text(draw(report_of(logs.report, logs)))
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


@pytest.mark.foreign
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


PRE = """\
class GraphModule(torch.nn.Module):
    def forward(self, x):
        # File: train.py:7 in step
        h: "f32[8]" = torch.nn.functional.gelu(x)
        y: "f32[8]" = h + 1
"""
POST = """\
class GraphModule(torch.nn.Module):
    def forward(self, x):
        mul: "f32[8]" = torch.ops.aten.mul.Tensor(x, 0.5)
        erf: "f32[8]" = torch.ops.aten.erf.default(x)
        add: "f32[8]" = torch.ops.aten.add.Tensor(erf, 1)
"""
CODE = """\
cpp_fused_gelu_0 = async_compile.cpp('''
void kernel() {}
''')
def call(args):
    # [Provenance debug handles] cpp_fused_gelu_0:1
    cpp_fused_gelu_0(x)
    del x
    # [Provenance debug handles] extern_kernels.addmm:2
    extern_kernels.addmm(x)
"""
KERNELS = {"cpp_fused_gelu_0:1": ["mul", "erf"], "extern_kernels.addmm:2": ["add"]}


def test_graphs_and_code_side_by_side(browser: str, tmp_path: Path) -> None:
    """The node after the passes comes from a node before them, and is computed by the kernel and its call."""
    mapping = {
        "preToPost": {"h": ["mul", "erf"], "y": ["add"]},
        "postToPre": {"mul": ["h"], "erf": ["h"], "add": ["y"]},
        "cppCodeToPost": KERNELS,
        "postToCppCode": {
            "mul": ["cpp_fused_gelu_0:1"],
            "erf": ["cpp_fused_gelu_0:1"],
            "add": ["extern_kernels.addmm:2"],
        },
    }
    (tmp_path / "dedicated_log_torch_trace_rank_0_x.log").write_bytes(
        log(
            metrics("0/0", co_name="step"),
            artifact("before_pre_grad_graph", PRE, "0/0"),
            artifact("inductor_post_grad_graph", POST, "0/0"),
            artifact("inductor_output_code", CODE, "0/0"),
            artifact("inductor_provenance_tracking_node_mappings", json.dumps(mapping), "0/0"),
        )
    )
    seen = clicked(tmp_path / "p.html", tmp_path, browser, "#c-0-0/0", "inductor_output_code", "step")
    assert (seen["complaints"], seen["requests"]) == ([], [])
    assert seen["sides"] == {
        "marked": [
            ['y: "f32[8]" = h + 1'],
            ['add: "f32[8]" = torch.ops.aten.add.Tensor(erf, 1)'],
            ["# [Provenance debug handles] extern_kernels.addmm:2", "extern_kernels.addmm(x)"],
        ],
        "left": 0,
        "closed": True,
    }


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
