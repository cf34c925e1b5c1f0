"""Properties of estimated clocks, on generated and on real jobs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from builders.crossings import EPOCH, MS, US, JobBuilder, S, crossings, earliest_leaving, true_offset
from builders.data import foreign, traces
from tracelink._api.functions import load
from tracelink._match import bounds as envelopes
from tracelink._match.clock import Crossings, RankHosts, estimate_clocks
from tracelink._match.observations import Crossed
from tracelink._model.clock import Clock, ClockMode
from tracelink._model.columns import NO_TIME

# Whatever clocks, groups and delays: the truth lies in the interval, nothing comes before its cause.


OFFSETS = st.integers(-50 * MS, 50 * MS)
DRIFTS = st.floats(-50, 50)
CLOCKS = st.tuples(OFFSETS, DRIFTS)


class Case(NamedTuple):
    """A job, the hosts of its ranks, and how it is to be looked at."""

    job: JobBuilder
    hosts: dict[int, str]
    mode: ClockMode


@st.composite
def cases(draw: st.DrawFn, clocks: st.SearchStrategy[tuple[int, float]] = CLOCKS) -> Case:
    """Up to ten ranks on up to four hosts that meet in groups of any sort."""
    names = draw(st.lists(st.sampled_from(["a", "b", "c", ""]), min_size=1, max_size=10))
    of_host = {name: draw(clocks) for name in sorted(set(names))}
    of_rank = {rank: of_host[name] if name else draw(clocks) for rank, name in enumerate(names)}
    job = JobBuilder(of_rank)
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    span = draw(st.sampled_from([10 * MS, S, 20 * S]))
    late, noise = (draw(st.sampled_from([0, 5 * US, 300 * US, 20 * MS])) for _ in range(2))
    least = draw(st.sampled_from([US, 20 * US, 300 * US]))
    for _ in range(draw(st.integers(0, 30))):
        _meet(job, random, len(names), (int(random.integers(0, span)), late, least, noise))
    mode = draw(st.sampled_from([ClockMode.HOST, ClockMode.COLLECTIVES]))
    return Case(job, dict(enumerate(names)), mode)


def _meet(job: JobBuilder, random: np.random.Generator, ranks: int, times: tuple[int, int, int, int]) -> None:
    start, late, least, noise = times
    group = random.permutation(ranks)[: random.integers(1, ranks + 1)]
    entered = start + random.integers(0, late + 1, len(group))
    kind = random.integers(0, 4)
    if kind == 0 and len(group) > 1:
        job.message(
            *group[:2].tolist(), int(entered[0]), int(entered[0] + least + random.integers(0, noise + 1))
        )
        return
    awaited = np.arange(len(group)) == 0 if kind == 1 else np.ones(len(group), np.bool_)
    left = np.maximum(entered, entered[awaited].max()) + least + random.integers(0, noise + 1, len(group))
    job.meeting(group, entered, left, awaited=awaited, together=kind == 2)


@settings(max_examples=300)
@given(cases())
def test_the_true_offset_lies_in_the_interval(case: Case) -> None:
    found = estimate_clocks(case.job.recorded(), case.hosts, case.mode)
    for clock in found.ranks:
        truth = true_offset(case.job, clock)
        assert clock.low_ns is None or clock.low_ns <= truth + 2, clock
        assert clock.high_ns is None or clock.high_ns >= truth - 2, clock
        assert abs(clock.drift_ppm) <= 200.0001


@settings(max_examples=300)
@given(cases())
def test_nobody_leaves_before_all_it_waits_for_have_entered(case: Case) -> None:
    recorded = case.job.recorded()
    found = estimate_clocks(recorded, case.hosts, case.mode)
    assert [finding for finding in found.findings if finding.reason != "clock_unbounded"] == []
    assert earliest_leaving(recorded, found.by_rank) >= 0


@settings(max_examples=100)
@given(cases())
def test_the_truth_lies_in_the_interval_too_where_not_all_pairs_are_looked_at(case: Case) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(envelopes, "ALL_PAIRS", 8)
        patch.setattr(envelopes, "CELLS", 100)
        patch.setattr(envelopes, "CLOCK_PAIR_BATCH", 5)
        found = estimate_clocks(case.job.recorded(), case.hosts, case.mode)
    for clock in found.ranks:
        truth = true_offset(case.job, clock)
        assert clock.low_ns is None or clock.low_ns <= truth + 2, clock
        assert clock.high_ns is None or clock.high_ns >= truth - 2, clock


@settings(max_examples=100)
@given(cases(st.just((0, 0.0))))
def test_where_clocks_agree_the_correction_is_within_its_uncertainty(case: Case) -> None:
    found = estimate_clocks(case.job.recorded(), case.hosts, case.mode)
    for clock in found.ranks:
        if clock.uncertainty_ns is not None:
            assert abs(clock.offset_ns) <= clock.uncertainty_ns


@settings(max_examples=100)
@given(cases())
def test_one_host_has_one_clock_and_it_is_right(case: Case) -> None:
    """Also the numbers of all ranks of a host are the same."""
    found = estimate_clocks(case.job.recorded(), dict.fromkeys(case.hosts, "node"), ClockMode.HOST)
    if all(case.job.clocks[rank] == case.job.clocks[0] for rank in case.hosts):
        assert {clock.offset_ns for clock in found.ranks} == {0}
        assert {(clock.low_ns, clock.high_ns, clock.drift_ppm) for clock in found.ranks} == {(0, 0, 0.0)}


@st.composite
def nonsense(draw: st.DrawFn) -> Crossings:
    """Crossings that nobody can have had."""
    times = st.one_of(
        st.just(NO_TIME), st.integers(EPOCH, EPOCH + draw(st.sampled_from([100, MS, 3600 * S])))
    )
    rows = draw(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 5), times, times), max_size=40))
    roles = draw(st.lists(st.tuples(*[st.booleans()] * 3), min_size=len(rows), max_size=len(rows)))
    names = ("meeting", "rank", "entered", "left", "waits", "awaited", "together")
    columns = zip(*(row + role for row, role in zip(rows, roles, strict=True)), strict=True)
    return crossings(**dict(zip(names, columns, strict=False)))


@settings(max_examples=200)
@pytest.mark.filterwarnings("error")
@given(nonsense(), st.sampled_from([ClockMode.HOST, ClockMode.COLLECTIVES]))
def test_whatever_crossings_say_offsets_stay_within_their_intervals(met: Crossings, mode: ClockMode) -> None:
    found = estimate_clocks(met, {0: "a", 1: "a", 2: "b", 3: "b", 4: "", 5: ""}, mode)
    for clock in found.ranks:
        assert abs(clock.drift_ppm) <= 200.0001
        assert clock.low_ns is None or clock.low_ns <= clock.offset_ns
        assert clock.high_ns is None or clock.high_ns >= clock.offset_ns
    first = found.by_rank[0]
    assert (first.offset_ns, first.drift_ppm, first.low_ns, first.high_ns) == (0, 0.0, 0, 0)


# A real job of eight ranks on one host, whose clocks are put wrong on purpose.


@pytest.fixture(scope="module", params=["cluster", *foreign("matched8")])
def met(request: pytest.FixtureRequest) -> Crossings:
    """What the job's collectives and messages say of its clocks."""
    seen: list[Crossings] = []
    crossed = RankHosts.crossed

    def watched(hosts: RankHosts, crossings: Crossings) -> Crossed:
        seen.append(crossings)
        return crossed(hosts, crossings)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RankHosts, "crossed", watched)
        load(traces(request.param), jobs=1)
    collectives, messages = seen[:2]
    after = int(collectives.meeting.max()) + 1
    return Crossings.concatenate([collectives, replace(messages, meeting=messages.meeting + after)])


