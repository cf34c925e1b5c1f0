"""A dataset and a DuckDB file of a sample, written once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import tracelink
from tracelink import samples


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `job.parquet` and `job.duckdb` of the sample `gpu_pair`."""
    folder = tmp_path_factory.mktemp("written")
    for name in ("job.parquet", "job.duckdb"):
        tracelink.merge(samples.path("gpu_pair"), output=folder / name, options={"args": "all"}, jobs=1)
    return folder


@pytest.fixture
def dataset(written: Path, tmp_path: Path) -> Path:
    """A dataset that a test may damage."""
    return Path(shutil.copytree(written / "job.parquet", tmp_path / "job.parquet"))
