"""Native traces in Perfetto's own engine: the same picture as the JSON's, exact to the nanosecond."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from builders.perfetto_native import Native, read
from peers.merged_case import CASES, Merged, Profile, merge
from peers.perfetto_process import Loaded, PerfettoEngine
from tracelink.converters.perfetto.schema import TIE_NAMES

pytestmark = pytest.mark.peer

COMMON = "collectives"
"""The process of what ranks do together."""
ON_THREADS = (
    "slice s join thread_track t on t.id = s.track_id join thread using (utid) join process p using (upid)"
)


@dataclass(frozen=True)
class Both:
    """A job in both of Perfetto's formats."""

    native: Path
    json: Merged


@pytest.fixture(scope="session", params=CASES, ids=lambda case: case.name)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Both:
    if request.param.missing:
        pytest.skip(f"there is no {request.param.inputs}")
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
    base = int(both.json.document["baseTimeNanoseconds"])
    rows = loaded.query(f"select thread.tid as tid, s.name, s.category, s.ts, s.dur from {ON_THREADS}")
    seen = Counter((row["tid"], row["name"], row["category"], row["ts"] - base, row["dur"]) for row in rows)
    assert seen.total() == loaded.value("select count(*) from slice")
    assert seen == Counter(
        (
            event["tid"],
            event["name"],
            event["cat"],
            round(event["ts"] * 1000),
            round(event.get("dur", 0) * 1000),
        )
        for event in both.json.events
        if event["ph"] in "Xi"
    )


def test_times_are_those_of_the_sources(loaded: Loaded, both: Both) -> None:
    rows = loaded.query(f"select p.name as process, s.name, s.ts, s.dur from {ON_THREADS}")
    for profile in map(Profile.of, both.json.case.profile_files()):
        seen = [
            (row["name"], row["ts"], row["dur"])
            for row in rows
            if row["process"].startswith(f"rank {profile.rank} ")
        ]
        shift = profile.shift(seen)
        assert not profile.slices - Counter((name, start - shift, dur) for name, start, dur in seen)


def test_the_viewer_knows_the_wall_clock(loaded: Loaded) -> None:
    first = loaded.value("select min(ts) from slice")
    assert loaded.value(f"select to_realtime({first})") == first


def test_slices_are_nested_as_they_were_written(loaded: Loaded, native: Native) -> None:
    """Instants at which arrows between ranks end are left out: of several at one time the engine makes a pile."""
    rows = loaded.query(
        "select s.name, s.ts, ifnull(parent.name, '') as parent from slice s"
        " left join slice parent on parent.id = s.parent_id"
        f" where s.category not in ({', '.join(map(repr, TIE_NAMES.values()))})"
    )
    seen = Counter((row["name"], row["ts"], row["parent"]) for row in rows)
    slices = [one for one in native.slices if one.value is None and one.category not in TIE_NAMES.values()]
    assert seen == Counter((one.name, one.start, one.parent) for one in slices)


def test_every_arrow_connects_its_slices(loaded: Loaded, native: Native) -> None:
    rows = loaded.query(
        "select o.name as source, o.ts as begin, i.name as target, i.ts as end"
        " from flow join slice o on o.id = slice_out join slice i on i.id = slice_in"
    )
    source = {number: one for one in native.slices for number in one.leaves}
    assert Counter((row["source"], row["begin"], row["target"], row["end"]) for row in rows) == Counter(
        (source[number].name, source[number].start, one.name, one.start)
        for one in native.slices
        for number in one.arrives
    )


def test_names_and_their_order_are_those_of_the_json(loaded: Loaded, both: Both) -> None:
    """Processes are numbered in the order in which they are shown."""
    names = {
        (event["name"], event["tid"]): event["args"]["name"]
        for event in both.json.events
        if event["ph"] == "M" and event["name"] in ("process_name", "thread_name")
    }
    processes = [name for (kind, _), name in names.items() if kind == "process_name"]
    assert [
        row["name"] for row in loaded.query("select name from process where pid != 0 order by upid")
    ] == processes
    threads = loaded.query("select tid, name from thread where name is not null and not is_main_thread")
    assert {row["tid"]: row["name"] for row in threads} == {
        tid: name for (kind, tid), name in names.items() if kind == "thread_name"
    }


def test_samples_are_those_of_the_json(loaded: Loaded, both: Both) -> None:
    base = int(both.json.document["baseTimeNanoseconds"])
    rows = loaded.query("select c.ts, c.value from counter c")
    assert Counter((row["ts"] - base, row["value"]) for row in rows) == Counter(
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
