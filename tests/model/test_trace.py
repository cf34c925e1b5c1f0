"""`tracelink._model.trace`."""

from __future__ import annotations

import pickle

import numpy as np
from msgspec.structs import replace

from tracelink._model.columns import StringTable
from tracelink._model.events import (
    Counters,
    Edges,
    EventKind,
    Events,
    Key,
    KeyColumn,
    Relation,
    Track,
    TrackKind,
)
from tracelink._model.findings import Finding, Severity
from tracelink._model.trace import (
    ListedPayloads,
    NoPayloads,
    ProcessGroup,
    RankTrace,
    SourceInfo,
    combine,
    shared_ranks,
)

THREAD, STREAM = Track(TrackKind.THREAD, "1", "1"), Track(TrackKind.STREAM, "0", "7")
MEMORY = Track(TrackKind.COUNTER, "0", "memory")


def one(path: str, *names: str, group: str = "tp", flows: tuple[int, ...] = ()) -> RankTrace:
    """A trace of events with these names, on a thread and a stream by turns, and one sample."""
    count = len(names)
    strings = StringTable.of(["unused", *names, group])
    return RankTrace(
        [SourceInfo(path, "kineto", rank=1, events=count)],
        strings,
        Events.of(
            kind=[EventKind.OPERATOR] * count,
            name=[strings[name] for name in names],
            track=[row % 2 for row in range(count)],
            start=range(100, 100 + count),
            duration=[1] * count,
            source=[0] * count,
            payload=range(count),
        ),
        [THREAD, STREAM, MEMORY],
        {
            Key.GROUP: KeyColumn.of(rows=range(count), values=[strings[group]] * count),
            Key.CORRELATION: KeyColumn.of(rows=range(count), values=range(7, 7 + count)),
        },
        Counters(np.array([2], np.int32), np.array([5]), np.array([1.5])),
        [ProcessGroup(group)],
        launch_flows=np.array(flows, np.int64),
        payloads=[ListedPayloads([b"{}"] * count)],
        findings=[Finding(Severity.INFO, "seen", path)],
    )


def test_rows_of_all_parts_stand_one_after_the_other() -> None:
    first, second = one("a", "x", "y"), one("b", "y", "z", "x", group="dp")
    whole = combine([first, second])
    texts = whole.strings.texts()
    assert [texts[name] for name in whole.events.name] == ["x", "y", "y", "z", "x"]
    assert whole.events.track.tolist() == [0, 1, 3, 4, 3]
    assert whole.events.source.tolist() == [0, 0, 1, 1, 1]
    assert whole.events.payload.tolist() == [0, 1, 0, 1, 2]
    assert whole.events.start.tolist() == [100, 101, 100, 101, 102]
    assert whole.tracks == [*first.tracks, *second.tracks]
    assert whole.sources == [*first.sources, *second.sources]
    assert whole.groups == [ProcessGroup("tp"), ProcessGroup("dp")]
    assert whole.findings == [*first.findings, *second.findings]
    assert whole.payloads == [*first.payloads, *second.payloads]


def test_keys_move_with_their_events_and_texts_keep_their_meaning() -> None:
    whole = combine([one("a", "x", "y"), one("b", "z", group="dp")])
    texts = whole.strings.texts()
    assert whole.key(Key.CORRELATION).rows.tolist() == [0, 1, 2]
    assert whole.key(Key.CORRELATION).values.tolist() == [7, 8, 7]
    assert [texts[code] for code in whole.key(Key.GROUP).values] == ["tp", "tp", "dp"]
    assert len(whole.key(Key.SEQUENCE)) == 0


def test_edges_stay_between_the_same_events() -> None:
    first, second = one("a", "x", "y"), one("b", "z", "x")
    first.edges = Edges.of_relation(Relation.CALLS, np.array([0]), np.array([1]))
    second.edges = Edges.of_relation(Relation.DEPENDS_ON, np.array([1]), np.array([0]))
    edges = combine([first, one("c"), second]).edges
    assert (edges.source.tolist(), edges.target.tolist()) == ([0, 3], [1, 2])
    assert edges.relation.tolist() == [Relation.CALLS, Relation.DEPENDS_ON]


def test_samples_stay_on_their_tracks() -> None:
    whole = combine([one("a", "x"), one("b", "y")])
    assert [whole.tracks[row] for row in whole.counters.track] == [MEMORY, MEMORY]
    assert whole.counters.track.tolist() == [2, 5]


def test_launch_arrows_of_all_parts() -> None:
    whole = combine([one("a", "x", flows=(3, 5)), one("b", "y", flows=(1, 5))])
    assert whole.launch_flows.tolist() == [1, 3, 5]


def test_a_part_without_events_keeps_everything_else() -> None:
    whole = combine([one("a"), one("b", "x"), one("c")])
    assert [source.path for source in whole.sources] == ["a", "b", "c"]
    assert whole.events.source.tolist() == [1]
    assert whole.events.track.tolist() == [3]
    assert len(whole.counters) == 3


def test_one_trace_is_what_it_was_and_none_is_empty() -> None:
    alone = one("a", "x")
    assert combine([alone]) is alone
    nothing = combine([])
    assert (len(nothing.events), nothing.tracks, nothing.sources, len(nothing.launch_flows)) == (0, [], [], 0)


def test_the_parts_stay_as_they_were() -> None:
    first, second = one("a", "x"), one("b", "y")
    before = replace(second, strings=StringTable.of(second.strings.texts()))
    combine([first, second])
    assert second.strings.texts() == before.strings.texts()
    assert second.events.name.tolist() == before.events.name.tolist()
    assert len(first.tracks) == 3


def test_a_trace_that_is_said_to_be_of_a_rank() -> None:
    said = one("a", "x").with_rank(4)
    assert said.source.rank == 4
    assert {track.rank for track in said.tracks} == {4}


def test_payloads_that_are_held_in_memory() -> None:
    held = ListedPayloads([b"0", b"1", b"2"])
    assert list(held.batches()) == [(0, [b"0", b"1", b"2"])]
    assert list(held.batches(1, 2)) == [(1, [b"1"])]
    assert list(held.batches(3)) == list(held.batches(2, 2)) == list(NoPayloads().batches()) == []


def test_consecutive_ranks_of_large_groups_are_held_once() -> None:
    ranks = shared_ranks(list(range(5, 20_005)))
    assert ranks == tuple(range(5, 20_005))
    assert shared_ranks(list(ranks)) is ranks
    group = ProcessGroup("0", "default_pg", ranks, len(ranks), "nccl")
    pickled = pickle.dumps(group)
    assert (pickle.loads(pickled), len(pickled) < 1000) == (group, True)
    assert pickle.loads(pickled).ranks is ranks


def test_other_ranks_are_as_they_were() -> None:
    swapped = [*range(20_000)]
    swapped[7], swapped[8] = swapped[8], swapped[7]
    for ranks in ((), (3, 1, 2), tuple(swapped)):
        group = ProcessGroup("1", "", shared_ranks(ranks))
        assert group.ranks == ranks
        assert pickle.loads(pickle.dumps(group)) == group
