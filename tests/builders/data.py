"""Real traces that lie beside the repository, where they are present."""

from __future__ import annotations

from pathlib import Path

import pytest

DATA = Path(__file__).parents[3] / "shared" / "data"


def shared(path: str) -> Path:
    """The file or folder `path` of the shared data; the test is skipped, and says what is missing, without it."""
    found = DATA / path
    if not found.exists():
        pytest.skip(f"there is no {found}")
    return found
