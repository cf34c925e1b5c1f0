"""The page says what profiles show under a problem."""

from __future__ import annotations

import re
from pathlib import Path

import tracelink
from builders.dumps import dumps, hang
from builders.kineto import cpu_op, python_frame
from builders.profiles import call, loading, profile
from tracelink.diagnosis.html.page import html_report

FACT = re.compile(r"<dt>(.*?)</dt>\s*<dd>(.*?)</dd>")
TAG = re.compile(r"<[^>]+>")


def page(folder: Path) -> str:
    """Rank 2 loads data while the others wait."""
    dumps(folder / "dumps", hang(4, culprit=2))
    profile(folder / "traces", 2, call(1), call(2), loading(2.3, 6.8))
    profile(folder / "traces", 0, call(1), until=2)
    examined = tracelink.examine(folder, jobs=1)
    return html_report(examined.diagnosis, examined.journal)


def facts(text: str, rank: int) -> list[tuple[str, str]]:
    """What stands under the heading of a rank."""
    _, _, below = text.partition(f"In the profile of rank {rank} ")
    own = below.partition("<h3>")[0].partition("<h2")[0]
    return [(name, TAG.sub("", said)) for name, said in FACT.findall(own)]


def test_what_the_profile_of_the_culprit_shows(tmp_path: Path) -> None:
    assert facts(page(tmp_path), 2) == [
        ("Call", "all_reduce #2"),
        (
            "Operators",
            "DistributedDataParallel.forward → c10d::allreduce_ → record_param_comms on thread 4200",
        ),
        ("Functions", "main (train.py:100) → step (train.py:20)"),
        ("Carried out by", "ncclDevKernel_AllReduce_Sum_f32_RING_LL on stream 20, 1.0 ms"),
        (
            "Then",
            "for 4.5 s of 5.0 s main (train.py:100) → batches (data.py:12) → "
            "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__ on thread 4200",
        ),
        ("It ends at", "06:29:26.603435 UTC"),
    ]


def test_a_profile_that_ends_before_says_so_and_shows_an_earlier_call(tmp_path: Path) -> None:
    text = page(tmp_path)
    assert "Note: it ends 1.0 s before this call." in text
    assert facts(text, 0)[0] == ("Call", "all_reduce #1 (2 before this one)")


def test_names_from_profiles_are_text_and_no_markup(tmp_path: Path) -> None:
    dumps(tmp_path / "dumps", hang(4, culprit=2))
    around = [
        cpu_op("<script>alert(1)</script>", 2e6 - 900, 2000),
        python_frame("<b>.py(3): x", 2e6 - 800, 1800),
    ]
    profile(tmp_path / "traces", 2, around, call(2))
    examined = tracelink.examine(tmp_path, jobs=1)
    text = html_report(examined.diagnosis, examined.journal)
    assert "&lt;script&gt;alert(1)" in text
    assert "<script" not in text
    assert "<b>" not in text
