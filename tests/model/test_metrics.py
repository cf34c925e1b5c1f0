"""`tracelink._model.metrics`: what users say about metrics."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from tracelink import Metrics, UsageError
from tracelink._model.columns import SECOND
from tracelink._model.metrics import parse_time

AT = 1_794_984_130 * SECOND


@pytest.mark.parametrize(
    ("given", "devices"),
    [
        ("0=3", {"0": 3}),
        ("0-2=8-10", {"0": 8, "1": 9, "2": 10}),
        ("Node1:0-1=2-3, GPU-1BDEE8B4=7", {"node1:0": 2, "node1:1": 3, "gpu-1bdee8b4": 7}),
        (["0=1", "1=0"], {"0": 1, "1": 0}),
        ({"node1:0": 3}, {"node1:0": 3}),
        (None, {}),
    ],
)
def test_a_map_lists_the_rank_of_each_device(given: str, devices: dict[str, int]) -> None:
    assert Metrics(map=given).map == devices


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"map": "0"}, "--map: '0' is not of the form DEVICE=RANK"),
        ({"map": "0-1=3"}, "--map: '0-1=3' has 2 devices, but 1 ranks"),
        ({"map": "GPU-1=0-3"}, "--map: 'GPU-1=0-3' gives one device several ranks"),
        ({"map": "3-1=0-2"}, "--map: '3-1' is not a range of numbers"),
        ({"map": "0=1,0=2"}, "--map: 0 has two ranks, 1 and 2"),
        ({"tz": "Mars/Base"}, "--tz: there is no time zone 'Mars/Base'"),
        ({"tz": "+25:00"}, "--tz: there is no time zone '+25:00'"),
        ({"start": "soon"}, "--metrics-start: 'soon' is not a time"),
        ({"interval": "often"}, "--interval: 'often' is not a time between two samples"),
        ({"interval": 0}, "--interval: 0 is not a time between two samples"),
    ],
)
def test_malformed_arguments_are_errors(arguments: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        Metrics(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-18 06:42:10", (AT, True)),
        ("2026/11/18 06:42:10.5", (AT + SECOND // 2, True)),
        ("2026-11-18T06:42:10Z", (AT, False)),
        ("2026-11-18T08:42:10+02:00", (AT, False)),
        ("1794984130.5", (AT + SECOND // 2, False)),
        ("1794984130123", (AT + 123_000_000, False)),
        ("1794984130123456789", (AT + 123_456_789, False)),
    ],
)
def test_starts_are_local_unless_they_have_a_zone(text: str, expected: tuple[int, bool]) -> None:
    assert parse_time(text) == expected


def test_intervals_and_zones_in_any_form() -> None:
    assert [Metrics(interval=given).interval_ns for given in (1, 0.5, "100ms", "2 s", "1min")] == [
        SECOND, SECOND // 2, SECOND // 10, 2 * SECOND, 60 * SECOND,
    ]  # fmt: skip
    offsets = [Metrics(tz=name).zone for name in ("UTC", "Z", "+02:00", "-0530", "UTC+1", "Europe/Berlin")]
    at = datetime(2026, 1, 1, tzinfo=UTC)
    hours = [zone.utcoffset(at.replace(tzinfo=None)).total_seconds() / 3600 for zone in offsets if zone]  # type: ignore[union-attr]
    assert hours == [0, 0, 2, -5.5, 1, 1]
