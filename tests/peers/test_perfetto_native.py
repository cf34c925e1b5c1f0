"""Native traces in Perfetto's own engine: the same picture as the JSON's, exact to the nanosecond."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from builders.perfetto import full_name
from builders.perfetto_native import Native, read
from peers.merged_case import CASES, Merged, Profile, merge
from peers.perfetto_process import Loaded, PerfettoEngine
from tracelink.converters.perfetto.timeline.schema import CROSS_RANK_FLOW_NAMES, SUMMARY_CATEGORY

pytestmark = pytest.mark.peer

TRACKS = """
    with recursive outline(id, root, path) as (
        select id, name, name from track
        where parent_id is null and name is not null and name != 'time (UTC)' and type not glob 'thread*'
        union all
        select t.id, o.root, o.path || '/' || t.name from track t join outline o on t.parent_id = o.id
    )
"""
"""Every track of a rank or group with the root that it is below, and the names on the way to it."""
LANE = re.compile(r" \(\d+\)$")
"""What tells lanes of a thread apart in JSON; native lanes are siblings of one name."""


@dataclass(frozen=True)
class Both:
    """A job in both of Perfetto's formats."""

    native: Path
    json: Merged

    @property
    def base(self) -> int:
        return int(self.json.document["baseTimeNanoseconds"])


@pytest.fixture(scope="session", params=CASES, ids=lambda case: case.name)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Both:
    folder = tmp_path_factory.mktemp(request.param.name)
    return Both(
        merge(request.param, folder / "merged.pftrace").path, merge(request.param, folder / "merged.json")
    )


@pytest.fixture(scope="session")
def loaded(engine: PerfettoEngine, both: Both) -> Iterator[Loaded]:
    with engine.load(both.native) as trace:
        yield trace


@pytest.fixture(scope="session")
def native(both: Both) -> Native:
    return read(both.native.read_bytes())


def test_the_engine_has_no_complaint(loaded: Loaded) -> None:
    assert loaded.problems() == []


def test_every_slice_is_the_one_of_the_json_to_the_nanosecond(loaded: Loaded, both: Both) -> None:
    rows = loaded.query(
        "select t.name as track, s.name, s.category, s.ts, s.dur from slice s join track t on t.id = s.track_id"
        " where s.category != 'summary'"
    )
    seen = Counter((row["track"], row["name"], row["category"], row["ts"], row["dur"]) for row in rows)
    assert seen.total() == loaded.value("select count(*) from slice where category != 'summary'")
    threads = {
        (event["pid"], event["tid"]): LANE.sub("", full_name(event["args"]["name"], event["tid"]))
        for event in both.json.events
        if event["ph"] == "M" and event["name"] == "thread_name"
    }
    assert seen == Counter(
        (
            threads[event["pid"], event["tid"]],
            event["name"],
            event["cat"],
            round(event["ts"] * 1000),
            round(event.get("dur", 0) * 1000),
        )
        for event in both.json.events
        if event["ph"] in "Xi" and event["cat"] != SUMMARY_CATEGORY
    )


def test_headings_of_ranks_and_the_overview_show_the_summaries_of_the_json(
    loaded: Loaded, both: Both
) -> None:
    def of(pattern: str) -> Counter[tuple[str, int]]:
        rows = loaded.query(
            "select s.name, s.ts from slice s join track t on t.id = s.track_id"
            " left join thread_track on thread_track.id = t.id"
            f" left join thread using (utid) where s.category = 'summary' and ({pattern})"
        )
        return Counter((row["name"], row["ts"]) for row in rows)

    in_json = Counter(
        (event["name"], round(event["ts"] * 1000))
        for event in both.json.events
        if event.get("cat") == SUMMARY_CATEGORY
    )
    headings, overview = of("t.name glob 'rank *'"), of("thread.name = 'rank'")
    assert headings == overview
    if len(both.json.document["tracelink"]["ranks"]) > 1:
        assert headings + of("t.name = 'collectives'") == in_json


