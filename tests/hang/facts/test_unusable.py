"""Entries that cannot be used lower what is known of their rank: a collective may be among them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.dumps import Entries, diagnosis_of, hang, healthy, recorded, steps
from builders.recorder import collective
from tracelink._hang.facts.model import Problem

UNUSABLE: dict[str, dict[str, Any]] = {
    "invalid sequence number": {"collective_seq_id": -5},
    "sequence number of another type": {"collective_seq_id": "3"},
    "missing sequence number": {"collective_seq_id": None},
    "invalid name": {"profiling_name": 7},
    "invalid time": {"time_created_ns": None},
    "invalid group": {"process_group": "0"},
}


def only_problem(entries: Entries) -> Problem:
    (problem,) = diagnosis_of(recorded(entries)).problems
    return problem


@pytest.mark.parametrize("fields", UNUSABLE.values(), ids=UNUSABLE)
def test_unusable_last_entry_of_the_culprit(fields: dict[str, Any]) -> None:
    entries = hang(ranks=4, culprit=2)
    entries[2].append(steps(2, 3)[2] | fields)
    problem = only_problem(entries)
    assert (problem.kind, problem.culprits, problem.sequence, problem.proven) == (
        "never_joined",
        (2,),
        3,
        False,
    )
    assert problem.message == (
        "Rank 2 (whose dump does not show it) is the only rank missing in all_reduce #3 of group 0 (default_pg); "
        "3 ranks wait."
    )


@pytest.mark.parametrize("fields", UNUSABLE.values(), ids=UNUSABLE)
def test_unusable_entry_before_the_last_one(fields: dict[str, Any]) -> None:
    """Numbers ascend: the last collective that is known was the last one."""
    entries = hang(ranks=4, culprit=2)
    entries[2][0] |= fields
    problem = only_problem(entries)
    assert (problem.kind, problem.culprits, problem.proven) == ("never_joined", (2,), True)


def test_unusable_entry_after_the_last_one_of_one_group() -> None:
    """It may be of the group in which others wait, although the rank went on in another group."""
    entries = hang(ranks=4, culprit=2)
    other = collective("nccl:all_reduce", 1, group=("1", "alone"), completed=1)
    entries[2] += [steps(2, 3)[2] | {"collective_seq_id": None}, other]
    groups = {
        name: {"name": name, "desc": "", "ranks": ranks}
        for name, ranks in {"0": "[0,1,2,3]", "1": "[2]"}.items()
    }
    (problem,) = diagnosis_of(recorded(entries, pg_config=groups)).problems
    assert (problem.culprits, problem.proven) == ((2,), False)


def test_number_of_unusable_entries_is_reported() -> None:
    entries = healthy(ranks=2)
    for rank in entries:
        entries[rank].append(steps(rank, 3)[2] | {"collective_seq_id": None})
    findings = diagnosis_of(recorded(entries)).findings
    assert [(finding.reason, finding.count, finding.message) for finding in findings] == [
        (
            "entries_unusable",
            2,
            "2 entries of ranks 0 and 1 cannot be compared with those of other ranks: "
            "the group or the sequence number is unknown.",
        )
    ]


@given(st.data())
def test_no_proof_on_top_of_unusable_entries(data: st.DataObject) -> None:
    """Whatever cannot be read at the end of some dumps: their ranks are never proven culprits."""
    entries = hang(ranks=5, culprit=2)
    damaged = data.draw(st.sets(st.integers(0, 4), min_size=1))
    for rank in damaged:
        fields = data.draw(st.sampled_from(list(UNUSABLE.values())))
        entries[rank].append(collective("nccl:all_reduce", 4) | fields)
    for problem in diagnosis_of(recorded(entries)).problems:
        assert not (problem.proven and damaged & set(problem.culprits))
