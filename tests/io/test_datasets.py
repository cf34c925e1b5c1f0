"""`tracelink._io.datasets`, and how datasets are found."""

from __future__ import annotations

from pathlib import Path

from tracelink._io.sources import discover_inputs
from tracelink._model import MANIFEST, MANIFEST_START


def dataset(folder: Path, start: bytes = MANIFEST_START) -> Path:
    for name in ("events/rank=0/part-0.parquet", "ranks/part-0.parquet", MANIFEST):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(start + b"}")
    return folder


def found(path: Path) -> list[tuple[str, bool]]:
    discovery = discover_inputs(path)
    return [(Path(source.path).relative_to(path).as_posix(), source.named) for source in discovery.sources]


def test_a_dataset_is_one_source(tmp_path: Path) -> None:
    dataset(tmp_path / "traces" / "job.parquet")
    (tmp_path / "traces" / "kineto_0.json").write_text("{}")
    assert found(tmp_path / "traces" / "job.parquet") == [(MANIFEST, True)]
    assert found(tmp_path) == [("traces/job.parquet/tracelink.json", False), ("traces/kineto_0.json", False)]


def test_another_file_with_the_name_of_a_manifest_changes_nothing(tmp_path: Path) -> None:
    for name in (MANIFEST, "kineto_0.json"):
        (tmp_path / name).write_text("{}")
    assert found(tmp_path) == [("kineto_0.json", False), (MANIFEST, True)]


def test_a_folder_with_tables_but_no_manifest_is_a_finding(tmp_path: Path) -> None:
    (dataset(tmp_path / "job.parquet") / MANIFEST).unlink()
    discovery = discover_inputs(tmp_path)
    assert discovery.sources == []
    assert [(finding.severity, finding.message) for finding in discovery.findings] == [
        (
            "error",
            f"{tmp_path}/job.parquet: a dataset without tracelink.json, so it is incomplete. Write it again, or remove "
            "the folder.",
        )
    ]


def test_a_folder_of_events_is_no_dataset(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "kineto_0.json").write_text("{}")
    assert found(tmp_path) == [("events/kineto_0.json", False)]
