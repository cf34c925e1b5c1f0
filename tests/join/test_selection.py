"""`tracelink._join.selection`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.job import START, HeldPart, JobBuilder
from tracelink._io.spool import LocalStore
from tracelink._join.selection import SelectionReport, apply, selection_findings
from tracelink._join.selection import cut as cut_graph
from tracelink._model.columns import NO_TIME, UNKNOWN
from tracelink._model.errors import UsageError
from tracelink._model.events import EventKind, Key, Relation, TrackKind
from tracelink._model.findings import Finding, Severity
from tracelink._model.graph import EventGraph
from tracelink._model.job import LinkedJob
from tracelink._model.selection import KINDS, LATEST, Moment, Numbers, Selection, Steps, Window, steps_of
from tracelink._model.text import moment, span
from tracelink._run.processes import Processes

# What a selection keeps of a rank.


K = EventKind


def kept(
    graph: EventGraph, *, communications: Iterable[int] = (), origin: int = START, **said: str
) -> list[int]:
    """The rows of the events that a selection keeps."""
    return cut(graph, communications=communications, origin=origin, **said)[1]


def cut(
    graph: EventGraph, *, communications: Iterable[int] = (), origin: int = START, **said: str
) -> tuple[EventGraph, list[int]]:
    rows = np.array(list(communications), np.int64)
    left, old = apply(Selection(**said), graph, origin, rows)
    return left, old.tolist()


class TestWhatIsSaid:
    @pytest.mark.parametrize(
        ("text", "first", "last"),
        [
            ("2.5s..3.1s", 2_500_000_000, 3_100_000_000),
            ("2.5s..", 2_500_000_000, None),
            ("..800ms", None, 800_000_000),
            ("0..1m", 0, 60_000_000_000),
            (" 1us .. 2min ", 1_000, 120_000_000_000),
            ("3ns..4µs", 3, 4_000),
            ("0.1s..0.3s", 100_000_000, 300_000_000),
            ("999999999.123456789s..", 999_999_999_123_456_789, None),
            ("0.028 ms..1,234.567 s", 28_000, 1_234_567_000_000),
        ],
    )
    def test_a_window_from_and_to_a_time_after_the_beginning(
        self, text: str, first: int | None, last: int | None
    ) -> None:
        assert Window.parse(text, "--window").after(0) == (first, last)
        origin = 1_740_816_360_000_014_000
        assert Window.parse(text, "--window").after(origin) == (
            None if first is None else origin + first,
            None if last is None else origin + last,
        )

    @pytest.mark.parametrize(
        "text",
        [
            "2025-03-01 08:06:00.000014 UTC..2025-03-01 08:06:02 UTC",
            "2025-03-01T08:06:00.000014Z .. 2025-03-01T08:06:02Z",
            "2025-03-01 08:06:00.000014000..2025-03-01 08:06:02.0",
            "1740816360000014000..1740816362000000000",
        ],
    )
    def test_a_window_in_utc_as_commands_print_it(self, text: str) -> None:
        for origin in (0, 5, 10**18):
            assert Window.parse(text, "--window").after(origin) == (
                1_740_816_360_000_014_000,
                1_740_816_362_000_000_000,
            )

    @given(st.integers(0, 4 * 10**18))
    def test_every_time_that_is_printed_is_a_bound(self, time: int) -> None:
        for printed, unit in ((moment(time), 1_000), (span(time), 10**6 if time >= 10**9 else 1_000)):
            ((first, last),) = {Window.parse(f"{printed}..", "--window").after(0)}
            assert first is not None
            assert abs(first - time) <= unit
            assert last is None

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "..",
            "2s",
            "2s-3s",
            "2..3",
            "1h..",
            "-1s..",
            "x..",
            "1e3s..",
            "1s...2s",
            "2025-02-30 08:06:00..",
        ],
    )
    def test_what_is_no_window_is_refused(self, text: str) -> None:
        with pytest.raises(UsageError, match=r"--window: .*(Write, for example|Write a number and a unit)"):
            Window.parse(text, "--window")

    @pytest.mark.parametrize(
        "text", ["3s..2s", "2s..2000ms", "2025-03-01 08:06:01..2025-03-01 08:06:00.999999999"]
    )
    def test_a_window_that_ends_before_it_begins_is_refused(self, text: str) -> None:
        with pytest.raises(UsageError, match=r"ends before it begins\. Give the earlier time first"):
            Window.parse(text, "--window")

    def test_an_unknown_kind_is_refused_with_those_there_are(self) -> None:
        with pytest.raises(UsageError) as error:
            Selection(only="kernels,kernel")
        assert str(error.value) == (
            f"only: there is no kind of events 'kernel'. Did you mean kernels? There are: {', '.join(KINDS)}."
        )

    def test_numbers_and_words_are_as_good_as_texts(self) -> None:
        made = Selection(
            ranks=[0, 1, np.int64(2)], steps=range(3, 6), only=["kernels"], window=Window(Moment(1))
        )
        assert made == Selection(ranks="0-2", steps="3-5", only="kernels", window="1ns..")
        assert Selection(ranks=3) == Selection(ranks="3")
        assert replace(made, steps=None) == Selection(ranks="0-2", only="kernels", window="1ns..")

    @pytest.mark.parametrize(
        ("said", "problem"),
        [
            (
                {"ranks": "x"},
                "ranks: 'x' is not a number or a range of numbers. Write, for example, ranks=\"0-7,64\"",
            ),
            ({"ranks": [-1]}, "ranks: -1 is not a number from 0. Write, for example, ranks=[0, 1]."),
            ({"ranks": ["0"]}, "ranks: '0' is not a number from 0. Write, for example, ranks=[0, 1]."),
            ({"steps": 1.5}, "steps: 1.5 is not a number from 0. Write, for example, steps=[0, 1]."),
            ({"window": 5}, 'window: 5 is not a time range. Write, for example, window="2.5s..3.1s".'),
            (
                {"window": "5"},
                "window: '5' is not a time range. Write, for example, window=\"2.5s..3.1s\", ",
            ),
            ({"only": ["x"]}, "only: there is no kind of events 'x'. There are: operators, "),
        ],
    )
    def test_what_is_no_selection_is_refused_at_once(self, said: dict[str, Any], problem: str) -> None:
        with pytest.raises(UsageError) as error:
            Selection(**said)
        assert str(error.value).startswith(problem)

    def test_ranks_alone_cut_nothing_from_a_rank(self) -> None:
        assert not Selection(ranks="0-7").cuts
        assert Selection(ranks="0-7").ranks == Numbers(((0, 7),))
        assert all(Selection(**{name: text}).cuts for name, text in SAID.items())


SAID = {"window": "1s..", "steps": "3", "only": "python"}


class TestKinds:
    def test_every_kind_has_a_word(self) -> None:
        assert {kind for kinds in KINDS.values() for kind in kinds} == set(EventKind)

    @pytest.mark.parametrize("word", KINDS)
    def test_a_word_keeps_its_kinds(self, word: str) -> None:
        built = JobBuilder()
        track = built.track()
        for kind in EventKind:
            built.add(track, kind.name, 0, 1, kind)
        assert kept(built.build(), only=word) == [int(kind) for kind in EventKind if kind in KINDS[word]]

    def test_collectives_are_whatever_takes_part_in_one(self) -> None:
        built = JobBuilder()
        track = built.track()
        for kind in (K.OPERATOR, K.KERNEL, K.NODE, K.KERNEL, K.RECORD, K.PYTHON):
            built.add(track, "x", 0, 1, kind)
        assert kept(built.build(), only="collectives", communications=[0, 3, 4]) == [0, 3, 4]
        assert kept(built.build(), only="collectives,python", communications=[0, 3, 4]) == [0, 3, 4, 5]
        assert kept(built.build(), only="python", communications=[0, 3, 4]) == [5]

    def test_counters_have_a_word_too(self) -> None:
        built = JobBuilder()
        built.sample(built.track(TrackKind.COUNTER), 5, 1.0)
        assert len(cut(built.build(), only="counters")[0].counters) == 1
        assert len(cut(built.build(), only="kernels")[0].counters) == 0


class TestWindow:
    def test_what_overlaps_it_is_kept_whole(self) -> None:
        built = JobBuilder()
        track = built.track()
        for start, duration in ((0, 10), (0, 11), (5, 30), (10, 5), (19, 5), (20, 5)):
            built.add(track, "op", start, duration)
        left, rows = cut(built.build(), window="10ns..20ns")
        assert rows == [1, 2, 3, 4]
        assert left.events.duration.tolist() == [11, 30, 5, 5]

    def test_it_counts_from_the_beginning_of_the_job_and_not_of_the_rank(self) -> None:
        built = JobBuilder()
        built.add(built.track(), "op", 50, 10)
        assert kept(built.build(), window="55ns..") == [0]
        assert kept(built.build(), window="55ns..", origin=START + 10) == []

    def test_an_instant_belongs_to_one_of_two_windows_that_touch(self) -> None:
        built = JobBuilder()
        built.add(built.track(), "mark", 10, UNKNOWN, K.INSTANT)
        assert kept(built.build(), window="..10ns") == []
        assert kept(built.build(), window="10ns..20ns") == [0]
        assert kept(built.build(), window="11ns..20ns") == []

    def test_a_sample_is_an_instant(self) -> None:
        built = JobBuilder()
        track = built.track(TrackKind.COUNTER)
        for time in (9, 10, 19, 20):
            built.sample(track, time, float(time))
        assert cut(built.build(), window="10ns..20ns")[0].counters.value.tolist() == [10.0, 19.0]

    def test_a_node_without_a_time_is_where_the_operator_is_that_is_the_same(self) -> None:
        built = JobBuilder()
        track = built.track()
        rows = [built.add(track, "op", start, 5) for start in (0, 20)]
        nodes = [built.add(track, "op", None, UNKNOWN, K.NODE) for _ in range(3)]
        for node, row in zip(nodes, rows, strict=False):
            built.edge(node, Relation.SAME, row)
        assert kept(built.build(), window="20ns..") == [rows[1], nodes[1]]
        assert kept(built.build(), window="20ns..", only="nodes") == [nodes[1]]

    def test_what_was_still_running_when_the_recording_stopped_lasts(self) -> None:
        built = JobBuilder()
        track = built.track()
        built.add(track, "op", 5, UNKNOWN)
        for state in ("scheduled", "started", "completed"):
            built.add(track, "gloo:all_reduce", 5, UNKNOWN, K.RECORD, keys={Key.STATE: state})
        assert kept(built.build(), window="20ns..") == [0, 2]
        assert kept(built.build(), window="..5ns") == []

    def test_an_entry_without_an_end_is_where_the_operator_is_that_is_the_same(self) -> None:
        built = JobBuilder()
        track = built.track()
        entry = built.add(track, "nccl:all_reduce", 5, UNKNOWN, K.RECORD, keys={Key.STATE: "scheduled"})
        kernel = built.add(track, "ncclKernel", 15, 10, K.KERNEL)
        built.edge(entry, Relation.SAME, kernel)
        assert kept(built.build(), window="20ns..") == [entry, kernel]


class TestSteps:
    def test_each_rank_has_its_own(self) -> None:
        built = JobBuilder()
        track = built.track()
        for number in (3, 4, 5):
            built.add(track, f"ProfilerStep#{number}", 10 * number, 10, K.ANNOTATION)
            built.add(track, "op", 10 * number + 1, 2)
        assert kept(built.build(), steps="4") == [2, 3]
        assert kept(built.build(), steps="3,5") == [0, 1, 4, 5]
        assert kept(built.build(), steps="6-99") == []

    def test_what_a_step_puts_on_the_gpu_is_kept_whenever_it_runs(self) -> None:
        built = JobBuilder()
        thread, stream = built.track(), built.track(TrackKind.STREAM)
        built.add(thread, "ProfilerStep#1", 0, 10, K.ANNOTATION)
        launch = built.add(thread, "cudaLaunchKernel", 5, 1, K.RUNTIME)
        late = built.add(stream, "kernel", 50, 5, K.KERNEL)
        built.add(stream, "of another", 50, 5, K.KERNEL)
        built.edge(launch, Relation.LAUNCHES, late)
        graph = built.build()
        assert kept(graph, steps="1") == [0, launch, late]
        assert kept(graph, steps="1", only="kernels") == [late]
        assert kept(graph, steps="1", window="..20ns") == [0, launch]
        assert kept(graph, steps="1", window="6ns..") == [0]

    def test_a_window_and_steps_are_what_lies_in_both_at_once(self) -> None:
        built = JobBuilder()
        track = built.track()
        built.add(track, "step 1", 0, 10, K.ANNOTATION)
        built.add(track, "step 2", 10, 10, K.ANNOTATION)
        built.add(track, "both, at different times", 5, 10)
        built.add(track, "both", 15, 10)
        assert kept(built.build(), steps="2", window="16ns..") == [1, 3]


class TestWhatIsLeft:
    def built(self) -> EventGraph:
        built = JobBuilder()
        track = built.track()
        rows = [built.add(track, f"op {place}", 10 * place, 5, args={"place": place}) for place in range(4)]
        built.keys = {Key.CORRELATION: [(row, 100 + row) for row in rows if row != 2]}
        built.edge(rows[0], Relation.CALLS, rows[1])
        built.edge(rows[1], Relation.CALLS, rows[3])
        return built.build()

    def test_edges_and_keys_of_the_events_that_stay(self) -> None:
        left, rows = cut(self.built(), window="10ns..")
        assert rows == [1, 2, 3]
        assert [left.name(row) for row in range(3)] == ["op 1", "op 2", "op 3"]
        assert (left.edges.source.tolist(), left.edges.target.tolist()) == ([0], [2])
        assert left.key(Key.CORRELATION).rows.tolist() == [0, 2]
        assert left.key(Key.CORRELATION).values.tolist() == [101, 103]
        assert left.bounds == [0, 3]

    def test_events_still_find_their_arguments(self) -> None:
        left, _ = cut(self.built(), window="25ns..")
        assert [left.arguments(row) for row in range(len(left))] == [{"place": 3}]

    def test_a_selection_that_cuts_nothing_gives_the_graph_itself(self) -> None:
        graph = self.built()
        left, rows = cut(graph, ranks="0")
        assert left is graph
        assert rows == [0, 1, 2, 3]

    def test_no_events(self) -> None:
        built = JobBuilder()
        built.track()
        left, rows = cut(built.build(), window="1s..", steps="3", only="kernels,collectives")
        assert (len(left), rows, left.bounds) == (0, [], [0, 0])


STATES = ["scheduled", "started", "completed"]
KINDS_OF_WORK = [K.OPERATOR, K.KERNEL, K.RECORD, K.NODE, K.INSTANT]
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(KINDS_OF_WORK),
        st.none() | st.integers(0, 30),
        st.integers(UNKNOWN, 5),
        st.none() | st.sampled_from(STATES),
    ),
    min_size=3,
    max_size=8,
)
MARKS = st.lists(
    st.tuples(
        st.sampled_from(["ProfilerStep#1", "ProfilerStep#2", "step 1"]),
        st.integers(0, 20),
        st.integers(UNKNOWN, 12),
    ),
    min_size=1,
    max_size=3,
)
EDGES = st.lists(
    st.tuples(st.integers(0, 7), st.sampled_from([Relation.LAUNCHES, Relation.SAME]), st.integers(0, 7)),
    min_size=2,
    max_size=8,
)


@st.composite
def graphs(draw: st.DrawFn) -> EventGraph:
    built = JobBuilder()
    track = built.track()
    events = draw(EVENTS)
    for kind, start, duration, state in events:
        built.add(track, "work", start, duration, kind, keys=state and {Key.STATE: state})
    for name, start, duration in draw(MARKS):
        built.add(track, name, start, duration, K.ANNOTATION)
    for source, relation, target in draw(EDGES):
        built.edge(source % len(events), relation, target % len(events))
    for time in draw(st.lists(st.integers(0, 30), max_size=5)):
        built.sample(track, time, float(time))
    return built.build()


def naive_end(graph: EventGraph, row: int) -> float:
    start, duration = int(graph.events.start[row]), int(graph.events.duration[row])
    kind = graph.events.kind[row]
    if duration >= 0 or start == NO_TIME or kind in (K.INSTANT, K.MEMORY):
        return start + max(duration, 0)
    states = dict(zip(graph.key(Key.STATE).rows.tolist(), graph.key(Key.STATE).values.tolist(), strict=True))
    begun = row in states and graph.strings[states[row]] == "started"
    return float("inf") if kind != K.RECORD or begun else start


def naive_moments(graph: EventGraph, window: tuple[int, int] | None, steps: set[int] | None) -> list[bool]:
    """For each ns of the job, whether it is wanted."""
    wanted = [window is None or window[0] <= moment < window[1] for moment in range(60)]
    if steps is None:
        return wanted
    marks = [row for row in range(len(graph)) if graph.events.kind[row] in (K.ANNOTATION, K.OPERATOR)]
    profiler = any(graph.name(row).startswith("ProfilerStep") for row in marks)
    marks = [row for row in marks if graph.name(row).startswith("ProfilerStep" if profiler else "step")]
    spans = [
        (int(graph.events.start[row]) - START, naive_end(graph, row) - START)
        for row in marks
        if graph.events.start[row] != NO_TIME and int(graph.name(row)[-1]) in steps
    ]
    return [good and any(low <= moment < high for low, high in spans) for moment, good in enumerate(wanted)]


def naive_selection(
    graph: EventGraph,
    window: tuple[int, int] | None,
    steps: set[int] | None,
    only: set[str] | None,
    communications: set[int],
) -> list[int]:
    """The rows that are kept, event by event."""
    everything = window is None and steps is None
    moments, in_window = naive_moments(graph, window, steps), naive_moments(graph, window, None)

    def lies(row: int, among: list[bool]) -> bool:
        start = int(graph.events.start[row]) - START
        last = max(naive_end(graph, row) - START, start + 1)
        return graph.events.start[row] != NO_TIME and any(
            good for moment, good in enumerate(among) if start <= moment < last
        )

    edges = list(
        zip(
            graph.edges.source.tolist(),
            graph.edges.target.tolist(),
            graph.edges.relation.tolist(),
            strict=True,
        )
    )
    inside = {row for row in range(len(graph)) if everything or lies(row, moments)}
    if steps is not None:
        inside |= {
            target
            for source, target, relation in edges
            if relation == Relation.LAUNCHES and source in inside and lies(target, in_window)
        }
    same = [(source, target) for source, target, relation in edges if relation == Relation.SAME]
    inside |= {
        row
        for pair in same
        for row, other in (pair, pair[::-1])
        if other in inside and (graph.events.start[row] == NO_TIME or graph.events.duration[row] < 0)
    }
    return [
        row
        for row in sorted(inside)
        if only is None
        or any(graph.events.kind[row] in KINDS[word] for word in only)
        or ("collectives" in only and row in communications)
    ]


@settings(max_examples=200)
@given(
    graphs(),
    st.none() | st.tuples(st.integers(0, 20), st.integers(1, 15)),
    st.none() | st.sets(st.integers(1, 2), min_size=1),
    st.none() | st.sets(st.sampled_from(["kernels", "nodes", "counters", "collectives"]), min_size=1),
    st.sets(st.integers(0, 7)),
)
def test_a_selection_keeps_what_asking_each_event_would_keep(
    graph: EventGraph,
    window: tuple[int, int] | None,
    steps: set[int] | None,
    only: set[str] | None,
    communications: set[int],
) -> None:
    bounds = window and (window[0], window[0] + window[1])
    said = {
        "window": bounds and f"{bounds[0]}ns..{bounds[1]}ns",
        "steps": steps and ",".join(map(str, steps)),
        "only": only and ",".join(only),
    }
    present = {row for row in communications if row < len(graph)}
    left, rows = cut(graph, communications=present, **{name: text for name, text in said.items() if text})
    assert rows == naive_selection(graph, bounds, steps, only, present)
    assert same_events(graph, left, rows)
    assert edges_of(left, range(len(left))) == edges_of(graph, rows)
    moments = naive_moments(graph, bounds, steps)
    assert (left.counters.time - START).tolist() == [
        time
        for time in (graph.counters.time - START).tolist()
        if moments[time] and (only is None or "counters" in only)
    ]


def same_events(graph: EventGraph, left: EventGraph, rows: list[int]) -> bool:
    return all(
        np.array_equal(column, graph.events.columns()[name][rows])
        for name, column in left.events.columns().items()
    )


def edges_of(graph: EventGraph, rows: Iterable[int]) -> list[tuple[int, int, int]]:
    """The edges between these rows, by the rows' places in the list."""
    place = {row: number for number, row in enumerate(rows)}
    edges = graph.edges
    return [
        (place[source], place[target], relation)
        for source, target, relation in zip(
            edges.source.tolist(), edges.target.tolist(), edges.relation.tolist(), strict=True
        )
        if source in place and target in place
    ]


