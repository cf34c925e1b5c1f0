"""`tracelink merge --to chakra`: the options of the writer, and what is said of it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from conftest import Job, Run

from builders.kineto import cpu_op, trace, write
from tracelink.converters.chakra.decode import decode


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((), {}),
        (("--profile", "astra-sim"), {"profile": "astra-sim"}),
        (("--deps", "data", "--gaps"), {"deps": "data", "gaps": "yes"}),
    ],
)
def test_options_are_handed_on(
    tracelink: Run, job: Job, arguments: tuple[str, ...], options: dict[str, Any]
) -> None:
    assert tracelink("merge", "traces/", "--to", "chakra", *arguments).exit_code == 0
    assert job.asked["options"] == options
    assert job.asked["to"] == "chakra"


@pytest.mark.parametrize("arguments", [("--profile", "some"), ("--deps", "none")])
def test_words_that_there_are_not(tracelink: Run, arguments: tuple[str, str]) -> None:
    result = tracelink("merge", "traces/", "--to", "chakra", *arguments)
    assert result.exit_code == 2
    assert "is not one of" in result.stderr


class TestFiles:
    @pytest.fixture
    def profiles(self, tmp_path: Path) -> Path:
        for rank in (0, 1):
            write(tmp_path / "in" / f"k_{rank}.json", trace(cpu_op("aten::add", 2), rank=rank))
        return tmp_path / "in"

    def test_a_file_for_each_rank(self, tracelink: Run, profiles: Path, tmp_path: Path) -> None:
        result = tracelink("merge", str(profiles), "--to", "chakra", "-o", str(tmp_path / "et" / "job"))
        assert result.exit_code == 0, result.stderr
        assert sorted(path.name for path in (tmp_path / "et").iterdir()) == [
            "job.0.et",
            "job.1.et",
            "job.groups.json",
        ]

    def test_standard_output(self, tracelink: Run, profiles: Path) -> None:
        result = tracelink("merge", str(profiles / "k_0.json"), "--to", "chakra", "-o", "-")
        assert result.exit_code == 0, result.stderr
        decoded = decode(io.BytesIO(result.stdout_bytes))
        assert (len(decoded.nodes), decoded.faults) == (1, [])

    def test_standard_output_takes_one(self, tracelink: Run, profiles: Path) -> None:
        result = tracelink("merge", str(profiles), "--to", "chakra", "-o", "-")
        assert result.exit_code == 2
        assert "standard output takes one file, and these are 2 ranks" in " ".join(result.stderr.split())
        assert "-o et/job" in result.stderr

    def test_options_of_another_format(self, tracelink: Run, profiles: Path, tmp_path: Path) -> None:
        result = tracelink("merge", str(profiles), "-o", str(tmp_path / "a.json"), "--profile", "full")
        assert result.exit_code == 2
        assert "perfetto-json has no option 'profile'" in " ".join(result.stderr.split())
        assert not (tmp_path / "a.json").exists()

    def test_gaps_of_threads_that_are_not_written(
        self, tracelink: Run, profiles: Path, tmp_path: Path
    ) -> None:
        result = tracelink(
            "merge",
            str(profiles),
            "--to",
            "chakra",
            "--profile",
            "astra-sim",
            "--gaps",
            "-o",
            str(tmp_path / "job"),
        )
        assert result.exit_code == 2
        assert "Leave out --gaps" in result.stderr