def test_times_are_those_of_the_sources(loaded: Loaded, both: Both) -> None:
    rows = loaded.query(
        f"{TRACKS} select o.root, s.name, s.ts, s.dur from slice s join outline o on o.id = s.track_id"
    )
    for profile in map(Profile.of, both.json.case.profile_files()):
        seen = [
            (row["name"], both.base + row["ts"], row["dur"])
            for row in rows
            if re.match(rf"rank 0*{profile.rank}\b", row["root"])
        ]
        shift = profile.shift(seen)
        assert not profile.slices - Counter((name, start - shift, dur) for name, start, dur in seen)


def test_real_time_is_an_argument_of_the_clock(loaded: Loaded, both: Both) -> None:
    rows = loaded.query(
        "select extract_arg(s.arg_set_id, 'debug.link.unix_ns') - s.ts as base from slice s"
        " join track t on t.id = s.track_id where t.name = 'time (UTC)'"
    )
    assert {row["base"] for row in rows} == {both.base}
    assert loaded.value("select count(*) from clock_snapshot") == 0


def test_slices_are_nested_as_they_were_written(loaded: Loaded, native: Native, both: Both) -> None:
    """Instants at which arrows between ranks end are left out: of several at one time the engine makes a pile."""
    left_out = [*CROSS_RANK_FLOW_NAMES.values(), SUMMARY_CATEGORY]
    rows = loaded.query(
        "select s.name, s.ts, ifnull(parent.name, '') as parent from slice s"
        " left join slice parent on parent.id = s.parent_id"
        f" where s.category not in ({', '.join(map(repr, left_out))})"
    )
    seen = Counter((row["name"], both.base + row["ts"], row["parent"]) for row in rows)
    slices = [one for one in native.slices if one.category not in left_out]
    assert seen == Counter((one.name, one.start, one.parent) for one in slices)


def test_every_arrow_connects_its_slices(loaded: Loaded, native: Native, both: Both) -> None:
    rows = loaded.query(
        "select o.name as source, o.ts as begin, i.name as target, i.ts as end"
        " from flow join slice o on o.id = slice_out join slice i on i.id = slice_in"
    )
    source = {number: one for one in native.slices for number in one.leaves}
    assert Counter(
        (row["source"], both.base + row["begin"], row["target"], both.base + row["end"]) for row in rows
    ) == Counter(
        (source[number].name, source[number].start, one.name, one.start)
        for one in native.slices
        for number in one.arrives
    )


def test_tracks_stand_below_each_other_in_the_order_of_the_outline(loaded: Loaded, native: Native) -> None:
    """Roots are sorted by name: of those that have no parent viewers take no other order."""
    rows = loaded.query(
        f"{TRACKS} select path, extract_arg(source_arg_set_id, 'sibling_order_rank') as place"
        " from outline join track using (id)"
    )

    def path(number: int) -> str:
        track = native.tracks[number]
        return f"{path(track.parent_uuid)}/{track.name}" if track.parent_uuid else track.name

    def in_order(tracks: Iterable[tuple[str, int]]) -> list[str]:
        """The paths by parent and place; the engine gives siblings of one name one place."""
        return [
            name
            for name, _ in sorted(tracks, key=lambda track: (track[0].rpartition("/")[0], track[1], track[0]))
        ]

    assert in_order((row["path"], row["place"]) for row in rows) == in_order(
        (path(number), track.sibling_order_rank) for number, track in native.tracks.items()
    )
    roots = [line for line in native.outline() if not line.startswith(" ")]
    assert roots == sorted(roots)


def test_samples_are_those_of_the_json(loaded: Loaded, both: Both) -> None:
    rows = loaded.query("select c.ts, c.value from counter c")
    assert Counter((row["ts"], row["value"]) for row in rows) == Counter(
        (round(event["ts"] * 1000), float(event["args"]["value"]))
        for event in both.json.events
        if event["ph"] == "C"
    )


def test_arguments_are_found_by_what_they_stand_in(loaded: Loaded, both: Both) -> None:
    values: Counter[Any] = Counter(
        row["value"]
        for row in loaded.query(
            "select extract_arg(arg_set_id, 'debug.original.External id') as value from slice"
            " where category = 'cpu_op'"
        )
    )
    assert values == Counter(
        event["args"].get("External id")
        for event in both.json.events
        if event["ph"] == "X" and event["cat"] == "cpu_op"
    )
