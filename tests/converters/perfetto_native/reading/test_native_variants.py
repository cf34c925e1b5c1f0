"""Everything that packets can say, in each of the ways in which they can say it."""

from __future__ import annotations

from typing import Any

import pytest

from builders.native_packets import (
    BASE,
    COUNTER,
    FACTS,
    OTHER_THREAD,
    THREAD,
    Sequence,
    argument,
    as_json,
    bundle,
    double,
    event,
    facts,
    flow,
    head,
    number,
    packet,
    text,
)
from tracelink.errors import UnreadableError
from tracelink.wire import delimited

BEGIN, END, INSTANT, COUNTED = 1, 2, 3, 4
CATEGORIES, NAMES, ARGUMENT_NAMES, ARGUMENT_TEXTS = 1, 2, 3, 29
TABLES = {CATEGORIES: {1: "cpu_op"}, NAMES: {1: "add", 2: "mul"}}
ADD = {"ph": "X", "cat": "cpu_op", "name": "add", "pid": 1, "tid": THREAD, "ts": 5, "dur": 2}


def named(kind: int, *more: bytes, name: int = 1) -> bytes:
    return event(kind, number(3, 1), number(10, name), *more)


def on(track: int) -> bytes:
    return number(11, track)


def steps() -> bytes:
    told = Sequence().begins(TABLES)
    return bytes(told.add(5000, named(BEGIN, on(THREAD))).add(2000, event(END, on(THREAD))))


def absolute_on_the_clock_of_traces() -> bytes:
    boot = number(58, 6)
    told = Sequence().begins(TABLES).add(BASE + 5000, named(BEGIN, on(THREAD)), boot)
    return bytes(told.add(BASE + 7000, event(END, on(THREAD)), boot))


def absolute_on_a_clock_of_its_own() -> bytes:
    told = Sequence().begins(TABLES, incremental=False).add(BASE + 5000, named(BEGIN, on(THREAD)))
    return bytes(told.add(BASE + 7000, event(END, on(THREAD))))


def track_by_default() -> bytes:
    return bytes(Sequence().begins(TABLES, track=THREAD).add(5000, named(BEGIN)).add(2000, event(END)))


def texts_in_place() -> bytes:
    begin = event(BEGIN, text(22, "cpu_op"), text(23, "add"), on(THREAD))
    return bytes(Sequence().begins().add(5000, begin).add(2000, event(END, on(THREAD))))


def texts_that_come_later() -> bytes:
    told = Sequence().begins()
    tables = [delimited(table, number(1, 1) + text(2, said)) for table, said in ((1, "cpu_op"), (2, "add"))]
    told.add(5000, named(BEGIN, on(THREAD)), delimited(12, b"".join(tables)))
    return bytes(told.add(2000, event(END, on(THREAD))))


def cleared_on_the_way() -> bytes:
    told = Sequence().begins({NAMES: {1: "another"}}).begins(TABLES)
    return bytes(told.add(5000, named(BEGIN, on(THREAD))).add(2000, event(END, on(THREAD))))


def in_bundles() -> bytes:
    told = Sequence().begins(TABLES).add(5000, named(BEGIN, on(THREAD))).add(2000, event(END, on(THREAD)))
    first, *others = told.packets
    return bundle(first) + packet(number(8, BASE), delimited(69, number(3, 1))) + bundle(*others)


def interleaved_with_another() -> bytes:
    """Each sequence has texts, steps and a track of its own."""
    one = Sequence(1).begins(TABLES, track=THREAD).add(5000, named(BEGIN)).add(2000, event(END))
    other = Sequence(2).begins({NAMES: {1: "unseen"}}, track=999).add(1000, named(BEGIN)).add(50, event(END))
    return b"".join(part for pair in zip(one.packets, other.packets, strict=True) for part in pair)


@pytest.mark.parametrize(
    "told",
    [
        steps,
        absolute_on_the_clock_of_traces,
        absolute_on_a_clock_of_its_own,
        track_by_default,
        texts_in_place,
        texts_that_come_later,
        cleared_on_the_way,
        in_bundles,
        interleaved_with_another,
    ],
)
def test_a_slice(told: Any) -> None:
    assert as_json(head() + told()).events == [ADD]


def test_the_document_has_the_header_and_the_names_of_the_facts() -> None:
    document = as_json(head() + steps()).document
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
    begin = event(
        BEGIN,
        on(91),
        text(22, "collective"),
        text(23, "all_reduce"),
        delimited(4, argument(text(9, '{"sequence": 7}'), name="collective")),
    )
    told = Sequence().begins().add(5000, begin).add(2000, event(END, on(91)))
    document = as_json(head(FACTS, groups) + bytes(told)).document["traceEvents"]
    assert document[-1]["args"] == {"sequence": 7}
    assert {"sort_index": 0} in [one["args"] for one in document if one["pid"] == 9]
    assert {"name": "group dp"} in [one["args"] for one in document if one.get("tid") == 91]


def test_samples_whole_or_not() -> None:
    told = Sequence().begins(track=COUNTER)
    told.add(1000, event(COUNTED, double(44, 2.5))).add(1000, event(COUNTED, number(30, 3)))
    told.add(1000, event(COUNTED, double(44, float("nan"))))
    sample = {"ph": "C", "name": "memory bytes", "pid": 1, "tid": 1}
    assert as_json(head() + bytes(told)).events == [
        sample | {"ts": 1, "args": {"value": 2.5}},
        sample | {"ts": 2, "args": {"value": 3}},
    ]