# Which annotations mark training steps.


def steps(*names: str, kind: EventKind = EventKind.ANNOTATION, duration: int = 10) -> Steps:
    """The steps of annotations that follow each other without a pause."""
    built = JobBuilder()
    track = built.track()
    for place, name in enumerate(names):
        built.add(track, name, 10 * place, duration, kind)
    return steps_of(built.build())


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("ProfilerStep#552", 552),
        ("ProfilerStep #3", 3),
        ("## step 3 ##", 3),
        ("step 3", 3),
        ("Step_3", 3),
        ("train_step 12", 12),
        ("iteration 3", 3),
        ("iter:7", 7),
        ("training iteration 0", 0),
    ],
)
def test_a_step_is_marked(name: str, number: int) -> None:
    assert list(steps(name).numbers) == [number]


@pytest.mark.parametrize(
    "name",
    [
        "Optimizer.step#SGD.step",
        "step",
        "## step ##",
        "step 3 of 7",
        "stepping 3",
        "ProfilerStep#x",
        "3",
        "iter",
    ],
)
def test_no_step_is_marked(name: str) -> None:
    assert not steps(name).numbers


def test_old_profiles_mark_steps_among_the_operators() -> None:
    assert list(steps("ProfilerStep#5", kind=EventKind.OPERATOR).numbers) == [5]


