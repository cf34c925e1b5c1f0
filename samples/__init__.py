"""Small traces that come with the package, for a first try, for documentation and for tests."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

__all__ = ["names", "path"]

_SAMPLES = ("compile_job", "cpu_job", "gpu_metrics", "gpu_pair", "hung_job", "run_after", "run_before")


def names() -> tuple[str, ...]:
    """The samples there are; README.md beside this file says what each is."""
    return _SAMPLES


def path(name: str) -> Path:
    """The folder of a sample."""
    if name not in _SAMPLES:
        raise KeyError(f"there is no sample {name!r}; there are {', '.join(_SAMPLES)}")
    return Path(str(files(__name__).joinpath(name)))
