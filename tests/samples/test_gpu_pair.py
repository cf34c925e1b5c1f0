"""The synthetic sample is what its generator writes."""

from __future__ import annotations

import gzip
from pathlib import Path

from generators.jobs import gpu_pair, truth_file
from tracelink import samples


def test_the_sample_is_what_the_generator_writes(tmp_path: Path) -> None:
    sample = samples.path("gpu_pair")
    gpu_pair(tmp_path)
    names = sorted(path.relative_to(sample) for path in sample.rglob("*") if path.is_file())
    assert names == sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file())
    assert [content(tmp_path / name) for name in names] == [content(sample / name) for name in names]
    assert truth_file(tmp_path).read_bytes() == truth_file(sample).read_bytes()


def content(path: Path) -> bytes:
    """The bytes before they were compressed: how well is the library's matter."""
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data
