"""Damaged Chakra traces that once stopped a command: each is read, or reported in one sentence."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

import tracelink
from builders.data import shared
from tracelink.model.errors import TraceError, UnreadableError

SOUND = Path(__file__).parents[3] / "samples" / "gpu_pair"


@pytest.mark.foreign
@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("case", ["14410a2b", "52573f82", "b8b57d34", "f546b50b"])
def test_a_damaged_file_next_to_that_of_another_rank(case: str, tmp_path: Path) -> None:
    damaged = shared(f"crashes/chakra-{case}") / "job.0.et"
    tracelink.merge(SOUND, output=tmp_path / "et" / "job", to="chakra", jobs=1)
    paths = [damaged, tmp_path / "et" / "job.1.et"]
    assert not tracelink.validate(paths, jobs=1).valid
    for output in ("merged.json", "merged.pftrace"):
        with suppress(TraceError):
            tracelink.merge(paths, output=tmp_path / output, jobs=1)
    with suppress(TraceError):
        tracelink.merge(paths, output=tmp_path / "written" / "job", to="chakra", jobs=1)


@pytest.mark.foreign
@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("case", ["030e9972", "920469c3", "b8b57d34", "c6c1998a"])
def test_a_damaged_linked_trace(case: str, tmp_path: Path) -> None:
    damaged = shared(f"crashes/chakrajson-{case}") / "et_0.json"
    tracelink.merge(SOUND, output=tmp_path / "linked", to="chakra-json", jobs=1)
    paths = [damaged, tmp_path / "linked" / "et_1.json"]
    with pytest.raises(UnreadableError, match="not a Chakra trace, but of format chakra-json"):
        tracelink.validate(paths, jobs=1)
    for output in ("merged.json", "merged.pftrace", "merged.et/job"):
        with suppress(TraceError):
            tracelink.merge(paths, output=tmp_path / output, jobs=1)