def test_an_instant_and_a_slice_that_hangs() -> None:
    told = Sequence().begins(TABLES, track=THREAD)
    told.add(1000, named(INSTANT, name=2)).add(0, named(BEGIN, number(52, 262))).add(3000, event(END))
    instant, slice_ = as_json(head() + bytes(told)).events
    assert instant == {"ph": "i", "s": "t", "cat": "cpu_op", "name": "mul", "pid": 1, "tid": THREAD, "ts": 1}
    assert (slice_["cname"], slice_["dur"]) == ("terrible", 3)


def test_arrows_of_a_rank_the_last_of_which_are_turned() -> None:
    """Both begin at the event that is met first; the second leads from the other."""
    told = Sequence().begins(TABLES, track=THREAD)
    told.add(1000, named(INSTANT, flow(47, 1))).add(1000, named(INSTANT, flow(48, 1), name=2))
    told.add(1000, named(INSTANT, flow(47, 2), on(OTHER_THREAD))).add(0, named(INSTANT, flow(48, 2), name=2))
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
    told = Sequence().begins({CATEGORIES: {1: "waits"}, NAMES: {1: "waited"}}, track=THREAD)
    told.add(1000, named(INSTANT, flow(47, 99))).add(later, named(INSTANT, flow(48, 99), on(OTHER_THREAD)))
    events = as_json(head() + bytes(told)).events
    assert [one["ph"] for one in events] == phases
    ends = {one["ph"]: (one["tid"], one["ts"], one["name"]) for one in events if one["ph"] in "sf"}
    assert ends == {"s": (THREAD, 1, "waits"), "f": (OTHER_THREAD, (1000 + later) / 1000, "waits")}


INTERNED = {
    ARGUMENT_NAMES: {1: "original", 2: "a", 3: "link"},
    ARGUMENT_TEXTS: {1: "[1]", 2: "[1]", 4: "no JSON"},
}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([argument(text(9, '{"a": 1, "b": [2]}'), name="original")], {"a": 1, "b": [2]}),
        ([argument(text(9, "{}"), name="original")], {"original": {}}),
        ([argument(text(9, "[1]"), name="original")], {"original": [1]}),
        ([argument(text(9, '{"a": '), name="original")], {"original": '{"a": '}),
        ([argument(text(9, '{"a": 1}'), name="link")], {"link": {"a": 1}}),
        ([argument(text(9, '{"a": 1}'), name="collective")], {"collective": {"a": 1}}),
        (
            [
                argument(text(9, '{"a": 1}'), name="original"),
                argument(text(9, '{"b": 2}'), name="link"),
                argument(text(9, '{"c": 3}'), name="recorder"),
            ],
            {"a": 1, "link": {"b": 2}, "recorder": {"c": 3}},
        ),
        ([argument(number(4, -5), name="original.a")], {"a": -5}),
        ([argument(number(4, 1), name="original.a.b c.d")], {"a.b c.d": 1}),
        ([argument(number(4, 1), name="other.a")], {"other.a": 1}),
        (
            [
                argument(number(4, 1), name="link.a"),
                argument(number(4, 2), name="original.b"),
                argument(number(2, 1), name="link.c"),
            ],
            {"link": {"a": 1, "c": True}, "b": 2},
        ),
        (
            [
                number(1, 1)
                + delimited(11, number(1, 2) + number(17, 1))
                + delimited(11, number(1, 3) + double(5, 0.5))
            ],
            {"a": "[1]", "link": 0.5},
        ),
        ([number(1, 1) + delimited(11, number(1, 2) + number(17, 2))], {"a": [1]}),
        ([number(1, 1) + delimited(11, number(1, 2) + number(17, 4))], {"a": "no JSON"}),
        ([number(1, 1) + delimited(11, number(1, 2) + number(17, 9))], {"a": None}),
        (
            [
                argument(
                    delimited(11, argument(delimited(11, argument(text(6, 'q"'), name="b")), name="a")),
                    delimited(11, argument(name="empty")),
                    delimited(11, argument(number(3, (1 << 64) - 1), name="large")),
                    name="original",
                )
            ],
            {"a": {"b": 'q"'}, "empty": {}, "large": (1 << 64) - 1},
        ),
    ],
)
def test_arguments(arguments: list[bytes], said: dict[str, Any]) -> None:
    """Between two events with others, so that none takes what is a neighbour's."""
    told = Sequence().begins(TABLES | INTERNED, track=THREAD)
    plain = delimited(4, argument(number(4, 1), name="original.n"))
    for fields in ([plain], [delimited(4, one) for one in arguments], [], [plain]):
        told.add(1000, named(INSTANT, *fields))
    assert [one.get("args") for one in as_json(head() + bytes(told)).events] == [
        {"n": 1},
        said,
        None,
        {"n": 1},
    ]


def test_arguments_within_arguments_without_end_are_refused() -> None:
    deep = argument(number(4, 1), name="a")
    for _ in range(300):
        deep = argument(delimited(11, deep), name="a")
    told = Sequence().begins(TABLES, track=THREAD).add(1000, named(INSTANT, delimited(4, deep)))
    with pytest.raises(UnreadableError, match="deep"):
        as_json(head() + bytes(told))


def test_times_without_a_base() -> None:
    """A trace in which nothing has a time counts from 0."""
    header = facts({"schemaVersion": 1, "baseTimeNanoseconds": 0})
    told = Sequence().add(1000, named(INSTANT, on(THREAD), text(22, "node"), text(23, "n")), number(58, 6))
    (one,) = as_json(header + facts(FACTS) + bytes(told)).events
    assert (one["name"], one["ts"]) == ("n", 1)
