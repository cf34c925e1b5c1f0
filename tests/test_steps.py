"""Which annotations mark training steps."""

from __future__ import annotations

import pytest

from builders.graph import START, GraphBuilder
from tracelink.model.columns import UNFINISHED
from tracelink.model.events import EventKind
from tracelink.pipeline.selection import Steps, steps_of
from tracelink.ranges import LATEST, Numbers


def steps(*names: str, kind: EventKind = EventKind.ANNOTATION, duration: int = 10) -> Steps:
    """The steps of annotations that follow each other without a pause."""
    built = GraphBuilder()
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
    assert steps("step 1", duration=UNFINISHED).end.tolist() == [LATEST]


def test_no_events_no_steps() -> None:
    assert not steps().numbers
