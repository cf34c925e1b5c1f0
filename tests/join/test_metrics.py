"""`tracelink._join.metrics`: metrics and profiles as a user gives them, as the counters of a graph."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

import tracelink
from builders import kineto
from builders.data import shared
from tracelink import EventGraph, Metrics
from tracelink._model.columns import SECOND

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


def compile_log(folder: Path, behind_utc: int, pid: int = kineto.PROCESS) -> None:
    """A log whose records are at local times, so many hours ahead of UTC, and whose events are not."""
    at = START_US * 1000 // SECOND
    local = datetime.fromtimestamp(at, UTC) + timedelta(hours=behind_utc)
    event = {
        "name": "dynamo",
        "ts": at * 1e6,
        "args": {"compile_id": "0/0"},
        "ph": "i",
        "cat": "c",
        "tid": 0,
        "pid": 0,
    }
    payload = json.dumps(event)
    digest = hashlib.md5(payload.encode()).hexdigest()
    text = (
        f'V{local:%m%d %H:%M:%S}.000000 {pid} torch/_dynamo/utils.py:1] {{"chromium_event": {{}}, "rank": 0, '
        f'"has_payload": "{digest}"}}\n\t{payload}\n'
    )
    (folder / "dedicated_log_torch_trace_rank_0_x.log").write_text(text)


def test_the_zone_of_a_compile_log_of_the_host_is_that_of_the_metrics(tmp_path: Path) -> None:
    compile_log(profiles(tmp_path / "job"), 2)
    graph = load(tmp_path, SMI.replace(" 06:", " 08:"))
    assert counters(graph)[0, "0", "utilization.gpu"] == [(0.013, 56.0), (1.018, 97.0)]
    (finding,) = [finding for finding in graph.findings if finding.reason == "zone_of_log"]
    assert finding.message == (
        f"{tmp_path}/smi.csv: its local times were read as UTC+02:00, the time zone of the compile log."
    )


def test_a_zone_by_name_follows_summer_time(tmp_path: Path) -> None:
    text = "timestamp,load\n2026-10-25 00:59:59,1\n2026-10-25 03:00:01,2\n"
    (tmp_path / "load.csv").write_text(text)
    graph = tracelink.load(tmp_path / "load.csv", metrics=Metrics(tz="Europe/Berlin"))
    assert np.diff(graph.counters.time).tolist() == [(3 * 3600 + 2) * SECOND]


DCGMI = "#Entity   GPUTL  POWER\nID               W\n" + "GPU 0  61  412.5\nGPU 1  62  413.5\n" * 3


@pytest.mark.parametrize("start", ["2026-11-18 06:42:10.25", "2026-11-18T07:42:10.25+01:00", "1794984130.25"])
def test_start_and_interval_give_times_to_rounds(tmp_path: Path, start: str) -> None:
    profiles(tmp_path / "job")
    metrics = Metrics(tz="UTC", start=start, interval=0.5)
    found = counters(load(tmp_path, DCGMI, metrics, "dcgmi.txt"))
    assert found[1, "1", "POWER"] == [(0.25, 413.5), (0.75, 413.5), (1.25, 413.5)]


def test_without_start_and_interval_rounds_are_an_error_and_the_job_is_read(tmp_path: Path) -> None:
    profiles(tmp_path / "job")
    graph = load(tmp_path, DCGMI, name="dcgmi.txt")
    assert (reasons(graph), len(graph.counters)) == ({"no_times": 1}, 0)


def test_times_of_day_are_of_the_day_of_the_first_event(tmp_path: Path) -> None:
    profiles(tmp_path / "job")
    text = "#Time        gpu    pwr\n#HH:MM:SS    Idx      W\n 06:42:11  0  412\n"
    graph = load(tmp_path, text, Metrics(tz="UTC"), "dmon.txt")
    assert counters(graph) == {(0, "0", "pwr"): [(1.0, 412.0)]}
    assert reasons(graph) == {"no_date": 1, "device_ranks": 1}
    other = load(tmp_path, text, Metrics(tz="UTC", start="2026-11-18"), "dmon.txt")
    assert reasons(other) == {"device_ranks": 1}


def test_ranks_that_all_use_device_0_follow_the_order_of_the_gpus(tmp_path: Path) -> None:
    profiles(tmp_path / "job", devices=False)
    graph = load(tmp_path, SMI, Metrics(tz="UTC"))
    assert {(rank, process) for rank, process, _ in counters(graph)} == {(0, "0"), (1, "0")}
    (finding,) = [finding for finding in graph.findings if finding.reason == "device_ranks"]
    assert finding.message.endswith(
        "GPU 0 of node-1 is rank 0, GPU 1 of node-1 is rank 1, by the order of the ranks of the host. "
        "--map overrules it."
    )


def test_gpus_without_a_rank_are_shown_by_host_and_number(tmp_path: Path) -> None:
    profiles(tmp_path / "job", devices=False)
    smi = SMI + "2026/11/18 06:42:11.026, 2, GPU-c3, 5 %, 70 W, 345 MHz\n"
    graph = load(tmp_path, smi, Metrics(tz="UTC"))
    assert {
        (track.rank, track.process, track.process_label) for track in graph.tracks if track.unit == "W"
    } == {(0, f"GPU {gpu} · host node-1", f"GPU {gpu} · host node-1") for gpu in (0, 1, 2)}
    (finding,) = [finding for finding in graph.findings if finding.reason == "unmapped_devices"]
    assert finding.message.endswith("Say which rank each is, such as --map node-1:0-2=0-2")


def test_hosts_are_matched_by_name_folder_and_file(tmp_path: Path) -> None:
    job = profiles(tmp_path / "job")
    for rank in (2, 3):
        work = kineto.kernel("k", START_US + 10, 900_000, device=rank - 2)
        data = kineto.trace(kineto.cpu_op(ts=START_US), work, rank=rank, host_name="node-2.example.org")
        kineto.write(job / f"rank_{rank}.json", data)
    text = "epoch_s,hostname,gpu,power.draw [W]\n1794984130,NODE-2,0,5\n1794984130,node-1,1,6\n"
    assert counters(load(tmp_path, text)) == {
        (2, "0", "power.draw"): [(0, 5.0)],
        (1, "1", "power.draw"): [(0, 6.0)],
    }
    (tmp_path / "node-2").mkdir()
    folder = load(tmp_path, SMI, Metrics(tz="UTC"), "node-2/smi.csv")
    assert {rank for rank, _, _ in counters(folder)} == {2, 3}
    mapped = load(tmp_path, SMI, Metrics(tz="UTC", map="smi.csv:0=3,smi.csv:1=2"))
    assert {(rank, label): len(some) for (rank, _, label), some in counters(mapped).items()}[
        3, "power.draw"
    ] == 2


def test_metrics_of_a_host_are_below_its_lowest_rank_and_those_of_a_process_on_its_rank(
    tmp_path: Path,
) -> None:
    profiles(tmp_path / "job")
    found = counters(load(tmp_path, "epoch_s,cpu\n1794984130,5\n", name="cpu.csv"))
    assert found == {(0, "host node-1", "cpu"): [(0, 5.0)]}
    table = counters(load(tmp_path, "epoch_s,rank,load\n1794984130,1,5\n", name="ranks.csv"))
    assert table == {(1, "", "load"): [(0, 5.0)]}


def test_samples_far_from_the_events_are_left_out(tmp_path: Path) -> None:
    profiles(tmp_path / "job")
    text = "epoch_s,cpu\n" + "".join(f"{1794984130 + second},5\n" for second in (-61, -60, 0, 60, 61, 9000))
    graph = load(tmp_path, text)
    assert [moment for moment, _ in counters(graph)[0, "host node-1", "cpu"]] == [-60, 0, 60]
    assert reasons(graph) == {"samples_left_out": 3}


def test_selected_ranks_get_their_metrics_only(tmp_path: Path) -> None:
    profiles(tmp_path / "job")
    (tmp_path / "smi.csv").write_text(SMI)
    graph = tracelink.load(
        [tmp_path / "job", tmp_path / "smi.csv"],
        metrics=Metrics(tz="UTC", map="0-1=0-1"),
        ranks="1",
    )
    assert {rank for rank, _, _ in counters(graph)} == {1}


def test_a_map_that_names_nothing_is_a_warning(tmp_path: Path) -> None:
    profiles(tmp_path / "job")
    graph = load(tmp_path, SMI, Metrics(tz="UTC", map="7=3"))
    (finding,) = [finding for finding in graph.findings if finding.reason == "unused_map"]
    assert finding.message.startswith("--map names 7, which no metrics are of.")


def test_a_table_without_times_is_an_error_if_it_is_named_and_skipped_in_a_folder(tmp_path: Path) -> None:
    profiles(tmp_path / "job")
    named = load(tmp_path, "step,loss\n1,2.5\n", name="loss.csv")
    (finding,) = [finding for finding in named.findings if "loss.csv" in finding.message]
    assert (finding.severity.value, finding.message.removeprefix(f"{tmp_path}/")) == (
        "error",
        "loss.csv: no column contains times (its columns: step, loss). Name one of its columns timestamp.",
    )
    (tmp_path / "job" / "loss.csv").write_text("step,loss\n1,2.5\n")
    graph = tracelink.load(tmp_path / "job", jobs=1)
    (finding,) = [finding for finding in graph.findings if "loss.csv" in finding.message]
    assert (finding.severity.value, finding.reason) == ("info", "skipped")


VMSTAT = ["procs -memory- --io-- -cpu- -----timestamp-----", " r  b   free  bi us                 UTC"]


def test_samples_of_two_programs_are_in_the_profile(tmp_path: Path) -> None:
    profiles(tmp_path / "job", ranks=1)
    rows = [f"{START_US / 1e6 - 0.5 + place / 20:.6f},{place}.5,2.15" for place in range(40)]
    (tmp_path / "system.csv").write_text("\n".join(["epoch_s,cpu_util_pct,load1", *rows, ""]))
    seconds = [f" {second}  0  9981  28 65 2026-11-18 06:42:{second:02}" for second in range(8, 13)]
    (tmp_path / "vmstat.txt").write_text("\n".join([*VMSTAT, *seconds, ""]))
    assert_samples(tmp_path, {"cpu_util_pct": 20, "load1": 20, "vmstat r": 1})


@pytest.mark.foreign
def test_the_recorded_run_has_56_samples_in_its_profile() -> None:
    assert_samples(shared("metrics/real"), {"cpu_util_pct": 56, "load1": 56, "vmstat r": 3})


def assert_samples(folder: Path, expected: dict[str, int]) -> None:
    graph = tracelink.load([path for path in folder.iterdir() if path.suffix != ".json"], jobs=1)
    (profile,) = [source for source in graph.sources if source.format == "kineto"]
    inside = (graph.counters.time >= profile.start_ns) & (graph.counters.time <= profile.end_ns)
    names = [graph.tracks[number].identity for number in graph.counters.track[inside].tolist()]
    assert {name: names.count(name) for name in expected} == expected


@pytest.mark.parametrize("name", ["gpu_metrics_rank1.csv"])
def test_metrics_alone_are_a_job(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(SMI)
    graph = tracelink.load(tmp_path / name, metrics=Metrics(tz="UTC", map="0-1=0-1"))
    assert [rank.rank for rank in graph.ranks] == [0, 1]
    assert len(graph.counters) == 10


def test_seconds_from_an_unknown_start_are_an_error_if_named_and_skipped_in_a_folder(tmp_path: Path) -> None:
    profiles(tmp_path / "job")
    text = "time,loss\n0.25,2.5\n0.5,2.25\n"
    assert reasons(load(tmp_path, text, name="loss.csv")) == {"no_times": 1}
    started = load(tmp_path, text, Metrics(start="1794984130"), "loss.csv")
    assert counters(started) == {(0, "host node-1", "loss"): [(0.25, 2.5), (0.5, 2.25)]}
    (tmp_path / "job" / "loss.csv").write_text(text)
    assert reasons(tracelink.load(tmp_path / "job", jobs=1)) == {"skipped": 1}


def test_of_a_range_that_names_more_gpus_than_there_are_the_rest_is_a_note(tmp_path: Path) -> None:
    profiles(tmp_path / "job")
    graph = load(tmp_path, SMI, Metrics(tz="UTC", map="0-3=0-3"))
    (finding,) = [finding for finding in graph.findings if finding.reason == "unused_map"]
    assert (finding.severity.value, finding.count) == ("info", 2)
