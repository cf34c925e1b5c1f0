"""What tracelink writes of real jobs is valid, in either profile, and a fault in it is found."""

from __future__ import annotations

from pathlib import Path

import pytest

import tracelink
from builders.data import shared

WARNED = {"no_duration", "host_nodes", "comma_in_name", "rank_left_out"}


@pytest.fixture(params=["full", "astra-sim"])
def profile(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize(
    ("job", "ranks"), [("pairs/dlrm8", 8), ("pairs/resnet_110_nccl", 1), ("pairs/torch213_gloo2", 2)]
)
def test_what_is_written_is_valid(tmp_path: Path, job: str, ranks: int, profile: str) -> None:
    tracelink.merge(shared(job), output=tmp_path / "job", to="chakra", options={"profile": profile})
    validation = tracelink.validate(tmp_path)
    assert validation.violations == []
    assert ({rule.value for rule in validation.warning_counts} <= WARNED, len(validation.files)) == (
        True,
        ranks,
    )
    assert {file.profile for file in validation.files} == {profile}


def test_a_rank_that_was_written_and_is_gone_is_missed(tmp_path: Path) -> None:
    tracelink.merge(shared("pairs/dlrm8"), output=tmp_path / "job", to="chakra")
    (tmp_path / "job.7.et").unlink()
    assert [(one.rule.value, one.rank) for one in tracelink.validate(tmp_path).violations] == [
        ("missing_rank", 7)
    ]
