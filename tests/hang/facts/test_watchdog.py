"""Watchdog lines in logs, without any dump: who is behind, and what cannot be said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.data import shared
from builders.monitors import (
    Group,
    barrier,
    c10,
    gave_up,
    gloo_lost,
    gloo_timeout,
    hung,
    passed,
    status,
    timed_out,
)
from tracelink import Diagnosis, diagnose
from tracelink._hang.facts.model import Category, Kind, Stage
from tracelink._model.errors import UnreadableError

TENSOR, DATA = Group("5", "mesh_tp", 2), Group("6", "mesh_dp", 3)


def logs(folder: Path, lines: Mapping[object, Sequence[str]], name: str = "rank_{}.log") -> Path:
    """A log for each key, with lines of a program around those of watchdogs."""
    for key, own in lines.items():
        path = folder / name.format(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(["step 1", *own, "bye", ""]))
    return folder


def outcomes(diagnosis: Diagnosis) -> list[tuple[object, ...]]:
    return [
        (one.kind, one.group, one.sequence, one.operation, one.culprits, one.waiting, one.proven)
        for one in diagnosis.problems
    ]


def reasons(diagnosis: Diagnosis) -> list[str]:
    return [finding.reason for finding in diagnosis.findings]


# NCCL


def test_a_rank_that_did_not_come(tmp_path: Path) -> None:
    found = diagnose(logs(tmp_path, hung(8, 3)))
    others = (0, 1, 2, 4, 5, 6, 7)
    assert outcomes(found) == [(Kind.NEVER_JOINED, "0", 21, "nccl:all_reduce", (3,), others, True)]
    (problem,) = found.problems
    assert problem.message == (
        "Rank 3 did not enqueue all_reduce #21 of group 0 (default_pg): its last one is #20, which is finished. "
        "7 ranks timed out after 10 min in #21."
    )
    assert problem.category is Category.NOT_REACHED
    assert [(one.stage, one.sequence, one.ranks) for one in found.standings] == [
        (Stage.FINISHED, 20, (3,)),
        (Stage.WAITING, 21, others),
    ]
    assert found.notes == [
        "There is no dump: this diagnosis rests on watchdog lines in 8 logs. docs/witnesses.md: what they can prove."
    ]
    assert reasons(found) == []


def test_others_have_enqueued_more(tmp_path: Path) -> None:
    lines = {rank: gave_up(rank, 21, enqueued=25) for rank in (0, 1)} | {2: [status(2, 20, 20)]}
    assert outcomes(diagnose(logs(tmp_path, lines))) == [
        (Kind.LAGGING, "0", 21, "nccl:all_reduce", (2,), (0, 1), True)
    ]


def test_a_rank_that_never_used_the_group(tmp_path: Path) -> None:
    lines = {rank: gave_up(rank, 1) for rank in (0, 1)} | {2: [status(2, -1, -1)]}
    (problem,) = diagnose(logs(tmp_path, lines)).problems
    assert problem.culprits == (2,)
    assert "it enqueued nothing in this group" in problem.message


def test_one_rank_that_made_a_call_more_than_all_others(tmp_path: Path) -> None:
    """Either side may be wrong: most ranks are not to blame for what one of them does."""
    lines = {0: gave_up(0, 11)} | {rank: [status(rank, 10, 10)] for rank in (1, 2)}
    found = diagnose(logs(tmp_path, lines))
    assert outcomes(found) == [(Kind.NEVER_JOINED, "0", 11, "nccl:all_reduce", (), (0,), False)]
    (problem,) = found.problems
    assert (problem.tie, problem.category) == (True, Category.UNKNOWN)
    assert problem.message == (
        "Rank 0 timed out after 10 min in all_reduce #11 of group 0 (default_pg), which ranks 1 and 2 did not enqueue: "
        "either they left it out, or it is a call too many."
    )


def test_a_log_less_never_proves_more(tmp_path: Path) -> None:
    """Two ranks made a call that two others did not make: who is wrong is not known without one of the logs either."""
    lines = {rank: gave_up(rank, 11) for rank in (0, 3)} | {rank: [status(rank, 10, 10)] for rank in (1, 2)}
    for lost in (None, 1, 2):
        kept = {rank: own for rank, own in lines.items() if rank != lost}
        (problem,) = diagnose(logs(tmp_path / str(lost), kept)).problems
        assert (problem.culprits, problem.proven) == ((), False)


def test_the_end_of_a_log_in_which_gloo_gave_up_as_well(tmp_path: Path) -> None:
    """As seen in the wild: the line of the timeout itself is cut off, and one rank ran ahead of those in gloo."""
    lines = [
        f"[rank3]: {gloo_timeout()}",
        f"[rank4]: {gloo_timeout('send')}",
        status(5, 56116, 56116),
        status(7, 56390, 56116),
        status(0, 56116, 56116),
    ]
    found = diagnose(logs(tmp_path, {"tail": lines}, "{}.log"))
    assert outcomes(found) == [(Kind.TIMED_OUT, "", None, "", (), (3, 4), False)]
    assert [(one.stage, one.sequence, one.ranks) for one in found.standings] == [
        (Stage.FINISHED, 56116, (0, 5)),
        (Stage.WAITING, 56117, (7,)),
    ]


def test_all_ranks_wait_in_the_same_collective(tmp_path: Path) -> None:
    found = diagnose(logs(tmp_path, {rank: gave_up(rank, 21) for rank in range(4)}))
    assert outcomes(found) == [(Kind.TIMED_OUT, "0", 21, "nccl:all_reduce", (), (0, 1, 2, 3), False)]
    assert found.problems[0].category is Category.UNKNOWN
    assert "the logs do not show which rank is to blame" in found.problems[0].message


def test_a_missing_log_blames_nobody(tmp_path: Path) -> None:
    lines = hung(4, 2)
    del lines[2]
    found = diagnose(logs(tmp_path, lines))
    assert outcomes(found) == [(Kind.TIMED_OUT, "0", 21, "nccl:all_reduce", (), (0, 1, 3), False)]
    assert found.problems[0].message.endswith("No log has a line of member 2 of this group.")


def test_what_a_rank_says_of_another_group_proves_nothing(tmp_path: Path) -> None:
    """At the signal of another rank only the status of the group of all ranks is printed."""
    lines = {rank: [*gave_up(rank, 21, group=DATA), status(rank, 90, 90)] for rank in (0, 1)}
    lines[2] = [status(2, 20, 20)]
    assert outcomes(diagnose(logs(tmp_path, lines))) == [
        (Kind.TIMED_OUT, "6", 21, "nccl:all_reduce", (), (0, 1), False)
    ]


def test_numbers_of_groups_that_are_local_to_a_process_are_not_compared(tmp_path: Path) -> None:
    """torch 2.4: group 1 of one rank can be another group than group 1 of the next."""
    lines = {
        rank: [
            timed_out(rank, sequence),
            c10(
                rank,
                f"[PG 1 Rank 0] Timeout at NCCL work: {sequence}, last enqueued NCCL work: {sequence}, "
                f"last completed NCCL work: {sequence - 1}.",
            ),
        ]
        for rank, sequence in ((0, 7), (1, 30))
    }
    lines[2] = [c10(2, "[PG 1 Rank 1] X, last enqueued NCCL work: 6, last completed NCCL work: 6.")]
    (problem,) = diagnose(logs(tmp_path, lines)).problems
    assert (problem.culprits, problem.waiting, problem.group) == ((), (0, 1), "")


def test_a_rank_that_waits_in_another_group_is_not_to_blame(tmp_path: Path) -> None:
    lines = {
        0: gave_up(0, 21, group=DATA),
        1: [status(1, 20, 20, group=DATA), *gave_up(1, 9, group=TENSOR, member=0)],
        2: [status(2, 8, 8, group=TENSOR, member=1)],
        3: gave_up(3, 9, group=TENSOR, member=2),
    }
    found = diagnose(logs(tmp_path, lines))
    assert outcomes(found) == [
        (Kind.NEVER_JOINED, "5", 9, "nccl:all_reduce", (2,), (1, 3), True),
        (Kind.TIMED_OUT, "6", 21, "nccl:all_reduce", (), (0,), False),
    ]
    assert "Rank 1 did not enqueue it, and timed out in group 5." in found.problems[1].message


def test_ranks_that_wait_for_each_other_in_two_groups(tmp_path: Path) -> None:
    lines = {
        0: [*gave_up(0, 21, group=DATA), status(0, 8, 8, group=TENSOR)],
        1: [*gave_up(1, 9, group=TENSOR), status(1, 20, 20, group=DATA)],
    }
    found = diagnose(logs(tmp_path, lines))
    assert outcomes(found) == [(Kind.DEADLOCK, "6", 21, "nccl:all_reduce", (), (0, 1), True)]
    assert found.problems[0].message == (
        "Deadlock: rank 0 in all_reduce #21 of group 6 (mesh_dp) waits for rank 1; rank 1 in all_reduce #9 of group 5 "
        "(mesh_tp) waits for rank 0."
    )


def test_another_operation(tmp_path: Path) -> None:
    lines = {rank: gave_up(rank, 4) for rank in range(4)}
    lines[2] = gave_up(2, 4, operation="BROADCAST")
    found = diagnose(logs(tmp_path, lines))
    assert outcomes(found) == [(Kind.OPERATION_MISMATCH, "0", 4, "nccl:all_reduce", (2,), (0, 1, 3), True)]
    assert found.problems[0].message == (
        "Ranks timed out in different operations as #4 of group 0 (default_pg): Ranks 0-1, 3: all_reduce; "
        "Rank 2: broadcast."
    )


def test_two_against_two_is_a_tie(tmp_path: Path) -> None:
    lines = {rank: gave_up(rank, 4, operation="BARRIER" if rank > 1 else "ALLREDUCE") for rank in range(4)}
    (problem,) = diagnose(logs(tmp_path, lines)).problems
    assert (problem.kind, problem.culprits, problem.tie) == (Kind.OPERATION_MISMATCH, (), True)


@pytest.mark.parametrize(
    ("operation", "sizes", "kind"),
    [
        ("ALLREDUCE", {"elements": 9}, Kind.SIZE_MISMATCH),
        ("_REDUCE_SCATTER_BASE", {"elements": 1024, "out": 9}, Kind.SIZE_MISMATCH),
        ("ALLTOALL_BASE", {"elements": 9}, Kind.TIMED_OUT),
    ],
)
def test_other_sizes(tmp_path: Path, operation: str, sizes: dict[str, int], kind: Kind) -> None:
    """What all-to-alls pass may differ."""
    lines = {rank: gave_up(rank, 4, operation=operation) for rank in range(4)}
    lines[1] = gave_up(1, 4, operation=operation, **sizes)
    (problem,) = diagnose(logs(tmp_path, lines)).problems
    assert (problem.kind, problem.culprits) == (kind, (1,) if kind is Kind.SIZE_MISMATCH else ())


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param({0: gave_up(0, 21, operation="SEND"), 1: [status(1, 20, 20)]}, id="of messages"),
        pytest.param({0: gave_up(0, 21), 1: [status(1, 20, 18)]}, id="with work in flight"),
        pytest.param(
            {0: gave_up(0, 21, second=600), 1: [status(1, 20, 20, second=100)]}, id="of long before"
        ),
        pytest.param(
            {0: gave_up(0, 21), 3: gave_up(3, 21), 1: [status(1, 3, 3, second=1200)]}, id="after a restart"
        ),
    ],
)
def test_a_status_that_blames_nobody(tmp_path: Path, lines: dict[object, list[str]]) -> None:
    assert [one[0::4] for one in outcomes(diagnose(logs(tmp_path, lines)))] == [(Kind.TIMED_OUT, ())]


def test_the_last_of_two_hangs_in_the_same_logs(tmp_path: Path) -> None:
    """The ranks were restarted, and another one hangs."""
    first, second = hung(3, 1, sequence=5), {rank: gave_up(rank, 9, second=3000) for rank in (0, 1)}
    second[2] = [status(2, 8, 8, second=3001)]
    found = diagnose(logs(tmp_path, {rank: [*first[rank], *second[rank]] for rank in range(3)}))
    assert outcomes(found) == [(Kind.NEVER_JOINED, "0", 9, "nccl:all_reduce", (2,), (0, 1), True)]
    assert reasons(found) == ["older_reports"]


def test_a_watchdog_that_is_stuck_itself(tmp_path: Path) -> None:
    text = "[PG ID 0 PG GUID 0(default_pg) Rank 1] Heartbeat monitor timed out! Process will be terminated"
    found = diagnose(logs(tmp_path, {1: [c10(1, text)]}))
    assert (found.verdict, found.problems[0].culprits) == ("problem", ())
    assert found.notes[1].startswith("The watchdog of rank 1 got stuck itself")


# Whose line is it?


def test_interleaved_lines_in_one_file(tmp_path: Path) -> None:
    lines = [line for own in hung(8, 3).values() for line in own]
    found = diagnose(logs(tmp_path, {"out": lines}, "slurm-{}.log"))
    assert found.problems[0].culprits == (3,)


@given(st.data())
def test_any_interleaving_says_the_same_as_separate_logs(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    own = {rank: list(lines) for rank, lines in hung(4, 2).items()}
    separate = diagnose(logs(tmp_path_factory.mktemp("apart"), own))
    order = data.draw(st.permutations([rank for rank, lines in own.items() for _ in lines]))
    prefix = data.draw(st.sampled_from(["", "{}: ", "[default{}]:", "\x1b[36m{}|\x1b[0m "]))
    mixed = [prefix.format(rank) + own[rank].pop(0) for rank in order]
    together = diagnose(logs(tmp_path_factory.mktemp("mixed"), {"job": mixed}, "{}.out"))
    assert (outcomes(together), together.standings) == (outcomes(separate), separate.standings)


def without_ranks(lines: Sequence[str]) -> list[str]:
    return [line.partition(":")[2] for line in lines]


def test_the_rank_of_old_lines_is_in_the_name_of_the_file(tmp_path: Path) -> None:
    lines = {rank: without_ranks(own) for rank, own in hung(4, 2, sequence=3).items()}
    assert diagnose(logs(tmp_path, lines)).problems[0].culprits == (2,)


def test_labels_of_launchers_are_ranks_only_if_no_other_file_has_them(tmp_path: Path) -> None:
    own = {rank: gave_up(rank, 21, group=DATA) for rank in (0, 1)} | {2: [status(2, 20, 20, group=DATA)]}
    task = [f"{rank}: {line}" for rank in own for line in without_ranks(own[rank])]
    one = diagnose(logs(tmp_path / "one", {"job": task}, "{}.out"))
    assert (one.problems[0].culprits, reasons(one)) == ((2,), [])
    two = diagnose(logs(tmp_path / "two", {"node0": task, "node1": task}, "{}.out"))
    assert [problem.culprits for problem in two.problems] == [()] * len(two.problems)
    assert "unknown_rank" in reasons(two)


def test_folders_of_torchelastic(tmp_path: Path) -> None:
    for attempt, culprit in ((0, 1), (1, 2)):
        logs(tmp_path, hung(4, culprit), f"none_x/attempt_{attempt}/{{}}/stderr.log")
    found = diagnose(tmp_path)
    assert (found.problems[0].culprits, reasons(found)) == ((2,), ["attempts"])


def test_a_name_that_contradicts_the_lines(tmp_path: Path) -> None:
    lines = hung(4, 2)
    lines[7] = lines.pop(2)
    found = diagnose(logs(tmp_path, lines))
    assert (found.problems[0].culprits, reasons(found)) == ((2,), ["rank_conflict"])


def test_the_user_knows_the_rank(tmp_path: Path) -> None:
    lines: dict[object, list[str]] = {**hung(4, 2)}
    lines["other"] = without_ranks(hung(4, 2)[2])
    del lines[2]
    assert diagnose(logs(tmp_path, lines), rank_of={"rank_other.log": 2}).problems[0].culprits == (2,)


def test_a_name_with_control_characters_is_escaped(tmp_path: Path) -> None:
    group = Group("5", "a\x1b]0;x\x07b", 2)
    (problem,) = diagnose(logs(tmp_path, {rank: gave_up(rank, 3, group=group) for rank in (0, 1)})).problems
    assert "\x1b" not in problem.message


# gloo


def test_gloo_names_nobody(tmp_path: Path) -> None:
    lines = {0: [gloo_timeout()], 1: [gloo_timeout("send")], 2: [gloo_lost()], 3: []}
    found = diagnose(logs(tmp_path, lines))
    assert outcomes(found) == [(Kind.TIMED_OUT, "", None, "", (), (0, 1, 2), False)]
    assert found.problems[0].message == (
        "Ranks 0 and 1 gave up a gloo operation after 14.0 s; rank 2 lost a connection of gloo. "
        "The logs do not show which rank is to blame. Rank 3: no such line."
    )


def test_lost_connections_without_a_timeout_mean_that_a_process_ended(tmp_path: Path) -> None:
    found = diagnose(logs(tmp_path, {0: [gloo_lost()], 1: [gloo_lost()], 2: []}))
    assert outcomes(found) == [(Kind.FAILED, "", None, "", (), (0, 1), False)]
    assert found.problems[0].advice.startswith("No rank timed out, so a process ended")


def test_a_monitored_barrier_names_the_rank(tmp_path: Path) -> None:
    lines = {0: [barrier(2)], 1: [passed(1)], 2: [], 3: [passed(3)]}
    found = diagnose(logs(tmp_path, lines))
    assert outcomes(found) == [(Kind.NEVER_JOINED, "", None, "gloo:monitored_barrier", (2,), (0, 1, 3), True)]


def test_members_of_another_group_are_not_ranks(tmp_path: Path) -> None:
    lines = {4: [barrier(1)], 5: [], 6: [passed(2)]}
    found = diagnose(logs(tmp_path, lines))
    assert outcomes(found)[0][4] == ()
    assert found.problems[0].message.startswith("Rank 1 (numbers within their group) did not pass")


def test_the_last_member_may_be_any_later_rank(tmp_path: Path) -> None:
    """Ranks 0, 1 and 5 are a group: its member 2 is not rank 2."""
    found = diagnose(logs(tmp_path, {0: [barrier(2)], 1: [passed(1)], 2: [], 5: []}))
    assert found.problems[0].culprits == ()


# No all-clear


def test_logs_without_a_watchdog_line_are_no_all_clear(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError) as error:
        diagnose(logs(tmp_path, {0: [], 1: []}))
    assert "2 logs contain no watchdog line, which is no sign that the job is healthy." in str(error.value)


CASES = [
    ("ddp_uneven", "problem", ()),
    ("eval_skip", "problem", ()),
    ("first_iter_init_stuck", "problem", ()),
    ("fsdp2", "problem", ()),
    ("monitored", "problem", (6,)),
    ("reinit_hang", "problem", ()),
    ("sigkill", "problem", ()),
    ("sigkill_rawpg", "problem", ()),
    ("two_jobs", "problem", ()),
    ("world_kill_dp_only", "problem", ()),
    ("wrapped_far", "problem", ()),
]
SILENT = ["healthy_running_close", "py_sleep", "slow_rank", "twice"]


@pytest.mark.foreign
@pytest.mark.parametrize(("case", "verdict", "culprits"), CASES)
def test_recorded_logs_of_gloo_jobs(case: str, verdict: str, culprits: tuple[int, ...]) -> None:
    found = diagnose(sorted(shared(f"fr2/{case}").glob("log_rank*.txt")))
    assert (found.verdict, {rank for one in found.problems for rank in one.culprits}) == (
        verdict,
        set(culprits),
    )


@pytest.mark.foreign
@pytest.mark.parametrize("case", SILENT)
def test_recorded_logs_without_a_line(case: str) -> None:
    with pytest.raises(UnreadableError):
        diagnose(sorted(shared(f"fr2/{case}").glob("log_rank*.txt")))
