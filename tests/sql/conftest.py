"""A dataset and a DuckDB file of a sample, written once."""

from __future__ import annotations

from pathlib import Path

import pytest

import tracelink
from tracelink import samples

NAMES = ("job.parquet", "job.duckdb")


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `job.parquet` and `job.duckdb` of the sample `gpu_pair`."""
    folder = tmp_path_factory.mktemp("written")
    for name in NAMES:
        tracelink.merge(samples.path("gpu_pair"), output=folder / name, options={"args": "all"}, jobs=1)
    return folder


@pytest.fixture(params=NAMES)
def source(request: pytest.FixtureRequest, written: Path) -> Path:
    """Each of them."""
    return written / str(request.param)
