"""Damaged Chakra traces that once stopped a command: each is read, or reported in one sentence."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

import tracelink
from builders.data import foreign, shared
from fuzz.mutations import mutated
from fuzz.seeds import Seed
from tracelink._model.errors import TraceError, UnreadableError

CHAKRA, LINKED = (
    ("14410a2b", "52573f82", "b8b57d34", "f546b50b"),
    ("030e9972", "920469c3", "b8b57d34", "c6c1998a"),
)
SOUND = Path(__file__).parents[3] / "samples" / "gpu_pair"


def damaged(case: str, sound: Path, damage: str) -> Path:
    """The shared file of this name, or a mutation of this number."""
    if damage.startswith("crashes"):
        return shared(damage) / sound.name
    name, data = mutated(Seed(case, sound.name, sound.read_bytes()), Random(damage))
    (sound.parent / "damaged").mkdir()
    (sound.parent / "damaged" / name).write_bytes(data)
    return sound.parent / "damaged" / name


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("damage", [*"1234", *foreign(*(f"crashes/chakra-{case}" for case in CHAKRA))])
def test_a_damaged_file_next_to_that_of_another_rank(damage: str, tmp_path: Path) -> None:
    tracelink.merge(SOUND, output=tmp_path / "et" / "job", to="chakra", jobs=1)
    paths = [damaged("chakra", tmp_path / "et" / "job.0.et", damage), tmp_path / "et" / "job.1.et"]
    assert not tracelink.validate(paths, jobs=1).valid
    for output in ("merged.json", "merged.pftrace"):
        with suppress(TraceError):
            tracelink.merge(paths, output=tmp_path / output, jobs=1)
    with suppress(TraceError):
        tracelink.merge(paths, output=tmp_path / "written" / "job", to="chakra", jobs=1)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("damage", [*"1234", *foreign(*(f"crashes/chakrajson-{case}" for case in LINKED))])
def test_a_damaged_linked_trace(damage: str, tmp_path: Path) -> None:
    tracelink.merge(SOUND, output=tmp_path / "linked", to="chakra-json", jobs=1)
    linked = tmp_path / "linked"
    paths = [damaged("chakra-json", linked / "et_0.json", damage), linked / "et_1.json"]
    with pytest.raises(UnreadableError, match="not a Chakra trace, but of format chakra-json"):
        tracelink.validate(paths, jobs=1)
    for output in ("merged.json", "merged.pftrace", "merged.et/job"):
        with suppress(TraceError):
            tracelink.merge(paths, output=tmp_path / output, jobs=1)
