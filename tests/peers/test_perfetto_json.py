"""Merged traces in Perfetto's own engine: nothing lost, nothing moved, every arrow where it belongs."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from generators.jobs import truth_file
from peers.merged_case import CASES, Merged, Profile, merge
from peers.perfetto_process import Loaded, PerfettoEngine
from tracelink import samples, schemas

pytestmark = pytest.mark.peer

RANK = re.compile(r"\brank (\d+)\b")
SECOND = 10**9
COMMON = "collectives · world size"
"""The process of what ranks do together."""

THREADS_OF_SLICES = (
    "slice s join thread_track t on t.id = s.track_id join thread using (utid) join process p using (upid)"
)


@pytest.fixture(scope="session", params=CASES, ids=lambda case: case.name)
def merged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Merged:
    return merge(request.param, tmp_path_factory.mktemp(request.param.name) / "merged.json")


@pytest.fixture(scope="session")
def loaded(engine: PerfettoEngine, merged: Merged) -> Iterator[Loaded]:
    with engine.load(merged.path) as trace:
        yield trace


def test_the_engine_has_no_complaint(loaded: Loaded) -> None:
    assert loaded.problems() == []


def test_no_slice_is_lost(loaded: Loaded, merged: Merged) -> None:
    assert loaded.value("select count(*) from slice") == merged.slice_count()


def test_every_arrow_connects_the_slices_that_it_names(loaded: Loaded, merged: Merged) -> None:
    places = "select s.id, p.pid, thread.tid, s.ts from " + THREADS_OF_SLICES
    rows = loaded.query(
        "select o.pid as p1, o.tid as t1, o.ts as s1, i.pid as p2, i.tid as t2, i.ts as s2"
        f" from flow join ({places}) o on o.id = slice_out join ({places}) i on i.id = slice_in"
    )
    seen = Counter(((r["p1"], r["t1"], r["s1"]), (r["p2"], r["t2"], r["s2"])) for r in rows)
    assert loaded.value("select count(*) from flow") == seen.total()
    assert seen == merged.arrows()


def test_times_are_exact_to_the_nanosecond(loaded: Loaded, merged: Merged) -> None:
    base = int(merged.document["baseTimeNanoseconds"])
    rows = loaded.query(f"select p.name as process, p.pid, s.name, s.ts, s.dur from {THREADS_OF_SLICES}")
    for profile in map(Profile.of, merged.case.profile_files()):
        seen = [
            (row["name"], base + row["ts"], row["dur"])
            for row in rows
            if row["process"] != COMMON and row["pid"] == profile.rank
        ]
        shift = profile.shift(seen)
        assert abs(shift) < SECOND
        missing = profile.slices - Counter((name, start - shift, dur) for name, start, dur in seen)
        assert not missing


def test_each_rank_is_a_process_with_its_number_and_threads_tell_the_rank(
    loaded: Loaded, merged: Merged
) -> None:
    rows = loaded.query(
        f"select distinct p.pid, p.name as process, tid, thread.name as thread from {THREADS_OF_SLICES}"
    )
    ranks = {profile.rank for profile in map(Profile.of, merged.case.profile_files())}
    assert {row["pid"] for row in rows if row["process"] != COMMON} >= ranks
    assert all(row["process"] == COMMON or row["process"].endswith("rank") for row in rows)
    assert all(rank_in(row["thread"]) == row["pid"] for row in rows if row["process"] != COMMON)
    assert len({(row["pid"], row["thread"], row["tid"]) for row in rows}) == len(rows)


def rank_in(name: str | None) -> int:
    found = RANK.search(name or "")
    assert found, f"no rank in {name!r}"
    return int(found[1])


@pytest.mark.parametrize("name", samples.names())
def test_what_is_written_and_printed_follows_its_schema(name: str, tmp_path_factory: Any) -> None:
    case = next(case for case in CASES if case.name == name)
    done = merge(case, tmp_path_factory.mktemp(name) / "merged.json")
    document = json.loads(done.path.read_bytes())
    assert not list(Draft202012Validator(schemas.load("perfetto-json")).iter_errors(document))
    assert not list(Draft202012Validator(schemas.load("merge")).iter_errors(done.result))


@pytest.fixture(scope="module")
def synthetic(engine: PerfettoEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    case = next(case for case in CASES if case.name == "gpu_pair")
    merged = merge(case, tmp_path_factory.mktemp("truth") / "merged.json")
    with engine.load(merged.path) as trace:
        yield trace


@pytest.fixture(scope="module")
def truth() -> dict[str, Any]:
    """Every link of the synthetic job."""
    truth: dict[str, Any] = json.loads(truth_file(samples.path("gpu_pair")).read_bytes())
    return truth


def test_launches_point_at_what_they_launched(synthetic: Loaded, truth: dict[str, Any]) -> None:
    expected = Counter(
        {
            (rank["rank"], launch["correlation"], launch["correlation"]): launch["gpu_events"]
            for rank in truth["ranks"]
            for launch in rank["launches"]
        }
    )
    gpu_work = "i.category in ('kernel', 'gpu_memcpy', 'gpu_memset')"
    assert arrows(synthetic, "correlation", f"o.category = 'cuda_runtime' and {gpu_work}") == expected


def test_backward_operators_hang_on_their_forward_operators(synthetic: Loaded, truth: dict[str, Any]) -> None:
    expected = Counter(
        (rank["rank"], pair["forward"], pair["backward"])
        for rank in truth["ranks"]
        for pair in rank["backward_of"]
    )
    within = "o.category = 'cpu_op' and i.category = 'cpu_op' and po.upid = pi.upid"
    assert arrows(synthetic, "External id", within) == expected


def arrows(trace: Loaded, arg: str, where: str) -> Counter[tuple[int, int, int]]:
    """(rank, argument of the slice where the arrow begins, and of that where it ends)."""
    rows = trace.query(
        "select po.pid as rank,"
        f" extract_arg(o.arg_set_id, 'args.{arg}') as source,"
        f" extract_arg(i.arg_set_id, 'args.{arg}') as target"
        " from flow join slice o on o.id = slice_out join slice i on i.id = slice_in"
        " join thread_track ot on ot.id = o.track_id join thread oth on oth.utid = ot.utid"
        " join process po on po.upid = oth.upid"
        " join thread_track it on it.id = i.track_id join thread ith on ith.utid = it.utid"
        f" join process pi on pi.upid = ith.upid where {where}"
    )
    return Counter((row["rank"], row["source"], row["target"]) for row in rows)