@pytest.mark.parametrize("kind", [EventKind.GPU_ANNOTATION, EventKind.PYTHON, EventKind.NODE])
def test_nothing_else_marks_a_step(kind: EventKind) -> None:
    assert not steps("ProfilerStep#5", kind=kind).numbers


def test_the_profilers_own_steps_count_before_those_of_the_program() -> None:
    assert list(steps("ProfilerStep#5", "step 1", "ProfilerStep#6").numbers) == [5, 6]
    assert list(steps("step 1", "iteration 2").numbers) == [1, 2]


def test_a_step_spans_each_of_its_annotations() -> None:
    spans = steps("step 1", "step 2", "step 3", "step 1").spans(Numbers.of([1, 2]))
    assert (spans.starts - START).tolist() == [0, 30]
    assert (spans.ends - START).tolist() == [20, 40]


def test_a_step_whose_end_was_not_recorded_lasts() -> None:
    assert steps("step 1", duration=UNKNOWN).end.tolist() == [LATEST]


def test_no_events_no_steps() -> None:
    assert not steps().numbers


# A job cut to a selection.


def part(rank: int) -> HeldPart:
    """A rank with an operator and a kernel every 100 ns."""
    built = JobBuilder()
    thread, stream = built.track(rank=rank), built.track(TrackKind.STREAM, rank)
    for place in range(4):
        built.add(thread, f"op {place}", 100 * place, 10)
        built.add(stream, f"kernel {place}", 100 * place + 20, 50, EventKind.KERNEL)
    return HeldPart(rank, built.build())


