"""Next steps: what to look at, from the calls and lines that the evidence shows."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tracelink._hang.facts.model import Category, Evidence, Link, Role
from tracelink._hang.verdicts.absence import LateArrival, NeverJoined, NoDump
from tracelink._hang.verdicts.base import WHERE_DUMPS_ARE, Verdict
from tracelink._hang.verdicts.deadlocks import Deadlock
from tracelink._hang.verdicts.hangs import InFlight, NotStarted, TimedOut
from tracelink._hang.verdicts.lateness import Straggling
from tracelink._hang.verdicts.mismatches import OtherOperation, OtherPeer, OtherTensor, Skipped
from tracelink._hang.verdicts.unrecorded import NotRecorded
from tracelink._model.records import Entry, Frame
from tracelink._model.trace import ProcessGroup
from tracelink._model.witnesses import Stack

KINDS = (
    *(NeverJoined, NoDump, Deadlock, InFlight, NotStarted, Straggling, TimedOut, OtherOperation, OtherPeer),
    *(OtherTensor, Skipped, NotRecorded),
)
GROUP = ProcessGroup("0", "tp")
OWN = Frame("evaluate", "/home/me/train.py", 30), Frame("main", "/home/me/train.py", 200)
OTHER = Frame("step", "/home/me/train.py", 20), Frame("main", "/home/me/train.py", 200)


def entry(sequence: int = 2, frames: tuple[Frame, ...] = (), operation: str = "nccl:all_reduce") -> Entry:
    sizes = ((4,),)
    types = ("Float",)
    return Entry(
        "0", "tp", sequence, operation, sizes, sizes, types, types, "scheduled", False, None, 600_000, frames
    )


def verdict(
    kind: type[Verdict],
    own: Entry | None = entry(2, OWN),  # noqa: B008
    other: Entry | None = entry(3, OTHER),  # noqa: B008
    culprits: tuple[int, ...] = (2,),
) -> Verdict:
    shown = [(2, Role.CULPRIT, own), (0, Role.WAITING, other)]
    evidence = tuple(Evidence(rank, role, (one,)) for rank, role, one in shown if one)
    facts: dict[str, Any] = {"kind": OtherTensor} if kind is OtherTensor else {}
    facts |= {"last_calls": ""} if kind is NotRecorded else {}
    return kind.of_call(
        GROUP, 3, "nccl:all_reduce", culprits=culprits, waiting=(0, 1, 3), evidence=evidence, **facts
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("own", [None, entry(), entry(3, OWN)], ids=["nothing", "no stack", "stack"])
def test_advice_is_complete_sentences(kind: type[Verdict], own: Entry | None) -> None:
    said = verdict(kind, own, None).steps()
    assert said[0].isupper()
    assert said.endswith(".")
    assert "  " not in said
    assert " ." not in said


def test_advice_on_never_joined() -> None:
    assert verdict(NeverJoined).steps() == (
        "Check what rank 2 is doing now: run py-spy dump --pid PID on its host, and read the end of its log. Its last "
        "call was at train.py:30 (evaluate), the others wait at train.py:20 (step): between these lines look for a "
        "branch, a loop or an exception that only it takes."
    )


@pytest.mark.parametrize(
    ("kind", "step"),
    [
        (
            NeverJoined,
            "Find out why rank 2 is in __next__ (dataloader.py:7), and does not go on. The others wait at train.py:20 "
            "(step).",
        ),
        (
            InFlight,
            "Find out why rank 2 is in __next__ (dataloader.py:7). To see whether the job hangs, take dumps again "
            "after some seconds and compare: tracelink diagnose NEW --before OLD. If you know that it hangs, add "
            "--hung.",
        ),
    ],
)
def test_no_step_that_a_stack_answers(kind: type[Verdict], step: str) -> None:
    frames = (Frame("__next__", "dataloader.py", 7), *OWN)
    stack = Stack(2, "py-spy", "MainThread", frames, in_compiler=False, source="stack.txt")
    assert verdict(kind).with_stacks({2: stack}).steps() == step


def test_advice_on_a_loop() -> None:
    said = verdict(NeverJoined, entry(2, OTHER)).steps()
    assert said.endswith(" It did not return to train.py:20 (step), where the others wait.")


def test_advice_without_stacks() -> None:
    said = verdict(NeverJoined, entry(2), entry(3)).steps()
    assert said.endswith(
        "its log. These dumps have no stacks; pickled dumps have them unless stack traces were disabled."
    )


def test_advice_on_a_rank_that_joined_late_is_about_its_host() -> None:
    late = replace(verdict(NeverJoined, entry(3, OTHER)), late=LateArrival(3 * 10**9, 10**9, (0, 1, 3)))
    after = (
        ": usual causes are start-up, loading of data, a checkpoint or compilation. If it happens again, run py-spy "
        "dump --pid PID on its host while the others wait. If it has to take that long, use a longer timeout."
    )
    assert (late).steps() == (
        f"Find out in the log of rank 2 what it did before this call at train.py:20 (step){after}"
    )
    own = Evidence(2, Role.CULPRIT, (entry(2, OWN), entry(3, OTHER)))
    assert (replace(late, evidence=(own, *late.evidence[1:]))).steps() == (
        "Find out in the log of rank 2 what it did between train.py:30 (evaluate) and this call at train.py:20 (step)"
        f"{after}"
    )


def test_advice_with_many_culprits() -> None:
    said = verdict(NeverJoined, culprits=(1, 2, 3)).steps()
    assert said.startswith("Check what rank 1 (for example) is doing now")


@pytest.mark.parametrize("kind", [NeverJoined, NoDump])
def test_advice_on_missing_dumps(kind: type[Verdict]) -> None:
    assert replace(verdict(kind, None, culprits=(2,)), undumped=(2,)).steps() == (
        "Look first for an exception, an out-of-memory kill (dmesg), SIGKILL or an exit of rank 2, in its log and in "
        "that of the scheduler. The others wait at train.py:20 (step). If its process is alive, add its dump. "
        f"{WHERE_DUMPS_ARE}"
    )
    assert replace(verdict(kind, None, culprits=(2, 3)), undumped=(2, 3)).steps() == (
        "Look first for an exception, an out-of-memory kill (dmesg), SIGKILL or an exit of ranks 2 and 3, in their "
        "logs and in that of the scheduler. The others wait at train.py:20 (step). If their processes are alive, add "
        f"their dumps. {WHERE_DUMPS_ARE}"
    )


def test_advice_on_calls_in_flight() -> None:
    again = (
        " To see whether the job hangs, take dumps again after some seconds and compare: tracelink diagnose NEW "
        "--before OLD. If you know that it hangs, add --hung."
    )
    assert verdict(InFlight).steps() == (
        "Look first at rank 2 (py-spy dump --pid PID on its host): its last call was at train.py:30 (evaluate), the "
        f"others wait at train.py:20 (step).{again}"
    )
    assert verdict(InFlight, culprits=(2, 3)).steps() == (
        "Look first at ranks 2 and 3 (py-spy dump --pid PID on their hosts): the last call of rank 2 was at "
        f"train.py:30 (evaluate), the others wait at train.py:20 (step).{again}"
    )


def test_advice_on_damaged_dumps() -> None:
    found = verdict(NeverJoined, None, culprits=(2,))
    assert replace(found, damaged=(2,)).steps() == (
        "Copy the dump of rank 2 again. If it is damaged on the host as well, its process may have ended while "
        "writing: look for an exception, an out-of-memory kill (dmesg), SIGKILL or an exit of rank 2, in its log and "
        "in that of the scheduler."
    )
    found = verdict(NeverJoined, None, culprits=(2, 3))
    assert "an exit of rank 3, in its log" in replace(found, damaged=(2,), undumped=(3,)).steps()


def test_advice_on_skipped() -> None:
    assert verdict(Skipped).steps() == (
        "The others called it at train.py:20 (step), and rank 2 continued at train.py:30 (evaluate): look for the "
        "branch that skipped the call."
    )


def test_advice_on_operation_mismatch() -> None:
    assert verdict(OtherOperation).steps() == (
        "Rank 2 called from train.py:30 (evaluate), the others from train.py:20 (step): look for the condition "
        "that takes them to different lines."
    )


def test_advice_on_tensor_mismatch() -> None:
    causes = " Usual causes: an uneven last batch (drop_last), uneven shards, or a setting that differs."
    found = verdict(OtherTensor, other=entry(3, OWN))
    assert found.steps() == f"Check the tensor that rank 2 passes at train.py:30 (evaluate).{causes}"
    assert replace(found, tie=True).steps() == (
        "It is unknown which rank is wrong: compare the tensors at train.py:30 (evaluate) on all of them."
        f"{causes}"
    )


def test_tensors_of_different_lines_are_of_different_ways() -> None:
    found = verdict(OtherTensor)
    assert (found.found_category(), found.steps()) == (Category.CODE_PATH, verdict(OtherOperation).steps())


def test_advice_on_deadlock_of_collectives() -> None:
    ring = (Link("0", 3, "nccl:all_reduce", (0, 1, 3), (2,)), Link("5", 2, "nccl:all_reduce", (2,), (0,)))
    in_order = (
        "all the collectives of groups 0 and 5 in the same order on all ranks: rank 2 is in group 0 (tp) first, at "
        "train.py:30 (evaluate); rank 0 is in group 0 (tp) first, at train.py:20 (step)."
    )
    deadlock = replace(verdict(Deadlock), cycle=ring, descriptions={"0": "tp"})
    assert replace(deadlock, in_other_order=True).steps() == f"Call {in_order}"
    assert (deadlock).steps() == (
        "Rank 2 has skipped its part in all_reduce #3 of group 0 (tp), or would call it later than the others: look "
        f"for the branch that skips it, else call {in_order}"
    )


def test_advice_on_deadlock_of_messages() -> None:
    ring = (Link("0", 1, "nccl:recv 0<-1", (0,), (1,)), Link("0", 1, "nccl:recv 1<-0", (1,), (0,)))
    assert (replace(verdict(Deadlock), cycle=ring)).steps() == (
        "Let one side send while the other receives, in the same order, or issue both with batch_isend_irecv: see "
        "train.py:30 (evaluate) and train.py:20 (step)."
    )


def test_advice_on_a_message_without_another_end() -> None:
    ring = (Link("0", 1, "nccl:recv 0<-1", (0,), (1,)), Link("0", 1, "nccl:send 1->2", (1,), (0,)))
    message = replace(verdict(Deadlock), operation="nccl:send 2->1", sequence=2)
    assert replace(message, cycle=ring, gone_on=(1,)).steps() == (
        "Rank 1 went on without the other end of send 2->1 #2 of group 0 (tp): look at the peer that rank 2 names, "
        "at train.py:30 (evaluate)."
    )


def test_advice_on_peer_mismatch() -> None:
    message = replace(verdict(OtherPeer), operation="nccl:send 0->1")
    assert (message).steps().startswith("Compare source, destination and order of the calls at train.py:30")
    assert (replace(message, operation="nccl:broadcast")).steps() == (
        "Compare the root (src, dst) of the calls at train.py:30 (evaluate) and train.py:20 (step): all ranks must "
        "name the same one, by its rank in the job and not in the group."
    )


def test_advice_on_timed_out() -> None:
    said = verdict(TimedOut, None, culprits=()).steps()
    assert said.endswith("or the work took longer than its timeout of 10 min.")


@pytest.mark.parametrize(
    ("culprits", "waiting", "words"),
    [
        ((2,), (0, 1, 3), "Rank 2 is on node1."),
        ((), (0, 1, 2), "Ranks 0 and 1 are on node0, rank 2 is on node1."),
        ((99,), (0,), ""),
        ((), tuple(range(14)), "Ranks 0 and 1 are on node0, ranks 2 and 3 are on node1, ranks 4 and 5 are on node2, "
         "ranks 6 and 7 are on node3, others are on 3 more hosts."),
    ],
)  # fmt: skip
def test_advice_names_hosts(culprits: tuple[int, ...], waiting: tuple[int, ...], words: str) -> None:
    bare = replace(verdict(NeverJoined, culprits=culprits), waiting=waiting)
    hosts = {rank: f"node{rank // 2}" for rank in range(14)}
    assert bare.with_hosts(hosts).steps() == f"{bare.steps()} {words}".rstrip()
