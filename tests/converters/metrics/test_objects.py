"""`tracelink.converters.metrics.objects`."""

from __future__ import annotations

import json

from builders.inputs import reasons
from builders.metrics import read, samples
from tracelink._model.columns import SECOND
from tracelink._model.metrics import Basis

AT = 1_794_984_130 * SECOND


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
    assert samples(timed)["1", "GPU use", "%"] == [(AT, 0), (AT + 1_500_000_000, 0)]


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
    assert samples(read(json.dumps(timed), "amd.json")) == {("0", "power_usage", "W"): [(AT, 5)]}


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
    assert samples(found)["0", "gpu_power_draw", ""] == [(AT + 141_000_000, 655.1)]
    assert samples(found)["", "cpu_util", ""] == [(-28_788_859_000_000, 0.5)]
    assert reasons(found) == {"damaged_objects": 1}
