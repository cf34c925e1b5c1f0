"""The sample of metrics is what its generator writes, and fits the sample of its job."""

from __future__ import annotations

from pathlib import Path

import tracelink
from generators.jobs import LEVELS, METRICS, ROUNDS, gpu_metrics
from tracelink import Metrics, samples


def test_the_sample_is_what_the_generator_writes(tmp_path: Path) -> None:
    gpu_metrics(tmp_path)
    assert (samples.path("gpu_metrics") / METRICS).read_text() == (tmp_path / METRICS).read_text()


def test_the_slow_gpu_is_named_and_each_gpu_is_on_its_rank() -> None:
    folders = [samples.path("gpu_pair"), samples.path("gpu_metrics")]
    graph = tracelink.load(folders, metrics=Metrics(tz="UTC"), jobs=1)
    assert [finding.message for finding in graph.findings if finding.reason == "gpu_differs"] == [
        "Rank 1's GPU runs at 1,410 MHz, the other at 1,980 MHz (medians).",
        "Rank 1's GPU is at 87 °C, the other at 61 °C (medians).",
    ]
    clocks = {
        track.rank: number
        for number, track in enumerate(graph.tracks)
        if track.identity == "clocks.current.sm"
    }
    for rank, number in clocks.items():
        values = graph.counters.value[graph.counters.track == number].tolist()
        assert values == [LEVELS[rank][2]] * ROUNDS
    kernels = graph.events.of_kind("kernel").nonzero()[0]
    ranks = graph.rank_of_events()[kernels]
    during = tracelink.sampled_during(graph, kernels)["sm_clock_mhz"]
    assert during.tolist() == [LEVELS[rank][2] for rank in ranks.tolist()]