def put_wrong(met: Crossings, offset: Any, drift: Any) -> tuple[Crossings, int]:
    """The crossings by clocks that are wrong by an offset in ns and a drift in ppm, and since when they drift."""
    start = min(int(time[time != NO_TIME].min()) for time in (met.entered, met.left))
    columns = met.columns()
    for name in ("entered", "left"):
        time = columns[name]
        wrong = time + offset[met.rank] + np.rint((time - start) * drift[met.rank] * 1e-6).astype(np.int64)
        columns[name] = np.where(time == NO_TIME, NO_TIME, wrong)
    return Crossings(**columns), start


def error(clock: Clock, offset: Any, drift: Any, start: int) -> float:
    """By how much the offset is wrong, in ns; outside its interval, infinitely much."""
    since = (clock.reference_ns - start - offset[0]) / (1 + drift[0] * 1e-6)
    truth = offset[clock.rank] - offset[0] + since * (drift[clock.rank] - drift[0]) * 1e-6
    assert clock.low_ns is not None
    assert clock.high_ns is not None
    return abs(clock.offset_ns - truth) if clock.low_ns <= truth <= clock.high_ns else float("inf")


@pytest.mark.parametrize("seed", range(8))
def test_wrong_clocks_are_found_within_300_microseconds(met: Crossings, seed: int) -> None:
    random = np.random.default_rng(seed)
    offset, drift = random.integers(-50 * MS, 50 * MS, 8), random.uniform(-50, 50, 8)
    recorded, start = put_wrong(met, offset, drift)
    found = estimate_clocks(recorded, dict.fromkeys(range(8), "vm"), ClockMode.COLLECTIVES)
    errors = [error(clock, offset, drift, start) for clock in found.ranks if clock.rank]
    assert np.median(errors) < 0.3 * MS
    assert max(errors) < MS
    assert earliest_leaving(recorded, found.by_rank) >= 0
    assert found.findings == []


def test_right_clocks_stay_right_within_what_is_reported(met: Crossings) -> None:
    found = estimate_clocks(met, dict.fromkeys(range(8), "vm"), ClockMode.COLLECTIVES)
    for clock in found.ranks:
        assert clock.drift_ppm == 0
        assert clock.uncertainty_ns is not None
        assert abs(clock.offset_ns) <= clock.uncertainty_ns < 2 * MS


def test_one_host_needs_no_correction(met: Crossings) -> None:
    found = estimate_clocks(met, dict.fromkeys(range(8), "vm"), ClockMode.HOST)
    assert [clock.offset_ns for clock in found.ranks] == [0] * 8
    assert found.findings == []
