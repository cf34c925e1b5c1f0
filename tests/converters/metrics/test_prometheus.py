"""`tracelink.converters.metrics.prometheus`."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.inputs import reasons
from builders.metrics import query_range, read, samples
from tracelink._model.columns import SECOND
from tracelink._model.errors import UnreadableError
from tracelink._model.metrics import Basis, Gauge

# JSON of rocm-smi, amd-smi and dynolog.

AT_NS = 1_794_984_130 * SECOND


def test_rocm_smi_documents_are_rounds_unless_a_line_before_them_is_a_time() -> None:
    sizes = {"VRAM Total Memory (B)": "206158430208", "VRAM Total Used Memory (B)": "297795584"}
    warm = {"Average Graphics Package Power (W)": "415.0", "Temperature (Sensor junction) (C)": "61.0"}
    cards = {"card0": {"GPU use (%)": "73", **sizes, **warm}, "card1": {"GPU use (%)": "0", **sizes}}
    text = json.dumps({**cards, "system": {"Driver version": "6.7.0"}})
    found = read(text + "\n" + text, "rocm.json")
    assert found.basis is Basis.ROUND
    assert samples(found)["0", "Average Graphics Package Power", "W"] == [(0, 415), (1, 415)]
    assert len(found.counters) == 16
    timed = read(f"1794984130\n{text}\n1794984131.5\n{text}", "rocm.json")
    assert timed.basis is Basis.EPOCH
    assert samples(timed)["1", "GPU use", "%"] == [(AT_NS, 0), (AT_NS + 1_500_000_000, 0)]


def test_amd_smi_has_values_with_units_in_nested_objects() -> None:
    card = {
        "gpu": 1,
        "usage": {"gfx_activity": {"value": 55, "unit": "%"}, "vcn": [{"value": 1}, "N/A"]},
        "power": {"socket_power": "412 W", "throttle": True, "limit": None},
    }
    for document in ({"gpu_data": [card]}, [card]):
        found = read(json.dumps(document), "amd.json")
        assert samples(found) == {
            ("1", "usage.gfx_activity", "%"): [(0, 55)],
            ("1", "power.socket_power", "W"): [(0, 412)],
        }
        assert reasons(found) == {"no_value": 1}
    timed = [{"gpu": 0, "timestamp": 1794984130, "power_usage": {"value": 5, "unit": "W"}}]
    assert samples(read(json.dumps(timed), "amd.json")) == {("0", "power_usage", "W"): [(AT_NS, 5)]}


def test_a_damaged_document_costs_only_itself() -> None:
    good = '{"card0": {"GPU use (%)": "73"}}'
    found = read(
        f'{good}\n{{"card0": {{"GPU use (%)": \n{good}\n' + '{"card0": ' + '{"a":' * 100_000, "rocm.json"
    )
    assert samples(found) == {("0", "GPU use", "%"): [(0, 73), (1, 73)]}
    assert reasons(found) == {"damaged_objects": 2}


def test_times_of_dynolog_are_local_although_they_end_with_z() -> None:
    head = "I20261118 06:42:10.141104 3632432 Logger.cpp:58]"
    data = '{"device":0,"gpu_power_draw":"655.100","dcgm_error":0}'
    lines = f"{head} Logging : 6 values\n{head} time = 2026-11-18T06:42:10.141Z data = {data}\n"
    other = (
        'I20261118 06:42:11.1 1 Logger.cpp:58] time = 1969-12-31T16:00:11.141Z data = {"cpu_util":"0.5"}\n'
    )
    found = read(f"{lines}{other}I2 time = 2026-11-18T06:42:12.000Z data = {{broken}}\n", "dynolog.log")
    assert found.basis is Basis.LOCAL
    assert samples(found)["0", "gpu_power_draw", ""] == [(AT_NS + 141_000_000, 655.1)]
    assert samples(found)["", "cpu_util", ""] == [(-28_788_859_000_000, 0.5)]
    assert reasons(found) == {"damaged_objects": 1}


# Prometheus.

AT = 1_794_984_130
GPU = {
    "__name__": "DCGM_FI_DEV_GPU_UTIL",
    "gpu": "0",
    "UUID": "GPU-1b",
    "Hostname": "n1",
    "instance": "10.0.0.1:9400",
}
NODE = {
    "__name__": "node_cpu_seconds_total",
    "cpu": "3",
    "mode": "idle",
    "instance": "n1:9100",
    "job": "node",
}


def test_series_of_gpus_and_nodes_with_values_that_are_no_numbers() -> None:
    values = [[AT, "56"], [AT + 1.5, "97"], [AT + 3, "NaN"], [AT + 4, "+Inf"], [AT + 5, 7]]
    found = read(query_range((GPU, values), (NODE, [[AT + 0.781, "0.25"]]), ({}, [[AT, "1"]])), "range.json")
    assert found.basis is Basis.EPOCH
    assert found.gauges == [
        Gauge("DCGM_FI_DEV_GPU_UTIL", "%", "n1", "0", "GPU-1b"),
        Gauge("node_cpu_seconds_total cpu=3 mode=idle", "", "n1"),
        Gauge("metric"),
    ]
    assert samples(found) == {
        ("n1:0", "DCGM_FI_DEV_GPU_UTIL", "%"): [
            (AT * SECOND, 56),
            (AT * SECOND + 1_500_000_000, 97),
            ((AT + 5) * SECOND, 7),
        ],
        ("n1", "node_cpu_seconds_total cpu=3 mode=idle", ""): [(AT * SECOND + 781_000_000, 0.25)],
        ("", "metric", ""): [(AT * SECOND, 1)],
    }
    assert reasons(found) == {"no_value": 1, "sentinels": 1}


def test_labels_after_values_and_answers_of_one_moment() -> None:
    text = (
        '{"status":"success","data":{"resultType":"vector","result":['
        f'{{"value":[{AT}.781,"1"],"metric":{{"__name__":"up"}}}}]}}}}'
    )
    assert samples(read(text, "now.json")) == {("", "up", ""): [(AT * SECOND + 781_000_000, 1)]}


@given(
    cut=st.integers(140, 400),
    values=st.lists(st.tuples(st.integers(0, 10**6), st.integers(-(10**6), 10**6)), min_size=8, max_size=8),
)
def test_an_answer_that_ends_early_keeps_what_is_before(cut: int, values: list[tuple[int, int]]) -> None:
    text = query_range(({"__name__": "a"}, [[AT + time / 1000, str(value)] for time, value in values]))
    whole = samples(read(text, "range.json"))["", "a", ""]
    if cut >= len(text):
        return
    pairs = max(text[:cut].count('"], [') + (text[:cut].endswith('"]')), text[:cut].count('"]'))
    if not pairs:
        return
    found = read(text[:cut], "range.json")
    assert samples(found)["", "a", ""] == whole[:pairs]
    assert reasons(found) == {"truncated": 1}


def test_damaged_pairs_and_deep_nesting_cost_only_themselves() -> None:
    deep = "[" * 100_000 + "]" * 100_000
    text = query_range(
        ({"__name__": "a"}, [[AT, "1"], [[AT], "2"], [AT, {}], 5, {"a": [1]}, [AT + 1, "x"], [AT + 2, "3"]])
    )
    text = text.replace('"result"', f'"infos": {deep}, "result"')
    found = read(text, "range.json")
    assert samples(found) == {("", "a", ""): [(AT * SECOND, 1), ((AT + 2) * SECOND, 3)]}
    assert reasons(found) == {"damaged_objects": 2, "not_numbers": 1}


def test_a_failed_query_says_why() -> None:
    text = json.dumps({"status": "error", "data": {"resultType": "matrix"}, "error": "query timed out"})
    with pytest.raises(UnreadableError, match=r"the query failed: query timed out\. Repeat the query\."):
        read(text, "range.json")


EXPORTED = """\
# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1b",pci_bus_id="00000000:1B:00.0",device="nvidia0",Hostname="node-1"} 97
# HELP DCGM_FI_DEV_FB_USED Framebuffer memory used (in MiB).
# TYPE DCGM_FI_DEV_FB_USED gauge
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-1b",device="nvidia0",Hostname="node-1"} 40211
DCGM_FI_PROF_SM_ACTIVE{gpu="0",UUID="GPU-1b"} 0.910000
DCGM_FI_PROF_SM_OCCUPANCY{gpu="1"} NaN
"""


def test_text_of_exporters_has_rounds_or_times() -> None:
    text = EXPORTED
    found = read(text + text, "dcgm.prom")
    assert found.basis is Basis.ROUND
    assert samples(found) == {
        ("node-1:0", "DCGM_FI_DEV_GPU_UTIL", "%"): [(0, 97), (1, 97)],
        ("node-1:0", "DCGM_FI_DEV_FB_USED", "MiB"): [(0, 40211), (1, 40211)],
        ("0", "DCGM_FI_PROF_SM_ACTIVE", ""): [(0, 0.91), (1, 0.91)],
    }
    assert reasons(found) == {"no_value": 2}
    timed = read(
        f'disk{{device="sda"}} 1 {AT}123\nbroken line here\ndisk{{device="sda"}} 9.3e18 {AT}124\n',
        "node.prom",
    )
    assert timed.basis is Basis.EPOCH
    assert samples(timed) == {("", "disk device=sda", ""): [(AT * SECOND + 123_000_000, 1)]}
    assert reasons(timed) == {"noise": 1, "sentinels": 1}
