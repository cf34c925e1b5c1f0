"""The synthetic runs are what their generator writes."""

from __future__ import annotations

import gzip
from pathlib import Path

from generators.jobs import two_runs
from tracelink import samples


def test_the_samples_are_what_the_generator_writes(tmp_path: Path) -> None:
    two_runs(tmp_path)
    for sample in ("run_before", "run_after"):
        made = sorted(path.name for path in (tmp_path / sample).iterdir())
        assert made == sorted(path.name for path in samples.path(sample).iterdir())
        for name in made:
            written, kept = (
                (folder / name).read_bytes() for folder in (tmp_path / sample, samples.path(sample))
            )
            assert gzip.decompress(written) == gzip.decompress(kept)
