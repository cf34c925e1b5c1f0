"""Which files are recognised as metrics, and which are not."""

from __future__ import annotations

import pytest

from builders.data import DATA, shared
from tracelink.converters.metrics import dialect_of


@pytest.mark.foreign
@pytest.mark.parametrize(
    ("name", "dialect"),
    [
        ("amd_smi_monitor.csv", "csv"),
        ("dcgm_exporter.prom", "prometheus"),
        ("dcgmi_dmon.txt", "dcgmi"),
        ("dynolog.log", "dynolog"),
        ("nvidia_smi_dmon_DT.txt", "dmon"),
        ("nvidia_smi_query.csv", "csv"),
        ("nvidia_smi_query_noheader_nounits.csv", "headless"),
        ("prometheus_query_range_dcgm.json", "query-range"),
        ("rocm_smi.csv", "csv"),
        ("rocm_smi.json", "smi-json"),
        ("nccl_inspector.jsonl", ""),
        ("kineto_counters.json", ""),
        ("README.txt", ""),
    ],
)
def test_samples_are_recognised_whatever_their_name_is(name: str, dialect: str) -> None:
    head = shared(f"metrics/samples/{name}").read_bytes()
    assert dialect_of(head, name) == dialect
    assert dialect_of(head, "data") == dialect


@pytest.mark.parametrize(
    "text",
    [
        "step,loss\n1,2.5\n",
        "time,loss\n0.5,2.5\n",
        "time\n1794984130\n",
        '{"a": 1}',
        "[]",
        "",
        "at 2026/11/18 06:42:10, the job started, on 8 ranks\n",
        "timestamps, they are useful\nand, 3\n",
        "# HELP wanted\n",
        "\0\0\0",
    ],
)
def test_other_texts_are_not_recognised(text: str) -> None:
    assert dialect_of(text.encode(), "notes.txt") == ""


def test_no_other_shared_data_is_recognised() -> None:
    if not DATA.exists():
        pytest.skip(f"there is no {DATA}")
    wrong = [
        path
        for path in sorted(DATA.rglob("*"))
        if path.is_file()
        and "metrics" not in path.parts
        and dialect_of(path.open("rb").read(64 << 10), path.name) not in ("",)
    ]
    assert wrong == []
