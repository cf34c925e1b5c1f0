"""`tracelink.pytest`: a benchmark is recorded by a fixture, and gives facts."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from builders import fake_torch as torch_package

pytest_plugins = ["pytester"]

UNUSED = """
import sys
before = set(sys.modules)
import tracelink.pytest
later = {name for name in set(sys.modules) - before if name.partition(".")[0] in ("torch", "numpy", "msgspec")}
later |= {name for name in sys.modules if name.startswith("tracelink.")}
print(*sorted(later))
"""


def test_the_plugin_imports_nothing_until_it_is_used() -> None:
    result = subprocess.run(
        [sys.executable, "-c", UNUSED], capture_output=True, text=True, check=True, cwd=torch_package.ROOT
    )
    assert result.stdout.split() == ["tracelink._model", "tracelink.pytest"]


@pytest.fixture
def harness(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder of benchmarks, whose torch is the fake."""
    torch_package.write(pytester.path / "lib")
    monkeypatch.setenv("PYTHONPATH", torch_package.path(pytester.path / "lib"))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    for name in (
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        *filter(lambda name: name.startswith("TRACELINK"), os.environ),
    ):
        monkeypatch.delenv(name, raising=False)
    return pytester


def passed(harness: pytest.Pytester, code: str, *options: str, count: int = 1) -> None:
    harness.makepyfile(code)
    harness.runpytest_subprocess("-p", "tracelink.pytest", *options, timeout=120).assert_outcomes(
        passed=count
    )


def test_a_function_is_called_and_its_last_calls_are_recorded(harness: pytest.Pytester) -> None:
    passed(
        harness,
        """
        def test_it(tracelink_capture):
            calls = []
            recorded = tracelink_capture(calls.append, 1, steps=2, warmup=3, metrics=None)
            assert calls == [1] * 5
            assert recorded is tracelink_capture.recorded
            assert recorded.files == ["capture_0.json", "et_0.json.gz", "kineto_0.json.gz"]
            assert recorded.problems == ()
            import torch
            assert [call for call in torch.FAKE.calls if call.startswith("begin")] == [
                "begin ProfilerStep#3", "begin ProfilerStep#4"
            ]
        """,
    )


FACTS = """
import gzip, json, pytest
from pathlib import Path
from tracelink.pytest import Recorded, Step

def test_it(tmp_path):
    recorded = Recorded(Path(r"{samples}"), ())
    assert [(step.rank, step.step) for step in recorded.steps] == [(0, 1), (0, 2), (1, 1), (1, 2)]
    assert all(0.001 < step.seconds < 10 for step in recorded.steps)
    assert recorded.link_rates["same.et_kineto"] == 1.0
    totals = {{(total.group, total.operation): total.count for total in recorded.collectives}}
    assert totals["0", "all_reduce"] > 1
    facts = json.loads(json.dumps(recorded.facts()))
    assert sorted(facts) == ["collectives", "link_rates", "problems", "steps", "traces"]
    assert (facts["problems"], len(facts["steps"])) == ([], 4)
    assert recorded.graph() is recorded.graph()
"""


def test_the_facts_of_a_recording(harness: pytest.Pytester) -> None:
    passed(harness, FACTS.format(samples=torch_package.ROOT / "samples" / "cpu_job"))


def test_blocks_are_recorded_into_folders_of_their_own(harness: pytest.Pytester) -> None:
    passed(
        harness,
        """
        import pytest

        @pytest.mark.parametrize("size", [1, 2])
        def test_it(tracelink_capture, size):
            folders = []
            for _ in range(2):
                with tracelink_capture.block("0", metrics=None) as capture:
                    capture.step()
                folders.append(tracelink_capture.recorded.folder)
            assert folders[1] == folders[0] / "1"
        """,
        "--tracelink-traces=kept",
        count=2,
    )
    names = sorted(path.name for path in (harness.path / "kept").iterdir())
    assert names == [
        f"test_blocks_are_recorded_into_folders_of_their_own.py-test_it-{size}" for size in (1, 2)
    ]


def test_an_exception_of_a_benchmark_passes_through(harness: pytest.Pytester) -> None:
    passed(
        harness,
        """
        import pytest
        from tracelink import UsageError

        def test_it(tracelink_capture):
            with pytest.raises(ZeroDivisionError):
                tracelink_capture(lambda: 1 / 0)
            with pytest.raises(UsageError):
                tracelink_capture(print, steps=0)
        """,
    )


def test_what_cannot_be_recorded_never_fails_a_benchmark(
    harness: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    (harness.path / "lib" / "torch" / "__init__.py").write_text("raise ImportError('no torch here')")
    passed(
        harness,
        """
        def test_it(tracelink_capture):
            facts = tracelink_capture(lambda: None).facts()
            torch, steps, files = facts["problems"]
            assert torch == "capture: ImportError: no torch here"
            assert steps == "steps: not recorded: steps 2-4; the block ended after 5 steps"
            assert "no files" in files
            assert "steps" not in facts
        """,
    )
