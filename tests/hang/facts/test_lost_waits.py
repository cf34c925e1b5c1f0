"""Collectives in which ranks wait although their ring buffers have lost the entries: `pg_status` still counts them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from builders.dumps import diagnosis_of, journal
from builders.programs import dumps_of
from tracelink._hang.facts.model import Diagnosis
from tracelink._hang.facts.stalls import Clues

Status = Mapping[str, tuple[int, int]]
"""Enqueued and completed collectives of each group."""

FOUR = [0, 1, 2, 3]
PAIRS: dict[str, Any] = {"a": FOUR, "b": [0, 1], "c": [2, 3]}
NUMBERS = {"a": "0", "b": "1", "c": "2"}
UNUSED = (-1, -1)


def diagnosed(
    programs: Mapping[int, str], status: Mapping[int, Status], lost: int = 9, **groups: Any
) -> Diagnosis:
    """The diagnosis of ranks whose ring buffers have lost this many entries, with the status of their groups."""
    dumps = dumps_of(programs, forgotten=dict.fromkeys(programs, lost), **groups or PAIRS)
    for rank, numbers in status.items():
        dumps[rank]["pg_status"] = {
            NUMBERS[group]: {
                "last_enqueued_collective": enqueued,
                "last_started_collective": -1,
                "last_completed_collective": completed,
            }
            for group, (enqueued, completed) in numbers.items()
            if enqueued != -1
        }
    hung = any("!" in program for program in programs.values())
    return diagnosis_of(journal(dumps), clues=Clues(hung=hung))


def told(diagnosis: Diagnosis) -> list[tuple[Any, ...]]:
    return [
        (problem.kind, problem.group, problem.sequence, problem.culprits, problem.waiting, problem.proven)
        for problem in diagnosis.problems
    ]


HANG = {0: "a8~ a9~", 1: "a8~ a9~ a10!~", 2: "a8~ a9~ a10!~", 3: "a8~ a9~ a10!~"}
HANG = {rank: program.replace("!~", "!") for rank, program in HANG.items()}
ALL_ENDED = dict.fromkeys(FOUR, "a8~ a9~ a10~")


def statuses(waiting: tuple[int, int], others: tuple[int, int] = (1, 1)) -> dict[int, Status]:
    """Rank 0 waits in group b, which rank 1 never used; ranks 2 and 3 both used group c."""
    ended = (10, 10)
    return {
        0: {"a": (9, 9), "b": waiting},
        1: {"a": ended, "b": UNUSED},
        2: {"a": ended, "c": others},
        3: {"a": ended, "c": others},
    }


@pytest.mark.parametrize("waiting", [(1, -1), (1, 1)], ids=["hangs", "gave up"])
def test_peer_never_joined_a_lost_collective(waiting: tuple[int, int]) -> None:
    """Rank 1 skipped it and waits elsewhere for rank 0."""
    diagnosis = diagnosed(HANG, statuses(waiting))
    assert told(diagnosis) == [("never_joined", "b", 1, (1,), (0, 2, 3), True)]
    assert diagnosis.problems[0].message == (
        "Rank 1 never joined collective #1 of group b (the ring buffer of rank 0 has lost it, pg_status counts it); "
        "3 ranks wait."
    )
    assert list(diagnosis.problems[0].rows) == [1]
    assert [
        (item.sequence, item.operation, item.stage, item.ranks)
        for item in diagnosis.standings
        if item.group == "b"
    ] == [(None, "", "never_joined", (1,)), (1, "", "waiting", (0,))]


def test_several_enqueued() -> None:
    diagnosis = diagnosed(HANG, statuses((5, -1)))
    assert told(diagnosis) == [("never_joined", "b", 1, (1,), (0, 2, 3), True)]


def test_without_status_another_rank_looks_guilty_but_nothing_is_lost() -> None:
    assert told(diagnosed(HANG, {})) == [("never_joined", "a", 10, (0,), (1, 2, 3), True)]


def test_group_that_all_members_used() -> None:
    status = statuses((1, 1)) | {1: {"a": (10, 10), "b": (1, 1)}}
    assert told(diagnosed(ALL_ENDED, status)) == []


def test_group_of_messages_that_one_side_never_used() -> None:
    """gloo counts sends and receives without recording them: a send ends before the other rank receives."""
    assert told(diagnosed(ALL_ENDED, statuses((1, 1), others=UNUSED))) == []


def test_buffer_that_has_not_wrapped() -> None:
    """Then the group has no collectives at all: what is counted are messages, which are not recorded."""
    assert told(diagnosed(ALL_ENDED, statuses((1, -1)), lost=0)) == []


def test_status_of_a_group_with_recorded_messages() -> None:
    """The numbers may be those of messages, between other members."""
    groups = {"a": FOUR, "b": FOUR}
    programs = {0: "a9 a10!", 1: "a9 a10!", 2: "a9 b>1 a10!", 3: "a9"}
    status = {0: {"a": (10, 9), "b": (3, 2)}, 1: {"a": (10, 9)}, 3: {"a": (9, 9)}}
    assert told(diagnosed(programs, status, **groups)) == [("never_joined", "a", 10, (3,), (0, 1, 2), True)]


def test_large_group_that_only_some_members_used() -> None:
    """What they wait for may be a message between them."""
    groups = {"a": FOUR, "b": FOUR}
    ended = (10, 10)
    status = {0: {"a": ended, "b": (1, -1)}, 1: {"a": ended}, 2: {"a": ended}, 3: {"a": ended}}
    assert told(diagnosed(ALL_ENDED, status, **groups)) == []


def test_large_group_that_one_member_never_used() -> None:
    groups = {"a": FOUR, "b": FOUR}
    ended, waits = (10, 10), (1, -1)
    status = {
        0: {"a": (9, 9), "b": waits},
        1: {"a": ended},
        2: {"a": ended, "b": waits},
        3: {"a": ended, "b": waits},
    }
    diagnosis = diagnosed(HANG | {2: HANG[0], 3: HANG[0]}, status, **groups)
    assert told(diagnosis) == [("never_joined", "b", 1, (1,), (0, 2, 3), True)]
    assert diagnosis.problems[0].message == (
        "Rank 1 never joined collective #1 of group b (the ring buffers of ranks 0, 2-3 have lost it, "
        "pg_status counts it); 3 ranks wait."
    )
