"""Dumps that contain only active calls, as NCCL's watchdog writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.dumps import diagnosis_of, journal, recording
from builders.programs import dumps_of
from builders.recorder import collective, dump
from tracelink._hang.facts.model import Kind, Problem
from tracelink._hang.facts.stalls import Clues

Dumps = Mapping[int, dict[str, Any]]


def active_calls(programs: Mapping[int, str], *, status: bool = True, **groups: Sequence[int]) -> Dumps:
    """The dumps of ranks with these programs without completed calls; groups are named 0, 1, ... as in c10d."""
    names = {name: str(number) for number, name in enumerate(groups)}
    return {
        rank: _active(content, names, status=status) for rank, content in dumps_of(programs, **groups).items()
    }


def _active(content: dict[str, Any], names: Mapping[str, str], *, status: bool) -> dict[str, Any]:
    """Numbers of groups differ between ranks: each counts only its own groups."""
    own = {name: str(3 * number) for number, name in enumerate(content["pg_config"])}
    entries = [
        entry
        | {
            "record_id": 70_000 + number,
            "pg_id": int(own[entry["process_group"][0]]),
            "process_group": (names[entry["process_group"][0]], entry["process_group"][1]),
        }
        for number, entry in enumerate(content["entries"])
    ]
    return content | {
        "entries": [entry for entry in entries if not entry["retired"]],
        "pg_config": {
            names[name]: value | {"name": names[name]} for name, value in content["pg_config"].items()
        },
        "pg_status": {number: _status(entries, int(number)) for number in own.values()} if status else {},
    }


def _status(entries: Sequence[dict[str, Any]], group: int) -> dict[str, int]:
    enqueued = [entry["collective_seq_id"] for entry in entries if entry["pg_id"] == group]
    completed = [
        entry["collective_seq_id"] for entry in entries if entry["pg_id"] == group and entry["retired"]
    ]
    return {
        "last_enqueued_collective": max(enqueued, default=-1),
        "last_started_collective": -1,
        "last_completed_collective": max(completed, default=-1),
    }


def first_problem(dumps: Dumps) -> Problem:
    return diagnosis_of(journal(dumps)).problems[0]


def active(*records: int, status: dict[int, tuple[int, int]], **fields: Any) -> dict[str, Any]:
    """A dump with entries of these numbers in the process, and what the status of group 0 counts."""
    counted = {
        str(group): {"last_enqueued_collective": last, "last_completed_collective": done}
        for group, (last, done) in status.items()
    }
    entries = [collective("nccl:all_reduce", record + 1, record_id=record, **fields) for record in records]
    return dump(*entries, pg_status=counted)


@pytest.mark.parametrize(
    ("content", "only_active", "overwritten"),
    [
        pytest.param(active(7, 9, 12, status={}), True, 0, id="gaps"),
        pytest.param(
            active(7, 8, status={0: (9, 7)}), True, 0, id="the calls that are pending by the status"
        ),
        pytest.param(active(status={0: (9, 9)}), True, 0, id="no call, and none is pending"),
        pytest.param(active(status={0: (9, 8)}), True, 0, id="no call, and a late status"),
        pytest.param(active(7, 8, status={0: (9, 5)}), True, 0, id="two calls, and a late status"),
        pytest.param(active(7, 8, status={0: (9, 8)}), False, 7, id="fewer calls are pending"),
        pytest.param(active(0, 1, status={0: (2, 0)}), False, 0, id="all calls"),
        pytest.param(active(7, 9, status={}, completed=5), False, 7, id="completed calls with gaps"),
    ],
)
def test_dumps_of_active_calls(content: dict[str, Any], only_active: bool, overwritten: int) -> None:
    found = recording(0, content)
    assert (found.only_active, found.overwritten) == (only_active, overwritten)


def test_rank_without_active_calls_is_awaited() -> None:
    programs = {0: "a1 a2! b2!", 1: "a1 a2! b2!", 2: "a1", 3: "a1 a2!"}
    problem = first_problem(active_calls(programs, a=[0, 1, 2, 3], b=[0, 1]))
    assert (problem.culprits, problem.waiting) == ((2,), (0, 1, 3))


def test_ranks_without_active_calls_in_several_groups_are_all_named() -> None:
    programs = {0: "a1 a2!", 1: "a1", 2: "b1 b2!", 3: "b1", 4: "c1 c2!", 5: "c1 c2!"}
    problem = first_problem(active_calls(programs, a=[0, 1], b=[2, 3], c=[4, 5]))
    assert (problem.culprits, problem.waiting) == ((1, 3), (0, 2, 4, 5))


def test_ranks_that_have_not_completed_what_others_have_are_behind() -> None:
    """Rank 0 is stuck on its device since a2; rank 1 has completed a2 and a3, and waits in b2 with rank 2."""
    programs = {0: "a1 a2! a3! b1", 1: "a1 a2 a3 b1 b2!", 2: "b1 b2!"}
    dumps = active_calls(programs, a=[0, 1], b=[0, 1, 2])
    problem = first_problem(dumps)
    assert (problem.culprits, problem.waiting) == ((0,), (1, 2))
    hung = diagnosis_of(journal(dumps), clues=Clues(hung=True)).problems[0]
    assert (hung.kind, hung.sequence, hung.culprits) == (Kind.FAILED, 2, (0,))
    assert hung.evidence[0].entries[-1].sequence == 2


def test_unknown_progress_proves_nothing() -> None:
    """Without a status it is unknown whether rank 2 has completed a2 or has not reached it."""
    programs = {0: "a1 a2! b1 b2!", 1: "a1 a2! b1 b2!", 2: "a1"}
    problem = first_problem(active_calls(programs, status=False, a=[0, 1, 2], b=[0, 1]))
    assert (problem.culprits, problem.proven) == ((2,), False)


@given(st.data())
def test_active_calls_name_who_did_not_join(data: st.DataObject) -> None:
    """Ranks finished `done` calls of one group, and all but some joined further ones."""
    ranks = data.draw(st.integers(2, 6), "ranks")
    done, ahead = data.draw(st.integers(1, 4), "done"), data.draw(st.integers(1, 3), "ahead")
    late = data.draw(st.sets(st.integers(0, ranks - 1), min_size=1, max_size=ranks - 1), "late")
    finished = " ".join(f"a{number}" for number in range(1, done + 1))
    waiting = " ".join(f"a{number}!" for number in range(done + 1, done + ahead + 1))
    programs = {rank: finished if rank in late else f"{finished} {waiting}" for rank in range(ranks)}
    problem = first_problem(active_calls(programs, a=range(ranks)))
    named = set(problem.culprits) if not problem.tie else late
    assert named == late
