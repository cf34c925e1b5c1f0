from __future__ import annotations

import shutil

import pytest

from peers.peers_cache import ENGINES, cache
from peers.perfetto_process import PerfettoEngine

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture
def browser() -> str:
    """The path of a browser that Playwright can drive."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if shutil.which("node") is None or found is None:
        pytest.skip("node or chromium is not installed")
    if not (cache() / "node_modules" / "playwright-core").exists():
        pytest.skip("there is no playwright; run tests/peers/perfetto_engine/fetch.sh")
    return found


@pytest.fixture(scope="session", params=list(ENGINES))
def engine(request: pytest.FixtureRequest) -> PerfettoEngine:
    node = shutil.which("node")
    folder = cache() / ENGINES[request.param]
    if node is None:
        pytest.skip("node is not installed")
    if not folder.exists():
        pytest.skip(f"there is no Perfetto engine {request.param}; run tests/peers/perfetto_engine/fetch.sh")
    return PerfettoEngine(request.param, folder, node)
