"""`tracelink.pipeline.metrics`: metrics and profiles as a user gives them, as the counters of a graph."""

from __future__ import annotations

from pathlib import Path

import pytest

import tracelink
from builders import kineto
from tracelink import EventGraph, Metrics
from tracelink.model.columns import SECOND

START_US = 1_794_984_130_000_000
"""2026-11-18 06:42:10 UTC."""

SMI = """timestamp, index, uuid, utilization.gpu [%], power.draw [W], clocks.current.sm [MHz]
2026/11/18 06:42:10.013, 0, GPU-1bdee8b4-22ac, 56 %, 412.35 W, 1980 MHz
2026/11/18 06:42:10.017, 1, GPU-a2226185-cb05, 0 %, [N/A], 345 MHz
2026/11/18 06:42:11.018, 0, GPU-1bdee8b4-22ac, 97 %, 655.10 W, 1755 MHz
2026/11/18 06:42:11.022, 1, GPU-a2226185-cb05, [Not Supported], 71.02 W, 345 MHz
"""


def profiles(folder: Path, ranks: int = 2, host: str = "node-1", *, devices: bool = True) -> Path:
    """A second of each rank, with kernels on a device of its own or on device 0."""
    folder.mkdir(exist_ok=True)
    for rank in range(ranks):
        work = kineto.kernel("k", START_US + 10, 900_000, device=rank if devices else 0)
        data = kineto.trace(kineto.cpu_op(ts=START_US, dur=999_000), work, rank=rank, host_name=host)
        kineto.write(folder / f"rank_{rank}.json", data)
    return folder


def load(tmp_path: Path, text: str, metrics: Metrics | None = None, name: str = "smi.csv") -> EventGraph:
    (tmp_path / name).write_text(text)
    return tracelink.load([tmp_path / "job", tmp_path / name], metrics=metrics, jobs=1)


def counters(graph: EventGraph) -> dict[tuple[int, str, str], list[tuple[float, float]]]:
    """Samples by rank, process and counter: seconds after the start, and value."""
    found: dict[tuple[int, str, str], list[tuple[float, float]]] = {}
    table = graph.counters
    for number, time, value in zip(
        table.track.tolist(), table.time.tolist(), table.value.tolist(), strict=True
    ):
        track = graph.tracks[number]
        moment = round((time - START_US * 1000) / SECOND, 3)
        found.setdefault((track.rank, track.process, track.label), []).append((moment, value))
    return found


def reasons(graph: EventGraph) -> dict[str, int]:
    found: dict[str, int] = {}
    for finding in graph.findings:
        if finding.reason not in ("missing_ranks", "unlinked.launches"):
            found[finding.reason] = found.get(finding.reason, 0) + finding.count
    return found


def test_each_gpu_of_a_query_is_on_the_rank_that_used_it(tmp_path: Path) -> None:
    profiles(tmp_path / "job")
    graph = load(tmp_path, SMI, Metrics(tz="UTC"))
    assert counters(graph) == {
        (0, "0", "utilization.gpu"): [(0.013, 56.0), (1.018, 97.0)],
        (0, "0", "power.draw"): [(0.013, 412.35), (1.018, 655.1)],
        (0, "0", "clocks.current.sm"): [(0.013, 1980.0), (1.018, 1755.0)],
        (1, "1", "utilization.gpu"): [(0.017, 0.0)],
        (1, "1", "power.draw"): [(1.022, 71.02)],
        (1, "1", "clocks.current.sm"): [(0.017, 345.0), (1.022, 345.0)],
    }
    assert reasons(graph) == {"no_value": 2, "device_ranks": 1}


def test_a_map_overrules_devices_by_index_uuid_and_host(tmp_path: Path) -> None:
    profiles(tmp_path / "job")
    by_uuid = Metrics(tz="UTC", map="GPU-1bdee8b4-22ac=1, GPU-a2226185=0")
    for given in (Metrics(tz="UTC", map={"0": 1, "node-1:1": 0}), by_uuid):
        graph = load(tmp_path, SMI, given)
        assert {(rank, label): len(samples) for (rank, _, label), samples in counters(graph).items()} == {
            (1, "utilization.gpu"): 2,
            (1, "power.draw"): 2,
            (1, "clocks.current.sm"): 2,
            (0, "utilization.gpu"): 1,
            (0, "power.draw"): 1,
            (0, "clocks.current.sm"): 2,
        }


def test_local_times_without_a_zone_are_a_warning(tmp_path: Path) -> None:
    profiles(tmp_path / "job")
    assert reasons(load(tmp_path, SMI)) == {"no_value": 2, "device_ranks": 1, "no_time_zone": 1}


def test_a_zone_in_which_nothing_overlaps_names_the_one_that_fits(tmp_path: Path) -> None:
    profiles(tmp_path / "job")
    graph = load(tmp_path, SMI, Metrics(tz="+02:00"))
    (finding,) = [finding for finding in graph.findings if finding.reason == "metrics_apart"]
    assert finding.message == (
        f"{tmp_path}/smi.csv: no sample is from the time of the events: the last one is 119 min 58 s before the "
        "first event. They would overlap with --tz +00:00"
    )


@pytest.mark.parametrize("name", ["gpu_metrics_rank1.csv"])
def test_metrics_alone_are_a_job(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(SMI)
    graph = tracelink.load(tmp_path / name, metrics=Metrics(tz="UTC", map="0-1=0-1"))
    assert [rank.rank for rank in graph.ranks] == [0, 1]
    assert len(graph.counters) == 10
