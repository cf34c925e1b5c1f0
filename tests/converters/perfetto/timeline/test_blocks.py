"""Options that both formats share."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from builders import perfetto, perfetto_native
from builders.job import JobBuilder
from tracelink._model.columns import UNKNOWN
from tracelink._model.events import EventKind, Relation, TrackKind
from tracelink._model.job import LinkedJob
from tracelink.converters.perfetto.json_writer import PerfettoJsonWriter
from tracelink.converters.perfetto.native_writer import PerfettoWriter
from tracelink.converters.perfetto.timeline.job import ArgumentChoice, TimelineOptions
from tracelink.converters.perfetto.timeline.schema import SUMMARY_CATEGORY

Arguments = dict[str, dict[str, Any]]
"""For each event, by its name, its arguments."""

OF_GROUPS = ("all_reduce 1.0 MB", "rank 1 arrived last")
"""What stands on tracks of groups."""


def job() -> LinkedJob:
    """Rank 1 enters a collective last and sends rank 0 a message; a recorder saw rank 1 in it, for ever."""
    built = JobBuilder()
    group = built.group(0, 1, description="dp")
    threads = [built.track(rank=rank) for rank in (0, 1)]
    early = built.add(threads[0], "early", 0, 100, args={"Input Dims": [[64, 128], []], "External id": 3})
    receives = built.add(threads[0], "receives", 200, 50)
    late = built.add(threads[1], "late", 40, 60)
    sends = built.add(threads[1], "sends", 180, 10, args={"External id": 4})
    recorder = built.track(TrackKind.COMMUNICATOR, 1, "", "0")
    built.add(recorder, "entry", 40, UNKNOWN, EventKind.RECORD, {"state": "scheduled", "sizes": [[8]]})
    built.together(group, early, late, bytes=1 << 20, sequence=7)
    built.message(group, sends, receives)
    return LinkedJob.of(built.build())


def in_json(choices: TimelineOptions) -> Arguments:
    written = perfetto.write(job(), PerfettoJsonWriter(choices))
    events = json.loads(written.text)["traceEvents"]
    return {
        event["name"]: event.get("args", {})
        for event in events
        if event["ph"] in "Xi" and event["cat"] != SUMMARY_CATEGORY
    }


def in_native(choices: TimelineOptions) -> Arguments:
    written = perfetto_native.write(job(), PerfettoWriter(choices))
    return {one.name: one.args for one in written.slices if one.category != SUMMARY_CATEGORY}


def flat(arguments: Arguments) -> Arguments:
    """As JSON has them: a source's own by themselves, as are those of the tracks of groups."""
    return {
        name: {**groups.pop("original", {}), **(groups["collective"] if name in OF_GROUPS else groups)}
        if groups
        else {}
        for name, groups in arguments.items()
    }


def test_what_tracelink_adds_stands_in_what_it_is_about() -> None:
    said = in_json(TimelineOptions())
    del said["all_reduce 1.0 MB"]
    assert said == {
        "early": {
            "Input Dims": [[64, 128], []],
            "External id": 3,
            "collective": {"group": "dp #7", "wait_us": 0.04, "waits_for_rank": 1},
        },
        "receives": {},
        "late": {"collective": {"group": "dp #7", "wait_us": 0, "last": True}},
        "sends": {"External id": 4},
        "entry": {"recorder": {"state": "scheduled", "sizes": [[8]]}, "link": {"duration known": False}},
        "waited": {"link": {"for rank": 1}},
        "received": {"link": {"from rank": 1}},
        "rank 1 arrived last": {"rank": 1, "skew_us": 0.04},
    }


@pytest.mark.parametrize("wanted", ArgumentChoice)
def test_both_formats_say_the_same(wanted: ArgumentChoice) -> None:
    assert flat(in_native(TimelineOptions(wanted))) == in_json(TimelineOptions(wanted))


@pytest.mark.parametrize("said", [in_json, in_native])
def test_only_what_tracelink_found_out(said: Callable[[TimelineOptions], Arguments]) -> None:
    found = {name: set(groups) for name, groups in said(TimelineOptions(ArgumentChoice.LINK)).items()}
    assert all(found.pop(name) for name in OF_GROUPS)
    assert found == {
        "early": {"collective"},
        "receives": set(),
        "late": {"collective"},
        "sends": set(),
        "entry": {"link"},
        "waited": {"link"},
        "received": {"link"},
    }


@pytest.mark.parametrize("said", [in_json, in_native])
def test_no_arguments_at_all(said: Callable[[TimelineOptions], Arguments]) -> None:
    arguments = said(TimelineOptions(ArgumentChoice.NONE))
    assert len(arguments) == 9
    assert not any(arguments.values())


def test_arrows_that_slices_carry_need_no_arguments() -> None:
    built = JobBuilder()
    thread = built.track()
    outer, inner = built.add(thread, "outer", 0, 9, args={"a": 1}), built.add(thread, "inner", 0, 5)
    built.edge(outer, Relation.BACKWARD_OF, inner)
    for wanted in ArgumentChoice:
        written = perfetto.write(built.build(), PerfettoJsonWriter(TimelineOptions(wanted)))
        assert [(e["name"], "bind_id" in e, "args" in e) for e in written.slices()] == [
            ("outer", True, wanted == ArgumentChoice.ALL),
            ("inner", True, False),
        ]


def python_job() -> JobBuilder:
    """An operator within two functions, of which one called the other and does not end."""
    built = JobBuilder()
    thread = built.track()
    main = built.add(thread, "main", 0, UNKNOWN, EventKind.PYTHON)
    train = built.add(thread, "train", 10, 80, EventKind.PYTHON, args={"Python id": 2})
    operator = built.add(thread, "aten::mm", 20, 50)
    built.edge(operator, Relation.WAITS_FOR, main)
    built.edge(operator, Relation.WAITS_FOR, train)
    built.add(thread, "step", 75, UNKNOWN)
    return built


def test_python_functions_are_drawn_where_nothing_else_is_said() -> None:
    written = perfetto.write(python_job().build())
    assert {event["name"] for event in written.slices()} == {"main", "train", "aten::mm", "step"}


def test_python_functions_can_be_left_out_with_their_arrows() -> None:
    written = perfetto.write(python_job().build(), PerfettoJsonWriter(TimelineOptions(python=False)))
    assert [(e["name"], e["dur"] * 1000) for e in written.slices()] == [("aten::mm", 50), ("step", 15)]
    assert written.events("s", "f") == []
    assert written.reasons() == {"left_out": 2, "unfinished": 1, "flow_without_end": 2}
    native = perfetto_native.write(python_job().build(), PerfettoWriter(TimelineOptions(python=False)))
    assert [one.name for one in native.slices] == ["aten::mm", "step"]
    assert native.findings == written.findings


def test_times_do_not_depend_on_what_is_left_out() -> None:
    """Two jobs look the same where they are compared, and an event that hangs lasts as long."""
    whole = perfetto.write(python_job().build())
    less = perfetto.write(python_job().build(), PerfettoJsonWriter(TimelineOptions(python=False)))
    assert less.document["baseTimeNanoseconds"] == whole.document["baseTimeNanoseconds"]
    for name in ("aten::mm", "step"):
        assert [less.slice(name)[key] for key in ("ts", "dur")] == [
            whole.slice(name)[key] for key in ("ts", "dur")
        ]
