"""What to look at next: for each kind of problem, and with what the evidence knows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tracelink.diagnosis.explain import ADVICE, advice_for, with_advice
from tracelink.diagnosis.model import Checked, Diagnosis, Evidence, Kind, Link, Problem, Role
from tracelink.model.records import Entry, Frame

OWN = Frame("evaluate", "/home/me/train.py", 30), Frame("main", "/home/me/train.py", 200)
OTHER = Frame("step", "/home/me/train.py", 20), Frame("main", "/home/me/train.py", 200)
RANKS = range(4)


def entry(sequence: int = 2, frames: tuple[Frame, ...] = (), operation: str = "nccl:all_reduce") -> Entry:
    sizes = ((4,),)
    types = ("Float",)
    return Entry(
        "0", "tp", sequence, operation, sizes, sizes, types, types, "scheduled", False, None, 600_000, frames
    )


def problem(
    kind: Kind,
    own: Entry | None = entry(2, OWN),  # noqa: B008
    other: Entry | None = entry(3, OTHER),  # noqa: B008
    culprits: tuple[int, ...] = (2,),
) -> Problem:
    shown = [(2, Role.CULPRIT, own), (0, Role.WAITING, other)]
    evidence = tuple(Evidence(rank, role, (one,)) for rank, role, one in shown if one)
    return Problem(
        kind, "0", "tp", 3, "nccl:all_reduce", culprits, (0, 1, 3), "It is wrong.", evidence=evidence
    )


def test_every_kind_has_advice() -> None:
    assert set(ADVICE) == set(Kind)


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("own", [None, entry(), entry(3, OWN)], ids=["nothing", "no stack", "stack"])
def test_advice_is_whole_sentences_whatever_is_known(kind: Kind, own: Entry | None) -> None:
    said = advice_for(problem(kind, own, None), RANKS)
    assert said[0].isupper()
    assert said.endswith(".")
    assert "  " not in said
    assert " ." not in said


def test_who_never_joined_is_asked_what_it_does_and_where_it_went_another_way() -> None:
    assert advice_for(problem(Kind.NEVER_JOINED), RANKS) == (
        "See what rank 2 does now: py-spy dump --pid PID on its host, and the end of its log. Between train.py:30 "
        "(evaluate), its last call, and train.py:20 (step), where the others wait, look for a branch, a loop or an "
        "exception that only it takes."
    )


def test_in_a_loop_it_did_not_come_back() -> None:
    said = advice_for(problem(Kind.NEVER_JOINED, entry(2, OTHER)), RANKS)
    assert said.endswith(" It did not come back to train.py:20 (step), where the others wait.")


def test_without_stacks_it_is_said_how_to_get_them() -> None:
    said = advice_for(problem(Kind.NEVER_JOINED, entry(2), entry(3)), RANKS)
    assert said.endswith(
        "its log. These dumps hold no stacks; pickled ones do, unless they were taken without."
    )


def test_what_is_queued_waits_for_its_device() -> None:
    said = advice_for(problem(Kind.LAGGING, entry(4, OWN)), RANKS)
    assert said.startswith("Rank 2 queued it, but its device has not got so far")


def test_of_many_culprits_one_is_named() -> None:
    said = advice_for(problem(Kind.NEVER_JOINED, culprits=(1, 2, 3)), RANKS)
    assert said.startswith("See what rank 1, for one, does now")


@pytest.mark.parametrize(
    ("culprits", "said"),
    [
        ((2,), "no whole dump of rank 2: look whether its process still runs, and at the end of its log."),
        (
            (2, 3),
            "no whole dump of ranks 2 and 3: look whether their processes still run, and at the end of their",
        ),
    ],
)
def test_who_has_no_dump_is_looked_for(culprits: tuple[int, ...], said: str) -> None:
    assert said in advice_for(problem(Kind.NEVER_JOINED, None, culprits=culprits), [0, 1])


def test_a_skip_names_both_lines() -> None:
    assert advice_for(problem(Kind.SKIPPED), RANKS) == (
        "The others called it at train.py:20 (step), where rank 2 went on to train.py:30 (evaluate): look for the "
        "branch that led past it."
    )


def test_another_operation_names_both_lines() -> None:
    assert advice_for(problem(Kind.OPERATION_MISMATCH), RANKS) == (
        "Rank 2 called from train.py:30 (evaluate), others from train.py:20 (step): look for the condition that "
        "sends them different ways."
    )


@pytest.mark.parametrize("kind", [Kind.DTYPE_MISMATCH, Kind.SIZE_MISMATCH])
def test_another_tensor_is_looked_for_where_it_is_given(kind: Kind) -> None:
    assert advice_for(problem(kind), RANKS).startswith(
        "Look at the tensor that rank 2 gives at train.py:30 (eval"
    )
    tie = replace(problem(kind), tie=True)
    assert advice_for(tie, RANKS).startswith(
        "Nothing tells who is wrong: compare the tensors at train.py:30 (eval"
    )


def test_a_ring_of_collectives_names_who_is_first_where() -> None:
    ring = (Link("0", 3, "nccl:all_reduce", (0, 1, 3), (2,)), Link("5", 2, "nccl:all_reduce", (2,), (0,)))
    assert advice_for(replace(problem(Kind.DEADLOCK), cycle=ring), RANKS) == (
        "Call the collectives of groups 0 and 5 in the same order on all ranks: rank 2 is in group 0 (tp) first, at "
        "train.py:30 (evaluate); rank 0 is in group 0 (tp) first, at train.py:20 (step)."
    )


def test_a_ring_of_messages_asks_for_an_order_of_sends_and_receives() -> None:
    ring = (Link("0", 1, "nccl:recv 0<-1", (0,), (1,)), Link("0", 1, "nccl:recv 1<-0", (1,), (0,)))
    assert advice_for(replace(problem(Kind.DEADLOCK), cycle=ring), RANKS) == (
        "Let one side send while the other receives, in the same order, or issue both with batch_isend_irecv: look "
        "at train.py:30 (evaluate) and train.py:20 (step)."
    )


def test_messages_are_compared_by_their_ends_and_collectives_by_their_root() -> None:
    message = replace(problem(Kind.PEER_MISMATCH), operation="nccl:send 0->1")
    assert advice_for(message, RANKS).startswith(
        "Compare source, destination and order of the calls at train.py:30"
    )
    assert advice_for(replace(message, operation="nccl:broadcast"), RANKS) == (
        "Compare the root (src, dst) of the calls at train.py:30 (evaluate) and train.py:20 (step): all ranks have to "
        "name the same one, by its number in the job and not in the group."
    )


def test_what_timed_out_may_just_have_taken_longer() -> None:
    said = advice_for(problem(Kind.TIMED_OUT, None, culprits=()), RANKS)
    assert said.endswith("or the work took longer than its timeout of 10 min.")


def test_a_diagnosis_gets_advice_where_it_has_none() -> None:
    known = replace(problem(Kind.STRAGGLER), advice="Buy another one.")
    made = with_advice(Diagnosis([known, problem(Kind.FAILED)], [], [], list(RANKS), [], {}, Checked()))
    first, second = made.problems
    assert first.advice == "Buy another one."
    assert second.advice == advice_for(second, RANKS)
