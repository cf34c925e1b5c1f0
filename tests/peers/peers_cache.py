"""Where the peers are, once `perfetto_engine/fetch.sh` has fetched them."""

from __future__ import annotations

import os
from pathlib import Path

ENGINES = {"v52": "engine-v52", "v55": "engine-v55"}


def cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tracelink-peers"
