"""Which files are recognised as metrics, and which are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.data import shared, traces
from builders.metrics import one_of_each
from tracelink import samples
from tracelink.converters.metrics import dialect_of

DIALECTS = {
    "nvidia_smi.csv": "csv",
    "headless.txt": "headless",
    "dmon.txt": "dmon",
    "dcgmi.txt": "dcgmi",
    "vmstat.txt": "vmstat",
    "rocm.csv": "csv",
    "rocm.json": "smi-json",
    "amd.csv": "csv",
    "amd.json": "smi-json",
    "exporter.prom": "prometheus",
    "range.json": "query-range",
    "dynolog.log": "dynolog",
    "any.csv": "csv",
}


@pytest.mark.parametrize("name", DIALECTS)
def test_each_dialect_is_recognised_whatever_its_name_is(name: str) -> None:
    head = one_of_each()[name].encode()
    assert dialect_of(head, name) == dialect_of(head, "data") == DIALECTS[name]


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


def test_no_other_input_is_recognised() -> None:
    folders = [samples.path(name) for name in samples.names() if name != "gpu_metrics"]
    assert recognised(*folders, *map(traces, ("gpu_2021", "gpu_rocm", "gloo/healthy_json"))) == []


@pytest.mark.foreign
def test_no_other_shared_data_is_recognised() -> None:
    assert recognised(*(path for path in shared("").iterdir() if path.name != "metrics")) == []


def recognised(*folders: Path) -> list[Path]:
    files = sorted(path for folder in folders for path in folder.rglob("*") if path.is_file())
    return [
        path
        for path in files
        if "metrics" not in str(path) and dialect_of(path.open("rb").read(64 << 10), path.name)
    ]
