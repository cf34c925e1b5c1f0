"""Explanations: evidence and advice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import tracelink
from builders.dumps import dumps, hang, stack, steps
from builders.recorder import as_json, collective, dump, frame
from tracelink.diagnosis.explain import (
    ADVICE,
    MOST_CALLS,
    MOST_CULPRITS,
    MOST_PROBLEMS,
    WHERE_DUMPS_ARE,
    advice_for,
    with_advice,
)
from tracelink.diagnosis.model import Diagnosis, Evidence, Kind, Link, Problem, RanksOfDumps, Role
from tracelink.model.records import Entry, Frame

# Advice for each kind of problem.


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
def test_advice_is_complete_sentences(kind: Kind, own: Entry | None) -> None:
    said = advice_for(problem(kind, own, None), RANKS)
    assert said[0].isupper()
    assert said.endswith(".")
    assert "  " not in said
    assert " ." not in said


def test_advice_on_never_joined() -> None:
    assert advice_for(problem(Kind.NEVER_JOINED), RANKS) == (
        "Check what rank 2 is doing now: run py-spy dump --pid PID on its host, and read the end of its log. Its last "
        "call was at train.py:30 (evaluate), the others wait at train.py:20 (step): between these lines look for a "
        "branch, a loop or an exception that only it takes."
    )


def test_advice_on_a_loop() -> None:
    said = advice_for(problem(Kind.NEVER_JOINED, entry(2, OTHER)), RANKS)
    assert said.endswith(" It did not return to train.py:20 (step), where the others wait.")


def test_advice_without_stacks() -> None:
    said = advice_for(problem(Kind.NEVER_JOINED, entry(2), entry(3)), RANKS)
    assert said.endswith(
        "its log. These dumps have no stacks; pickled dumps have them unless stack traces were disabled."
    )


def test_advice_on_a_rank_that_joined_late_is_about_its_host() -> None:
    late = problem(Kind.NEVER_JOINED, entry(3, OTHER))
    after = (
        ": usual causes are start-up, loading of data, a checkpoint or compilation. If it happens again, run py-spy "
        "dump --pid PID on its host while the others wait. If it has to take that long, use a longer timeout."
    )
    assert advice_for(late, RANKS) == (
        f"Find out in the log of rank 2 what it did before this call at train.py:20 (step){after}"
    )
    own = Evidence(2, Role.CULPRIT, (entry(2, OWN), entry(3, OTHER)))
    assert advice_for(replace(late, evidence=(own, *late.evidence[1:])), RANKS) == (
        "Find out in the log of rank 2 what it did between train.py:30 (evaluate) and this call at train.py:20 (step)"
        f"{after}"
    )


@pytest.mark.parametrize("kind", [Kind.NEVER_JOINED, Kind.LAGGING])
def test_a_later_call_in_another_life_of_a_group_is_not_late(kind: Kind) -> None:
    found = replace(problem(kind, entry(3, OWN)), description="life 2 of tp")
    assert advice_for(found, RANKS).startswith("Check what rank 2 is doing now")


def test_advice_with_many_culprits() -> None:
    said = advice_for(problem(Kind.NEVER_JOINED, culprits=(1, 2, 3)), RANKS)
    assert said.startswith("Check what rank 1 (for example) is doing now")


@pytest.mark.parametrize("kind", [Kind.NEVER_JOINED, Kind.ABSENT])
def test_advice_on_missing_dumps(kind: Kind) -> None:
    assert advice_for(problem(kind, None, culprits=(2,)), [0, 1]) == (
        "Look first for an exception, an out-of-memory kill (dmesg), SIGKILL or an exit of rank 2, in its log and in "
        f"that of the scheduler. If its process is alive, add its dump. {WHERE_DUMPS_ARE}"
    )
    assert advice_for(problem(kind, None, culprits=(2, 3)), [0, 1]) == (
        "Look first for an exception, an out-of-memory kill (dmesg), SIGKILL or an exit of ranks 2 and 3, in their "
        f"logs and in that of the scheduler. If their processes are alive, add their dumps. {WHERE_DUMPS_ARE}"
    )


def test_advice_on_damaged_dumps() -> None:
    found = problem(Kind.NEVER_JOINED, None, culprits=(2,))
    assert advice_for(found, [0, 1], damaged=[2]) == (
        "Copy the dump of rank 2 again. If it is damaged on the host as well, its process may have ended while "
        "writing: look for an exception, an out-of-memory kill (dmesg), SIGKILL or an exit of rank 2, in its log and "
        "in that of the scheduler."
    )
    found = problem(Kind.NEVER_JOINED, None, culprits=(2, 3))
    assert "an exit of rank 3, in its log" in advice_for(found, [0, 1], damaged=[2])


def test_advice_on_skipped() -> None:
    assert advice_for(problem(Kind.SKIPPED), RANKS) == (
        "The others called it at train.py:20 (step), and rank 2 continued at train.py:30 (evaluate): look for the "
        "branch that skipped the call."
    )


def test_advice_on_operation_mismatch() -> None:
    assert advice_for(problem(Kind.OPERATION_MISMATCH), RANKS) == (
        "Rank 2 called from train.py:30 (evaluate), the others from train.py:20 (step): look for the condition "
        "that takes them to different lines."
    )


@pytest.mark.parametrize("kind", [Kind.DTYPE_MISMATCH, Kind.SIZE_MISMATCH])
def test_advice_on_tensor_mismatch(kind: Kind) -> None:
    assert advice_for(problem(kind), RANKS).startswith(
        "Check the tensor that rank 2 passes at train.py:30 (eval"
    )
    tie = replace(problem(kind), tie=True)
    assert advice_for(tie, RANKS).startswith(
        "It is unknown which rank is wrong: compare the tensors at train.py:30 (eval"
    )


def test_advice_on_deadlock_of_collectives() -> None:
    ring = (Link("0", 3, "nccl:all_reduce", (0, 1, 3), (2,)), Link("5", 2, "nccl:all_reduce", (2,), (0,)))
    in_order = (
        "all the collectives of groups 0 and 5 in the same order on all ranks: rank 2 is in group 0 (tp) first, at "
        "train.py:30 (evaluate); rank 0 is in group 0 (tp) first, at train.py:20 (step)."
    )
    deadlock = replace(problem(Kind.DEADLOCK), cycle=ring)
    assert advice_for(replace(deadlock, in_other_order=True), RANKS) == f"C{in_order}"
    assert advice_for(deadlock, RANKS) == (
        "Rank 2 has skipped its part in all_reduce #3 of group 0 (tp), or would call it later than the others: look "
        f"for the branch that skips it, else c{in_order}"
    )


def test_advice_on_deadlock_of_messages() -> None:
    ring = (Link("0", 1, "nccl:recv 0<-1", (0,), (1,)), Link("0", 1, "nccl:recv 1<-0", (1,), (0,)))
    assert advice_for(replace(problem(Kind.DEADLOCK), cycle=ring), RANKS) == (
        "Let one side send while the other receives, in the same order, or issue both with batch_isend_irecv: see "
        "train.py:30 (evaluate) and train.py:20 (step)."
    )


def test_advice_on_peer_mismatch() -> None:
    message = replace(problem(Kind.PEER_MISMATCH), operation="nccl:send 0->1")
    assert advice_for(message, RANKS).startswith(
        "Compare source, destination and order of the calls at train.py:30"
    )
    assert advice_for(replace(message, operation="nccl:broadcast"), RANKS) == (
        "Compare the root (src, dst) of the calls at train.py:30 (evaluate) and train.py:20 (step): all ranks must "
        "name the same one, by its rank in the job and not in the group."
    )


def test_advice_on_timed_out() -> None:
    said = advice_for(problem(Kind.TIMED_OUT, None, culprits=()), RANKS)
    assert said.endswith("or the work took longer than its timeout of 10 min.")


def test_existing_advice_is_kept() -> None:
    known = replace(problem(Kind.STRAGGLER), advice="Buy another one.")
    made = with_advice(Diagnosis(problems=[known, problem(Kind.FAILED)], ranks=RanksOfDumps.of(list(RANKS))))
    first, second = made.problems
    assert first.advice == "Buy another one."
    assert second.advice == advice_for(second, RANKS)


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
    bare = replace(problem(Kind.NEVER_JOINED, culprits=culprits), waiting=waiting)
    hosts = {rank: f"node{rank // 2}" for rank in range(14)}
    (made,) = with_advice(Diagnosis(problems=[bare], ranks=RanksOfDumps.of(list(RANKS))), hosts).problems
    assert made.advice == f"{advice_for(bare, RANKS)} {words}".rstrip()


# Evidence: the last calls of culprits, and the call of a waiting rank.


STEP, MAIN = Frame("step", "/home/me/train.py", 20), Frame("main", "/home/me/train.py", 200)
RUN = Frame("run", "/usr/lib/python3.11/runpy.py", 88)


def diagnosis(folder: Path, entries: dict[int, list[dict[str, Any]]], **top_level: Any) -> Diagnosis:
    return tracelink.diagnose(dumps(folder, entries, **top_level), jobs=1)


def evidence(folder: Path, entries: dict[int, list[dict[str, Any]]]) -> tuple[Evidence, ...]:
    return diagnosis(folder, entries).problems[0].evidence


def told(one: Evidence) -> list[tuple[str, int | None]]:
    return [(entry.operation, entry.sequence) for entry in one.entries]


def test_evidence_of_a_hang(tmp_path: Path) -> None:
    assert [(one.rank, one.role, told(one)) for one in evidence(tmp_path, hang(4, culprit=2))] == [
        (2, Role.CULPRIT, [("nccl:all_reduce", 1), ("nccl:all_reduce", 2)]),
        (0, Role.WAITING, [("nccl:all_reduce", 3)]),
    ]


def test_evidence_is_as_recorded(tmp_path: Path) -> None:
    (culprit, _) = evidence(tmp_path, hang(4, culprit=2))
    recorded = steps(2, 3)[1]
    assert culprit.entries[-1] == Entry(
        group="0",
        description="default_pg",
        sequence=2,
        operation="nccl:all_reduce",
        input_sizes=((64, 16),),
        output_sizes=((64, 16),),
        input_types=("Float",),
        output_types=("Float",),
        state="completed",
        retired=True,
        created_ns=recorded["time_created_ns"],
        timeout_ms=600_000,
        frames=(STEP, MAIN, RUN),
    )


def test_evidence_of_several_groups(tmp_path: Path) -> None:
    entries = hang(4, culprit=2)
    entries[2][1:1] = steps(2, MOST_CALLS + 3, group=("1", "tp"))[:-1]
    (culprit, _) = evidence(tmp_path, entries)
    groups = [(entry.group, entry.sequence) for entry in culprit.entries]
    assert groups == [*(("1", number) for number in range(4, MOST_CALLS + 3)), ("0", 2)]


def test_coalesced_call_counts_once(tmp_path: Path) -> None:
    entries = {rank: [*steps(rank, 2)[:1], *_coalesced(2), *steps(rank, 3)[2:]] for rank in range(4)}
    del entries[1][5:]
    (culprit, _) = evidence(tmp_path, entries)
    assert told(culprit) == [
        ("nccl:all_reduce", 1),
        *[("nccl:_all_gather_base", 2)] * 3,
        ("nccl:coalesced", 2),
    ]


def _coalesced(sequence: int) -> list[dict[str, Any]]:
    names = [*["nccl:_all_gather_base"] * 3, "nccl:coalesced"]
    return [collective(name, sequence, completed=1, state="completed", retired=True) for name in names]


def test_batch_has_one_sequence_number(tmp_path: Path) -> None:
    entries = hang(4, culprit=2)
    entries[2] += [_message("send 2->3", 5), _message("recv 2<-1", 5), _end_of_batch(collective_number=2)]
    entries[3].insert(2, _message("recv 3<-2", 5))
    entries[1].insert(2, _message("send 1->2", 5))
    (culprit, _) = evidence(tmp_path, entries)
    assert told(culprit)[-3:] == [("nccl:send 2->3", 5), ("nccl:recv 2<-1", 5), ("nccl:coalesced", 5)]


def _message(name: str, number: int) -> dict[str, Any]:
    return collective(f"nccl:{name}", 2, completed=1, p2p_seq_id=number, is_p2p=True)


def _end_of_batch(collective_number: int) -> dict[str, Any]:
    nothing: dict[str, Any] = {"input_sizes": [], "output_sizes": [], "input_dtypes": [], "output_dtypes": []}
    return collective("nccl:coalesced", collective_number, completed=1, p2p_seq_id=5, **nothing)


def test_evidence_limit_of_culprits(tmp_path: Path) -> None:
    entries = hang(10, culprit=9)
    for rank in range(5, 9):
        del entries[rank][2:]
    shown = [one.rank for one in evidence(tmp_path, entries) if one.role is Role.CULPRIT]
    assert shown == [5, 6, 7][:MOST_CULPRITS]


def test_evidence_limit_of_problems(tmp_path: Path) -> None:
    entries: dict[int, list[dict[str, Any]]] = {rank: [] for rank in range(3 * (MOST_PROBLEMS + 1))}
    for rank in entries:
        size = [[8]] if rank % 3 == 2 else [[4]]
        name = (str(rank // 3), "")
        entries[rank] = [collective(group=name, completed=1, input_sizes=size, output_sizes=size)]
    shown = [bool(one.evidence) for one in diagnosis(tmp_path, entries).problems]
    assert shown == [True] * MOST_PROBLEMS + [False]


def test_culprit_without_entries(tmp_path: Path) -> None:
    shown = evidence(tmp_path, hang(4, culprit=2) | {2: []})
    assert [(one.rank, one.role) for one in shown] == [(0, Role.WAITING)]


def test_json_dump_has_no_stacks(tmp_path: Path) -> None:
    folder = dumps(tmp_path, {})
    for rank, rows in hang(4, culprit=2).items():
        without = [{name: value for name, value in row.items() if name != "frames"} for row in rows]
        (folder / f"rank{rank}.json").write_bytes(as_json(dump(*without)))
    shown = tracelink.diagnose(folder).problems[0].evidence
    assert [len(one.entries) for one in shown] == [2, 1]
    assert all(entry.frames == () for one in shown for entry in one.entries)


def test_deleted_dump_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tracelink.converters.flight_recorder.decoding import RecorderPayloads

    def gone(self: RecorderPayloads, places: object) -> object:
        raise FileNotFoundError(2, "No such file", self.source.path)

    monkeypatch.setattr(RecorderPayloads, "entries", gone)
    found = diagnosis(tmp_path, hang(4, culprit=2))
    assert found.problems[0].evidence == ()
    assert [one.reason for one in found.findings] == ["entries_unreadable"] * 2


def test_invalid_fields_count_as_missing(tmp_path: Path) -> None:
    odd = {"frames": [7, {"name": 3, "filename": None, "line": -1}], "timeout_ms": "x", "retired": 2}
    entries = hang(4, culprit=2)
    entries[2][1] |= odd | {"input_dtypes": "Float", "output_dtypes": [None], "thread_name": stack("x", 1)}
    (culprit, _) = evidence(tmp_path, entries)
    last = culprit.entries[-1]
    assert (last.frames, last.timeout_ms, last.retired) == ((Frame("", "", 0),), None, None)
    assert (last.input_types, last.output_types) == ((), ("",))
    assert frame("x") == {"name": "x", "filename": "train.py", "line": 1}
