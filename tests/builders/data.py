"""Traces from elsewhere: they are next to the repository, not in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet

DATA = Path(__file__).parents[3] / "shared" / "data"


def shared(path: str) -> Path:
    """The file or folder `path` of the shared data. Its tests are marked `foreign`; without the data they fail."""
    found = DATA / path
    if not found.exists():
        pytest.fail(
            f"missing {found}: a test of shared data is marked foreign and runs where they are", pytrace=False
        )
    return found


def foreign(*cases: Any) -> list[ParameterSet]:
    """Parameters of a test that need shared data; a tuple is the values of one case."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.foreign)
        for case in cases
    ]
