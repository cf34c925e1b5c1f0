"""Messages: pairing, and waits for messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from builders.dumps import diagnosis_of, recorded
from builders.programs import diagnosis_of_programs, journal_of_programs, problems
from builders.recorder import collective
from tracelink._hang.facts.messages import Matching, MessageEnds, find_message_ends, match_messages
from tracelink._hang.facts.model import Link
from tracelink._hang.facts.participation import find_outcomes, parts_of
from tracelink._model.columns import UNKNOWN

# Pairing in wrapped ring buffers.


TWO, THREE = [0, 1], [0, 1, 2]


def paired(words: dict[int, str], group: list[int], **how: object) -> tuple[MessageEnds, Matching]:
    journal = journal_of_programs(words, a=group, **how)  # type: ignore[arg-type]
    ends = find_message_ends(journal, find_outcomes(journal))
    return ends, match_messages(journal, parts_of(journal), ends)


def partners(words: dict[int, str], group: list[int], **how: object) -> dict[int, int]:
    """The entry of each send to that of its receive."""
    ends, matching = paired(words, group, **how)
    sends = np.flatnonzero(ends.sends & (matching.partner != UNKNOWN))
    return dict(zip(ends.row[sends].tolist(), ends.row[matching.partner[sends]].tolist(), strict=True))


def test_pairing_by_order() -> None:
    assert partners({0: "a>1 a>2 a>1", 1: "a<0 a<0", 2: "a<0"}, THREE) == {0: 3, 2: 4, 1: 5}


def test_ends_of_a_batch() -> None:
    ends, _ = paired({0: "[a>1 a<1] a>1", 1: ""}, TWO)
    assert ends.row.tolist() == [0, 1, 3]
    assert ends.closing.tolist() == [2, 2, 3]
    assert ends.batched.tolist() == [True, True, False]


def test_single_messages_before_a_batch() -> None:
    """Some versions do not count batches: they have the number of the last single message."""
    journal = journal_of_programs({0: "a>1 [a>1 a<1]!", 1: ""}, a=TWO)
    journal.records.sequence[:] = 1
    assert find_message_ends(journal, find_outcomes(journal)).batched.tolist() == [False, True, True]


@pytest.mark.parametrize("marked", [True, False])
def test_closing_entry_of_an_overwritten_batch(marked: bool) -> None:
    sizes: dict[str, Any] = {
        f"{way}_{what}": [] for way in ("input", "output") for what in ("sizes", "dtypes")
    }
    closing = collective("nccl:coalesced", 3, p2p_seq_id=7, record_id=40, is_p2p=marked, **sizes)
    journal = recorded({0: [closing], 1: []})
    assert len(parts_of(journal)) == 0
    assert len(find_message_ends(journal, find_outcomes(journal))) == 0


def test_pairing_by_common_collectives() -> None:
    words = {0: "a<1! a1! a>1! a2! a>1!", 1: "a>0! a1! a<0! a2! a<0!"}
    assert partners(words, TWO, forgotten={0: 5, 1: 7}) == {2: 7, 4: 9, 5: 0}


# Pairing and waits.


PAIR, TRIPLE, FOUR = [0, 1], [0, 1, 2], [0, 1, 2, 3]
EXCHANGES = "[a>1 a<1] [a>1 a<1]", "[a<0 a>0] [a<0 a>0]"
"""What two ranks do who send to each other twice, in whichever order."""


def messages(ranks: dict[int, str], group: list[int]) -> int:
    return diagnosis_of_programs(ranks, a=group).checked.messages


class TestHealthy:
    def test_messages_are_counted_once(self) -> None:
        assert messages({0: "a>1 a>1 a<1", 1: "a<0 a<0 a>0"}, PAIR) == 3

    def test_finished_batch(self) -> None:
        ranks = dict(enumerate(EXCHANGES))
        assert problems(ranks, a=PAIR) == []
        assert messages(ranks, PAIR) == 4

    def test_requested_at_both_ends(self) -> None:
        assert problems({0: "a>1!", 1: "a<0!"}, hung=False, a=PAIR) == ["in_flight a1 by nobody, for 0 1"]

    def test_any_order_within_a_batch(self) -> None:
        assert problems({0: "[a>1 a<1]!", 1: "[a>0 a<0]!"}, hung=False, a=PAIR) == [
            "in_flight a1 by nobody, for 0 1"
        ]

    def test_messages_to_several_ranks(self) -> None:
        assert problems({0: "a>1! a>2", 1: "a<0!", 2: "a<0"}, hung=False, a=TRIPLE) == [
            "in_flight a1 by nobody, for 0 1"
        ]

    def test_one_end_finishes_first(self) -> None:
        assert problems({0: "a>1 a1!", 1: "a<0! a1!"}, hung=False, a=PAIR) == [
            "in_flight a1 by nobody, for 0 1"
        ]

    def test_received_proves_sent(self) -> None:
        assert problems({0: "a>1!", 1: "a<0 a<0 a>0!"}, hung=False, a=PAIR) == [
            "in_flight a3 by nobody, for 1"
        ]

    def test_later_dump_has_more(self) -> None:
        """Rank 1 has left collective 1, so rank 0 has, and has got the message before it."""
        assert problems({0: "a<2! a1!", 1: "a1", 2: "a1"}, hung=False, a=TRIPLE) == []

    def test_receive_from_any_rank(self) -> None:
        assert problems({0: "a>1 a>1!", 1: "a<0 a<*!"}, hung=False, a=PAIR) == [
            "in_flight a2 by nobody, for 0"
        ]

    def test_no_entries(self) -> None:
        assert problems({0: "", 1: ""}, hung=False, a=PAIR) == ["in_flight None by nobody, for nobody"]


class TestWaits:
    def test_missing_receive(self) -> None:
        (problem,) = diagnosis_of_programs({0: "a>1 a>1!", 1: "a<0"}, a=PAIR).problems
        assert (problem.kind, problem.culprits, problem.waiting, problem.proven) == (
            "never_joined",
            (1,),
            (0,),
            True,
        )
        assert problem.message == (
            "Rank 1 never received what rank 0 sends in send 0->1 #2 of group a; rank 0 waits."
        )

    def test_missing_send(self) -> None:
        (problem,) = diagnosis_of_programs({0: "a>1", 1: "a<0 a<0!"}, a=PAIR).problems
        assert problem.message == (
            "Rank 0 never sent what rank 1 waits for in recv 1<-0 #2 of group a; rank 1 waits."
        )

    def test_stopped_pipeline_stage(self) -> None:
        ranks = {0: "a>1 a>1 a<1!", 1: "a<0 a>2 a<0 a>2! a<2!", 2: "a<1 a>3 a<3!", 3: "a<2"}
        assert problems(ranks, a=FOUR) == ["never_joined a3 by 3, for 0 1 2"]

    def test_collective_waits_for_a_message(self) -> None:
        ranks = {0: "b1! a>1!", 1: "", 2: "b1!", 3: "b1!"}
        assert problems({**ranks, 0: "a>1!"}, a=[0, 1], b=[0, 2, 3]) == ["never_joined a1 by 1, for 0 2 3"]

    def test_first_missed_message_from_similar_pipelines(self) -> None:
        """Rank 1 stopped before collective 1 of its pair, and before it was to take the second message."""
        ranks = {0: "a>1 a>1! d1", 1: "a<0", 2: "b>1 b>1 d1", 3: "b<0 e1 b<0", 4: "d1", 5: "e1 c1!"}
        groups = {"a": [0, 1], "b": [2, 3], "c": [1, 5], "d": [0, 2, 4], "e": [3, 5]}
        found = problems(ranks, descriptions={"a": "pp", "b": "pp", "c": "tp", "e": "tp"}, **groups)
        assert found == ["never_joined c1 by 1, for 0 5"]

    def test_one_message_of_a_batch(self) -> None:
        ranks = {0: "[a>1 a<2]!", 1: "[a>2 a<0]!", 2: ""}
        assert problems(ranks, a=TRIPLE) == ["never_joined a1 by 2, for 0 1"]

    def test_rank_without_a_dump(self) -> None:
        (problem,) = diagnosis_of_programs({0: "a>1!"}, a=PAIR).problems
        assert (problem.culprits, problem.proven) == ((1,), False)

    def test_two_ranks_without_dumps(self) -> None:
        ranks = {0: "a>1! b1!", 3: "b1!"}
        assert problems(ranks, a=PAIR, b=FOUR) == ["never_joined a1 by 1, for 0 3"]

    def test_rank_without_a_dump_behind_queued_work(self) -> None:
        assert problems({0: "a>1! c1!", 1: ""}, a=PAIR, c=[0, 2]) == ["never_joined a1 by 1, for 0"]

    def test_truncated_dump(self) -> None:
        whole = journal_of_programs({0: "a>1 a>1!", 1: "a<0"}, a=PAIR)
        broken = {**whole.recordings, 1: replace(whole.recordings[1], broken_off=True)}
        (problem,) = diagnosis_of(replace(whole, recordings=broken)).problems
        assert (problem.culprits, problem.proven) == ((1,), False)

    def test_truncated_batch(self) -> None:
        whole = journal_of_programs({0: "a>1 a>1!", 1: "a<0"}, a=PAIR)
        broken = {**whole.recordings, 0: replace(whole.recordings[0], broken_off=True)}
        assert diagnosis_of(replace(whole, recordings=broken)).problems == []

    def test_dropped_message(self) -> None:
        assert problems({0: "a>1 a>1?", 1: "a<0"}, a=PAIR) == ["never_joined a2 by 1, for 0"]

    def test_message_that_was_sent_and_not_received(self) -> None:
        """Sends are over before messages arrive: rank 1 did not get to the collective because it waits for this one."""
        ranks = {0: "a>1 b1!", 1: "a<0!", 2: "b1!"}
        assert problems(ranks, hung=False, a=PAIR, b=TRIPLE) == ["in_flight a1 by nobody, for 0 1 2"]


class TestDeadlocks:
    def test_both_receive_first(self) -> None:
        (problem,) = diagnosis_of_programs({0: "a<1! a>1!", 1: "a<0! a>0!"}, a=PAIR).problems
        assert (problem.kind, problem.culprits, problem.tie) == ("deadlock", (0, 1), True)
        assert problem.cycle == (
            Link("a", 1, "nccl:recv 0<-1", (0,), (1,)),
            Link("a", 1, "nccl:recv 1<-0", (1,), (0,)),
        )

    def test_both_send_first(self) -> None:
        assert problems({0: "a>1!", 1: "a>0!"}, a=PAIR) == ["deadlock a1 by 0 1 (tie), for 0 1"]

    def test_receives_that_ranks_do_not_wait_for(self) -> None:
        """Rank 2 went on to a send: ranks 0 and 1 may do so as well."""
        ranks = {0: "a<1!", 1: "a<0!", 2: "a<3! a>3!", 3: "a>2! a<2!"}
        assert problems(ranks, hung=False, a=FOUR) == ["in_flight a1 by 0 1, for 2 3"]

    def test_gone_on_without_the_message(self) -> None:
        """Rank 1 has called a collective that rank 0 called after the send: it will not receive it any more."""
        ranks = {0: "a>1! c1!", 1: "c1!"}
        assert problems(ranks, hung=False, a=PAIR, c=PAIR) == ["deadlock a1 by 0 1 (tie), for 0 1"]

    def test_sends_through_a_buffer(self) -> None:
        """Both sent first before, and went on."""
        ranks = {0: "a>1 a<1 a>1!", 1: "a>0 a<0 a>0!"}
        assert problems(ranks, hung=False, a=PAIR) == ["in_flight a3 by 0 1, for nobody"]
        (problem,) = diagnosis_of_programs(ranks, hung=False, a=PAIR).problems
        assert problem.message.startswith(
            "Running or hung? Ranks 0 and 1 wait for each other: rank 0 waits for rank 1 in send 0->1 #3 of group a."
        )

    def test_cycle_of_three(self) -> None:
        ranks = {0: "a>1!", 1: "a>2!", 2: "a>0!"}
        assert problems(ranks, a=TRIPLE) == ["deadlock a1 by 0 1 2 (tie), for 0 1 2"]

    def test_batches_in_different_order(self) -> None:
        ranks = {0: "[a>1]! [a>2]!", 1: "[a<2]! [a<0]!", 2: "[a<0]! [a>1]!"}
        assert problems(ranks, a=TRIPLE) == ["deadlock a1 by 0 1 2 (tie), for 0 1 2"]

    def test_culprit_by_counterparts(self) -> None:
        ranks = {0: "a<1! a>1!", 1: "a<0! a>0!", 2: "b>1 b<1", 3: "b<0 b>0"}
        found = problems(ranks, descriptions={"a": "pp", "b": "pp"}, a=[0, 1], b=[2, 3])
        assert found == ["deadlock a1 by 0, for 1"]

    def test_culprit_by_earlier_messages_of_counterparts(self) -> None:
        """Rank 1 sent back what was to go on to rank 2; rank 0 took it for something else."""
        ranks = {0: "a>1 a<1 a1!", 1: "a<0 a>0 a<2!", 2: "a<1!", 3: "b>1 b<1 b1", 4: "b<0 b>2 b<2 b>0 b1"}
        groups = {"a": TRIPLE, "b": [3, 4, 5]}
        found = problems({**ranks, 5: "b<1 b>1 b1"}, descriptions={"a": "pp", "b": "pp"}, **groups)
        assert found == ["deadlock a3 by 1, for 0 2"]

    def test_culprit_by_earlier_steps(self) -> None:
        steps = (
            [f"a{step} a>1 a>1 a<1 a<1" for step in range(1, 7)],
            [f"a{step} a<0 a<0 a>0 a>0" for step in range(1, 7)],
        )
        ranks = {0: " ".join(steps[0]) + " a7 a>1 a<1! a>1!", 1: " ".join(steps[1]) + " a7 a<0 a<0! a>0!"}
        assert problems(ranks, a=PAIR) == ["deadlock a26 by 0, for 1"]

    def test_culprit_by_conflicts(self) -> None:
        ranks = {0: "a1!", 1: "a>2!", 2: "a1!", 3: "a<2!"}
        assert problems(ranks, a=FOUR) == ["deadlock a1 by 2, for 0 1 3"]


@given(st.integers(1, 6), st.data())
def test_any_start_of_buffers(steps: int, data: st.DataObject) -> None:
    words = {rank: one.split() * steps for rank, one in enumerate(("a>1", "a<0 a>2", "a<1 a>3", "a<2"))}
    words[2][-2:] = ["a<1", "a>3!"]
    words[3] = words[3][:-1]
    lost = {rank: data.draw(st.integers(0, max(len(one) - 4, 0))) for rank, one in words.items()}
    ranks = {rank: " ".join(one[lost[rank] :]) for rank, one in words.items()}
    (problem,) = diagnosis_of_programs(ranks, hung=False, forgotten=lost, a=FOUR).problems
    assert (problem.kind, problem.culprits, problem.waiting) == ("in_flight", (3,), (2,))


@given(st.permutations(FOUR))
def test_any_order_of_ranks(order: list[int]) -> None:
    words = {0: "a>1 a>1 a<1!", 1: "a<0 a>2 a<0 a>2! a<2!", 2: "a<1 a>3 a<3!", 3: "a<2"}
    (problem,) = diagnosis_of_programs({order[rank]: told for rank, told in words.items()}, a=order).problems
    assert (problem.culprits, problem.waiting) == ((order[3],), tuple(sorted(order[:3])))


@pytest.mark.parametrize("forgotten", [{0: 2}, {1: 3}, {0: 2, 1: 3}])
def test_overwritten_messages_are_not_missing(forgotten: dict[int, int]) -> None:
    words = {0: ["a>1"] * 6, 1: ["a<0"] * 6}
    ranks = {rank: " ".join(one[forgotten.get(rank, 0) :]) for rank, one in words.items()}
    assert problems(ranks, forgotten=forgotten, a=PAIR) == []


def test_request_before_the_buffer_is_not_missing() -> None:
    """Rank 1 may have asked for it and forgotten that, for all that it kept is newer."""
    assert problems({0: "a>1!", 1: "b1 b2 b3"}, hung=False, forgotten={1: 9}, a=PAIR, b=[1]) == [
        "in_flight a1 by nobody, for 0"
    ]