def job() -> LinkedJob:
    """Two ranks with a collective in every kernel, and a message from the first operator to the last kernel."""
    built = JobBuilder(parts=[part(0), part(1)])
    group = built.group(0, 1, name="world")
    for place in range(4):
        span = (100 * place + 20, 100 * place + 70)
        built.collective(group, {0: span, 1: span}, kernels={0: 2 * place + 1, 1: 2 * place + 1})
    built.sent(group, 0, 1, 0, 370, send=0, receive=7)
    return built.job()


def cut_job(**said: str) -> LinkedJob:
    return cut_graph(job(), Selection(**said), Processes(1), LocalStore((), in_memory=True))


def names(made: LinkedJob) -> list[list[str]]:
    graphs = [part.load() for part in made.parts]
    return [[graph.name(row) for row in range(len(graph))] for graph in graphs]


def test_each_rank_is_cut_and_what_is_left_out_is_counted() -> None:
    made = cut_job(window="300ns..", only="kernels")
    assert names(made) == [["kernel 3"], ["kernel 3"]]
    assert made.events == 2
    assert [(found.reason, found.count) for found in made.findings] == [("left_out", 14)]


def test_what_was_matched_stays_matched_under_the_new_rows() -> None:
    made = cut_job(window="200ns..")
    assert names(made) == [["op 2", "kernel 2", "op 3", "kernel 3"]] * 2
    assert (made.collectives.start - START).tolist() == [220, 320]
    assert made.participations.collective.tolist() == [0, 0, 1, 1]
    assert made.participations.kernel.tolist() == [1, 1, 3, 3]
    assert (made.messages.send.tolist(), made.messages.receive.tolist()) == ([UNKNOWN], [3])


