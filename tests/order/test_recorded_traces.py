"""Orders in recorded traces."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache

import numpy as np
import pytest

import tracelink
from builders.data import foreign, traces
from tracelink._model.events import GPU_WORK, EventKind
from tracelink._model.graph import Excerpt
from tracelink._model.trace import Synchronizations
from tracelink._order.host import hand_overs, host_waits
from tracelink._order.order import Order, can_follow, launched_work, tensor_order
from tracelink._order.streams import stream_order, stream_waits
from tracelink.converters.pytorch.node_communication import StorageReader

COLLECTIVE = re.compile("nccl", re.IGNORECASE)
PROFILES = {
    "gpu_pair/kineto_0.json.gz": {"waits": 26, "inferred": 26},
    "gpu_2021/kineto_0.json": {"waits": 26, "inferred": 26},
    "gpu_rocm/kineto_0.json": {"waits": 22, "inferred": 22},
}
SHARED = {
    "kineto/nccl_data.json.gz": {"waits": 84, "inferred": 63, "within_a_communication": 21},
    "pairs/dlrm8/device.0.json.gz": {
        "waits": 44,
        "inferred": 24,
        "within_a_communication": 16,
        "unexplained": 4,
    },
    "kineto/cuda_graphs.json.gz": {
        "waits": 425,
        "inferred": 230,
        "within_a_communication": 150,
        "unexplained": 45,
    },
    "kineto/mi300_resnet.json.gz": {"waits": 24, "inferred": 24},
    "kineto/h100_qwen.json.gz": {},
}
PATHS = [*PROFILES, *foreign(*SHARED)]


@cache
def excerpt(path: str) -> Excerpt:
    return Excerpt(tracelink.load([traces(path)]))


def waits_of_streams(part: Excerpt) -> Order:
    return stream_waits(part, launched_work(part), Synchronizations.empty())


def is_collective(part: Excerpt, rows: np.ndarray) -> list[bool]:
    return [bool(COLLECTIVE.search(part.graph.name(row))) for row in rows.tolist()]


@pytest.mark.parametrize("path", PATHS)
def test_all_work_but_the_first_of_each_stream_waits_for_other_work(path: str) -> None:
    part = excerpt(path)
    order = stream_order(part)
    work = part.rows(*GPU_WORK)
    streams = len(np.unique(part.events.track[work]))
    assert order.counts == {"work": len(work), "first": streams}
    assert len(np.unique(order.after)) == len(work) - streams


@pytest.mark.parametrize("path", PATHS)
def test_waits_of_streams_are_explained(path: str) -> None:
    part = excerpt(path)
    order = waits_of_streams(part)
    assert {reason: count for reason, count in order.counts.items() if count} == (PROFILES | SHARED)[path]
    tracks = part.events.track
    assert (tracks[order.before] != tracks[order.after]).all()


@pytest.mark.parametrize("path", PATHS)
def test_times_allow_all_of_it(path: str) -> None:
    part = excerpt(path)
    for order in (stream_order(part), waits_of_streams(part), hand_overs(part), _host_waits(part)):
        assert can_follow(part.events, order.before, order.after).all()


def _host_waits(part: Excerpt) -> Order:
    return host_waits(part, launched_work(part), Synchronizations.empty())


@pytest.mark.parametrize(
    ("path", "collectives", "awaited"),
    [
        *(("gpu_pair/kineto_0.json.gz", 16, 10), ("gpu_rocm/kineto_0.json", 14, 8)),
        *foreign(("kineto/nccl_data.json.gz", 21, 21), ("kineto/mi300_resnet.json.gz", 12, 12)),
    ],
)
def test_each_collective_waits_for_compute_and_compute_for_what_it_needs(
    path: str, collectives: int, awaited: int
) -> None:
    """Of the MI300 the first five collectives were launched before the recording, and nothing tells of their waits."""
    part = excerpt(path)
    order = waits_of_streams(part)
    before, after = is_collective(part, order.before), is_collective(part, order.after)
    assert Counter(zip(before, after, strict=True)) == {
        (False, True): collectives,
        (True, False): awaited,
    }
    assert len(set(order.after[after].tolist())) == collectives
    assert len(set(order.before[before].tolist())) == awaited


COPIED = (
    ("gpu_pair/kineto_0.json.gz", "Memcpy HtoD (Pageable -> Device)", "## forward ##", 4),
    ("kineto/h100_qwen.json.gz", "Memcpy DtoH (Device -> Pinned)", "aten::unsqueeze", 3),
)


@pytest.mark.parametrize(("path", "copy", "after", "waits"), [COPIED[0], *foreign(COPIED[1])])
def test_the_host_waits_for_its_copies(path: str, copy: str, after: str, waits: int) -> None:
    part = excerpt(path)
    order = _host_waits(part)
    found = [
        (part.graph.name(before), part.graph.name(after))
        for before, after in zip(order.before.tolist(), order.after.tolist(), strict=True)
    ]
    assert (copy, after) in found
    assert order.counts["inferred"] == order.counts["waits"] == waits


def test_backward_passes_follow_the_loss() -> None:
    part = excerpt("gpu_pair/kineto_0.json.gz")
    order = hand_overs(part)
    assert order.counts == {"backward_of": 20, "forward_had_not_ended": 0, "between_threads": 4}
    first = order.after[order.before == part.graph.find(name="aten::mse_loss")[0]].tolist()
    assert "MseLossBackward0" in {part.graph.name(row) for row in first}


@pytest.mark.foreign
def test_backward_passes_stand_between_loss_and_optimizer() -> None:
    part = excerpt("kineto/nccl_data.json.gz")
    order = hand_overs(part)
    tracks = part.events.track
    assert order.counts == {"backward_of": 543, "forward_had_not_ended": 0, "between_threads": 6}
    back = np.flatnonzero(part.events.kind[order.after] == EventKind.ANNOTATION)
    assert {part.graph.name(row) for row in order.after[back].tolist()} == {"## optimizer ##"}
    assert (tracks[order.before[back]] != tracks[order.after[back]]).all()


@pytest.mark.parametrize(
    ("profile", "nodes", "with_writer"),
    [
        ("cpu_job/kineto_0.json.gz", "cpu_job/et_0.json.gz", 453),
        ("gpu_2023/kineto_0.json", "gpu_2023/et_0.json.gz", 88),
        *foreign(
            *(
                (f"pairs/{name}/device.0.json.gz", f"pairs/{name}/host.0.json.gz", count)
                for name, count in (("resnet_110_nccl", 18875), ("torch213_gloo2", 784))
            )
        ),
    ],
)
def test_what_tensors_say_the_times_do_not_contradict(profile: str, nodes: str, with_writer: int) -> None:
    part = Excerpt(tracelink.load([traces(profile), traces(nodes)]))
    rows = part.rows(EventKind.NODE)
    row_of = dict(zip(part.events.payload[rows].tolist(), rows.tolist(), strict=True))
    reader = StorageReader()
    for first, texts in part.graph.payloads[int(part.events.source[rows[0]])].batches():
        for number, text in enumerate(texts, first):
            if number in row_of:
                reader.add(row_of[number], bytes(text))
    order = tensor_order(part, reader.uses())
    assert (order.counts["with_writer"], order.counts["contradicted_by_times"]) == (with_writer, 0)
