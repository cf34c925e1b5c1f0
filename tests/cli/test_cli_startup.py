"""Starting costs little: help needs none of the libraries that the work needs."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"isal", "msgspec", "networkx", "numpy", "orjson", "rich"}


@pytest.mark.parametrize(
    "statement",
    [
        "import tracelink",
        "import tracelink.cli",
        "from tracelink.cli import main; main(['--help'], standalone_mode=False)",
    ],
)
def test_no_heavy_library_is_imported(statement: str) -> None:
    code = f"import sys; {statement}; print(*sys.modules, file=sys.stderr)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert HEAVY.isdisjoint(result.stderr.split())
