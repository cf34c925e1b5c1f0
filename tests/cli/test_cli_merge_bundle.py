"""`tracelink merge --bundle`."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Job, Run

from builders import execution_trace as et
from builders.bundle import unpacked
from builders.kineto import cpu_op, trace, write
from tracelink.open.offer import Kind, Offer


def profiles(folder: Path) -> str:
    for rank in (0, 1):
        write(folder / "in" / f"k_{rank}.json", trace(cpu_op(), rank=rank))
    return str(folder / "in")


@pytest.mark.parametrize("more", [(), ("--to", "perfetto-bundle")])
def test_it_is_short_for_the_format(tracelink: Run, job: Job, more: tuple[str, ...]) -> None:
    assert tracelink("merge", "traces/", "--bundle", *more).exit_code == 0
    assert job.asked["to"] == "perfetto-bundle"


def test_the_name_says_the_format_too(tracelink: Run, tmp_path: Path) -> None:
    result = tracelink("merge", profiles(tmp_path), "-o", "job.tar")
    assert result.exit_code == 0, result.stderr
    assert "wrote job.tar (10.2 kB, 2 events)" in result.stdout


def test_it_is_called_merged_where_nobody_says_how(tracelink: Run, tmp_path: Path) -> None:
    assert tracelink("merge", profiles(tmp_path), "--bundle").exit_code == 0
    assert list(unpacked(tmp_path / "merged.tar").files) == ["rank_0.json", "rank_1.json"]


def test_it_can_go_to_standard_output(tracelink: Run, tmp_path: Path) -> None:
    result = tracelink("merge", profiles(tmp_path), "--bundle", "-o", "-")
    (tmp_path / "job.tar").write_bytes(result.stdout_bytes)
    assert list(unpacked(tmp_path / "job.tar").files) == ["rank_0.json", "rank_1.json"]
    assert "wrote standard output" in result.stderr


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--to", "chakra"), "--bundle writes perfetto-bundle, and --to says chakra: leave out one of them."),
        (
            ("--window", "1s.."),
            "perfetto-bundle copies files as they are: --window, --steps and --only cannot cut inside them.",
        ),
        (("--args", "link"), "perfetto-bundle has no option 'args'"),
    ],
)
def test_what_does_not_go_with_it(tracelink: Run, tmp_path: Path, more: tuple[str, ...], said: str) -> None:
    result = tracelink("merge", profiles(tmp_path), "--bundle", *more)
    assert result.exit_code == 2
    assert said in result.stderr
    assert not list(tmp_path.glob("*.tar"))


def test_without_a_profile_there_is_nothing_to_bundle(tracelink: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "et_0.json", et.trace(et.thread_root(), et.process_root()))
    result = tracelink("merge", str(path), "--bundle")
    assert result.exit_code == 1
    assert result.stderr == (
        "tracelink: nothing to bundle: none of the inputs is a whole profile (Kineto JSON), which is what Perfetto "
        "loads. To draw everything that was recorded: tracelink merge, without --bundle.\n"
    )


def test_open_takes_it(tracelink: Run, tmp_path: Path) -> None:
    tracelink("merge", profiles(tmp_path), "--bundle")
    with Offer.of(tmp_path / "merged.tar") as offer:
        assert offer.kind is Kind.ARCHIVE