def test_collectives_and_messages_of_which_no_event_is_left_go() -> None:
    made = cut_job(window="100ns..200ns")
    assert (made.collectives.start - START).tolist() == [120]
    assert made.participations.rank.tolist() == [0, 1]
    assert len(made.messages) == 0


def test_collectives_are_left_only_where_they_are_wanted() -> None:
    made = cut_job(only="collectives")
    kernels = [f"kernel {place}" for place in range(4)]
    assert names(made) == [["op 0", *kernels], kernels]
    assert len(made.collectives) == 4
    assert len(cut_job(only="kernels,operators").collectives) == 0
    assert len(cut_job(only="kernels,operators").messages) == 0


# What a user is told of a selection.


WHOLE = SelectionReport(0, 10, 10, 0, Numbers.of([3, 4, 5]), START, START + 2_500_000_000)
STEPS = Selection(steps="3")


def stock(rank: int, kept: int, *steps: int) -> SelectionReport:
    return SelectionReport(
        rank, 1000, kept, 0, Numbers.of(steps), START + 1_000_000_000, START + 2_500_000_000
    )


def test_a_stock_is_what_there_was_and_what_is_left() -> None:
    built = JobBuilder()
    track, counter = built.track(), built.track(TrackKind.COUNTER)
    built.add(track, "step 7", 10, 5, EventKind.ANNOTATION)
    built.add(track, "op", 11, 30)
    built.sample(counter, 5, 1.0)
    whole = built.build()
    nothing = JobBuilder(tracks=list(whole.tracks)).build()
    assert SelectionReport.of(3, whole, whole) == SelectionReport(
        3, 2, 2, 1, Numbers.of([7]), START + 10, START + 41
    )
    assert SelectionReport.of(3, whole, nothing) == SelectionReport(
        3, 2, 0, 0, Numbers.of([7]), START + 10, START + 41
    )
    assert SelectionReport.of(3, nothing, nothing) == SelectionReport(3)


