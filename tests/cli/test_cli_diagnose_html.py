"""`tracelink diagnose --html`: the page beside the answer."""

from __future__ import annotations

import gzip
from pathlib import Path

import orjson
import pytest
from conftest import Run

from builders.dumps import dumps, hang
from builders.html_page import read_html

VERDICT = "Rank 2 never joined all_reduce #3 of group 0 (default_pg)"


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Rank 2 of four never joins the third collective."""
    return str(dumps(tmp_path / "dumps", hang(ranks=4, culprit=2)))


def verdict(page: bytes) -> str:
    return read_html(page.decode()).one("h1").text


def test_the_answer_is_the_same_and_the_page_lies_beside_it(
    tracelink: Run, folder: str, tmp_path: Path
) -> None:
    alone = tracelink("diagnose", folder)
    result = tracelink("diagnose", folder, "--html", "report.html")
    page = (tmp_path / "report.html").read_bytes()
    assert (result.exit_code, result.stdout) == (1, alone.stdout)
    assert result.stderr == f"Wrote report.html: {len(page) / 1000:.1f} kB.\n"
    assert verdict(page) == alone.stdout.partition("\n")[0]
    assert verdict(page).startswith(VERDICT)


def test_json_stays_one_document(tracelink: Run, folder: str, tmp_path: Path) -> None:
    result = tracelink("diagnose", folder, "--json", "--html", "report.html")
    assert orjson.loads(result.stdout)["problems"][0]["culprits"] == [2]
    assert result.stderr == ""
    assert verdict((tmp_path / "report.html").read_bytes()).startswith(VERDICT)


def test_a_name_that_ends_in_gz_is_compressed(tracelink: Run, folder: str, tmp_path: Path) -> None:
    assert tracelink("diagnose", folder, "--html", "report.html.gz").exit_code == 1
    assert verdict(gzip.decompress((tmp_path / "report.html.gz").read_bytes())).startswith(VERDICT)


def test_a_place_that_cannot_be_written_is_said_after_the_answer(tracelink: Run, folder: str) -> None:
    result = tracelink("diagnose", folder, "--html", "absent/report.html")
    assert result.exit_code == 1
    assert result.stdout.startswith(VERDICT)
    assert "absent/report.html: cannot be written: no such file or directory." in result.stderr


def test_a_directory_is_refused(tracelink: Run, folder: str) -> None:
    result = tracelink("diagnose", folder, "--html", folder)
    assert (result.exit_code, result.stdout) == (2, "")


def test_standard_output_is_for_the_answer(tracelink: Run, folder: str, tmp_path: Path) -> None:
    result = tracelink("diagnose", folder, "--html", "-")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Name a file, such as report.html." in result.stderr
    assert not (tmp_path / "-").exists()


def test_nothing_readable_writes_no_page(tracelink: Run, tmp_path: Path) -> None:
    (tmp_path / "comm_lib_trace_rank_0").write_bytes(b"\x80\x02junk")
    assert tracelink("diagnose", "comm_lib_trace_rank_0", "--html", "report.html").exit_code == 3
    assert not (tmp_path / "report.html").exists()
