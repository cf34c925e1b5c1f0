"""What packets say, in JSON."""

from __future__ import annotations

import pytest

from builders.native_packets import (
    BASE,
    COLOURED,
    FACTS,
    OTHER_THREAD,
    THREAD,
    Sequence,
    arrives,
    as_json,
    bundle,
    facts,
    head,
    leaves,
    number,
    packet,
)
from tracelink.io.protobuf import delimited

ADD = {"ph": "X", "cat": "cpu_op", "name": "add", "pid": 1, "tid": THREAD, "ts": 5, "dur": 2}
SLICE = Sequence().begin(5000, "add").end(2000)


def in_bundles() -> bytes:
    first, *others = SLICE.packets
    return bundle(first) + packet(number(8, BASE), delimited(69, number(3, 1))) + bundle(*others, at=5000)


def interleaved_with_another() -> bytes:
    """Each sequence has texts and steps of its own."""
    other = Sequence(2).begin(1000, "unseen", on=999).end(50, on=999)
    return b"".join(part for pair in zip(SLICE.packets, other.packets, strict=True) for part in pair)


@pytest.mark.parametrize("told", [bytes(SLICE), in_bundles(), interleaved_with_another()])
def test_a_slice(told: bytes) -> None:
    assert as_json(head() + told).events == [ADD]


def test_the_document_has_the_header_and_the_names_of_the_facts() -> None:
    document = as_json(head() + bytes(SLICE)).document
    names = [(one["name"], one["pid"], one["tid"], one["args"]) for one in document.pop("traceEvents")[:-1]]
    assert document == {
        "schemaVersion": 1,
        "baseTimeNanoseconds": BASE,
        "tracelink": {"ranks": [{"rank": 0}]},
    }
    assert names == [
        ("process_name", 1, 1, {"name": "rank 0 (100)", "original pid": "100"}),
        ("process_labels", 1, 1, {"labels": "CPU"}),
        ("process_sort_index", 1, 1, {"sort_index": 1}),
        ("thread_name", 1, THREAD, {"name": "rank 0 thread 101", "original tid": "101"}),
        ("thread_sort_index", 1, THREAD, {"sort_index": THREAD}),
        ("thread_name", 1, OTHER_THREAD, {"name": "rank 0 thread 102", "original tid": "102"}),
        ("thread_sort_index", 1, OTHER_THREAD, {"sort_index": OTHER_THREAD}),
    ]


def test_what_ranks_did_together_stands_first_and_says_itself_what_it_is() -> None:
    groups = {
        "processes": [[9, "collectives", "collectives"]],
        "threads": [[9, 91, "group dp"]],
        "counters": [],
    }
    told = Sequence()
    known = told.arguments({"collective": '{"sequence": 7}'})
    told.begin(5000, "all_reduce", known, category="collective", on=91).end(2000, on=91)
    document = as_json(head(FACTS, groups) + bytes(told)).document["traceEvents"]
    assert document[-1]["args"] == {"sequence": 7}
    assert {"sort_index": 0} in [one["args"] for one in document if one["pid"] == 9]
    assert {"name": "group dp"} in [one["args"] for one in document if one.get("tid") == 91]


def test_samples_that_are_numbers() -> None:
    told = Sequence().sample(1000, 2.5).sample(1000, 3).sample(1000, float("nan"))
    sample = {"ph": "C", "name": "memory bytes", "pid": 1, "tid": 1}
    assert as_json(head() + bytes(told)).events == [
        sample | {"ts": 1, "args": {"value": 2.5}},
        sample | {"ts": 2, "args": {"value": 3}},
    ]


def test_an_instant_and_a_slice_that_hangs() -> None:
    told = Sequence().instant(1000, "mul").begin(0, "add", COLOURED).end(3000)
    instant, slice_ = as_json(head() + bytes(told)).events
    assert instant == {"ph": "i", "s": "t", "cat": "cpu_op", "name": "mul", "pid": 1, "tid": THREAD, "ts": 1}
    assert (slice_["cname"], slice_["dur"]) == ("terrible", 3)


def test_arrows_of_a_rank_the_last_of_which_are_turned() -> None:
    """Both begin at the event that is met first; the second leads from the other."""
    told = Sequence().instant(1000, "add", leaves(1)).instant(1000, "mul", arrives(1))
    told.instant(1000, "add", leaves(2), on=OTHER_THREAD).instant(0, "mul", arrives(2))
    arrows = [one for one in as_json(head() + bytes(told)).events if one["ph"] in "sf"]
    assert [(one["ph"], one["cat"], one["tid"], one["ts"]) for one in arrows] == [
        ("s", "ac2g", THREAD, 1),
        ("s", "ac2g", THREAD, 3),
        ("f", "ac2g", THREAD, 2),
        ("f", "ac2g", OTHER_THREAD, 3),
    ]


@pytest.mark.parametrize(
    ("later", "phases"), [(1000, ["i", "i", "f", "s"]), (0, ["i", "s", "i", "f"])], ids=["later", "at once"]
)
def test_an_arrow_between_ranks_ends_right_behind_its_own_instant(later: int, phases: list[str]) -> None:
    """Where it ends as it begins, both stand behind its beginning: engines go by time, then by place."""
    told = Sequence().instant(1000, "waited", leaves(99), category="waits")
    told.instant(later, "waited", arrives(99), category="waits", on=OTHER_THREAD)
    events = as_json(head() + bytes(told)).events
    assert [one["ph"] for one in events] == phases
    ends = {one["ph"]: (one["tid"], one["ts"], one["name"]) for one in events if one["ph"] in "sf"}
    assert ends == {"s": (THREAD, 1, "waits"), "f": (OTHER_THREAD, (1000 + later) / 1000, "waits")}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"original": '{"a": 1, "b": [2]}'}, {"a": 1, "b": [2]}),
        ({"original": "{ }"}, None),
        ({"original": "[1]"}, {"original": [1]}),
        ({"original": '{"a": '}, {"original": '{"a": '}),
        ({"original": '{"a": "[2] "}'}, {"a": [2]}),
        ({"link": '{"a": 1}'}, {"link": {"a": 1}}),
        ({"collective": '{"a": 1}'}, {"collective": {"a": 1}}),
        ({"original": "{ }", "link": '{"b": 2}'}, {"link": {"b": 2}}),
        (
            {"original": '{"a": 1}', "link": '{"b": 2}', "recorder": '{"c": 3}'},
            {"a": 1, "link": {"b": 2}, "recorder": {"c": 3}},
        ),
    ],
)
def test_arguments(arguments: dict[str, str], said: dict[str, object] | None) -> None:
    """Between two events with others, so that none takes what is a neighbour's."""
    told = Sequence()
    plain = told.arguments({"original": '{"n": 1}'})
    for fields in (plain, told.arguments(arguments), b"", plain):
        told.instant(1000, "add", fields)
    assert [one.get("args") for one in as_json(head() + bytes(told)).events] == [
        {"n": 1},
        said,
        None,
        {"n": 1},
    ]


def test_times_without_a_base() -> None:
    """A trace in which nothing has a time counts from 0."""
    header = facts({"schemaVersion": 1, "baseTimeNanoseconds": 0})
    told = Sequence(base=0).instant(1000, "n", category="node")
    (one,) = as_json(header + facts(FACTS) + bytes(told)).events
    assert (one["name"], one["ts"]) == ("n", 1)