def test_nothing_is_said_where_nothing_is_left_out() -> None:
    assert selection_findings(Selection(window="0.."), [WHOLE], START) == []


def test_how_many_events_of_the_job_are_left_out() -> None:
    assert selection_findings(STEPS, [stock(0, 300, 3), stock(1, 200, 3)], START) == [
        Finding(Severity.INFO, "left_out", "1,500 of 2,000 events are outside the selection.", 1500)
    ]


def test_steps_that_no_rank_has_and_those_there_are() -> None:
    absent, _ = selection_findings(Selection(steps="1,3-9"), [stock(0, 5, 3, 4), stock(1, 5, 4, 5)], START)
    assert absent == Finding(
        Severity.WARNING, "no_such_step", "No rank has steps 1, 6-9; there are steps 3-5."
    )


def test_ranks_of_which_nothing_is_left_and_what_they_have() -> None:
    empty, _ = selection_findings(STEPS, [stock(0, 5, 3), stock(1, 0), stock(2, 0)], START)
    assert empty == Finding(
        Severity.WARNING,
        "nothing_selected",
        "Nothing is selected on ranks 1-2 with no annotation of a step, from 1.000000s to 2.500000s.",
        2,
    )


def test_a_rank_of_which_only_samples_are_left_is_not_empty() -> None:
    assert [
        found.reason
        for found in selection_findings(STEPS, [SelectionReport(0, 10, 0, 1, Numbers.of([3]))], START)
    ] == ["left_out"]


@pytest.mark.parametrize(
    ("stocks", "supply"),
    [
        ([stock(0, 0, 4, 5), stock(1, 0, 5)], "ranks 0-1 with steps 4-5, from 1.000000s to 2.500000s"),
        ([SelectionReport(4, 10)], "rank 4 with no annotation of a step and no times"),
    ],
)
def test_a_selection_of_nothing_is_refused_with_what_there_is(
    stocks: list[SelectionReport], supply: str
) -> None:
    with pytest.raises(UsageError) as error:
        selection_findings(STEPS, stocks, START)
    zero = "Times count from the first event, at 2023-11-14 22:13:20.000000 UTC."
    assert str(error.value) == f"the selection is empty. Available: {supply}. {zero}"
