"""Problems of messages: payloads, and peers; what skipped messages and wrong peers lead to."""

from __future__ import annotations

import pytest

from builders.dumps import diagnosis_of, recorded
from builders.programs import diagnosis_of_programs, problems
from builders.recorder import CREATED, collective

TWO, THREE, FOUR = [0, 1], [0, 1, 2], [0, 1, 2, 3]
STAGES = {"a": "pp", "b": "pp"}


class TestSizes:
    def test_changed_size(self) -> None:
        steps = "a>1:8 " * 5, "a<0:8 " * 5
        (problem,) = diagnosis_of_programs({0: steps[0] + "a>1:9!", 1: steps[1] + "a<0:8!"}, a=TWO).problems
        assert (problem.kind, problem.culprits, problem.waiting, problem.tie) == (
            "size_mismatch",
            (0,),
            (1,),
            False,
        )
        assert problem.message == (
            "Rank 0 has an unexpected size in send 0->1 #6 of group a: "
            "rank 0 sends 9 elements, rank 1 receives 8 elements; rank 1 waits."
        )

    def test_expected_from_earlier_messages(self) -> None:
        sizes = [1, 2, 3, 4] * 3
        ranks = {
            0: " ".join(f"a>1:{size}" for size in sizes) + " a>1:1!",
            1: " ".join(f"a<0:{size}" for size in sizes) + " a<0:2!",
        }
        assert problems(ranks, a=TWO) == ["size_mismatch a13 by 1, for 0"]

    def test_expected_from_similar_groups(self) -> None:
        ranks = {0: "a>1:8!", 1: "a<0:9!", 2: "b>1:8", 3: "b<0:8"}
        found = problems(ranks, descriptions=STAGES, a=[0, 1], b=[2, 3])
        assert found == ["size_mismatch a1 by 1, for 0"]

    def test_unique_size_is_wrong(self) -> None:
        assert problems({0: "a>1:8! a<1:8!", 1: "a<0:9! a>0:8!"}, a=TWO) == ["size_mismatch a1 by 1, for 0"]

    def test_first_message_is_a_tie(self) -> None:
        (problem,) = diagnosis_of_programs({0: "a>1:8!", 1: "a<0:9!"}, a=TWO).problems
        assert (problem.culprits, problem.tie) == ((0, 1), True)
        assert problem.message == (
            "Ranks 0 and 1 do not agree in send 0->1 #1 of group a: rank 0 sends 8 elements, "
            "rank 1 receives 9 elements. It is unknown which rank is wrong."
        )

    def test_dtype_without_waiting_ranks(self) -> None:
        found = problems({0: "a>1.Half a>1.Half", 1: "a<0.Half a<0.Float"}, a=TWO)
        assert found == ["dtype_mismatch a2 by 1, for nobody"]

    def test_repeated_mismatch_is_one_problem(self) -> None:
        steps = "a>1 " * 4, "a<0 " * 4
        ranks = {0: steps[0] + "a>1.Int " * 3, 1: steps[1] + "a<0 " * 3}
        (problem,) = diagnosis_of_programs(ranks, a=TWO).problems
        assert (problem.culprits, problem.sequence, problem.count) == ((0,), 5, 3)

    def test_messages_of_a_batch(self) -> None:
        steps = ["[a>1 a<1]"] * 4, ["[a<0 a>0]"] * 4
        ranks = {0: " ".join([*steps[0], "[a>1 a<1:7]!"]), 1: " ".join([*steps[1], "[a<0 a>0]!"])}
        assert problems(ranks, a=TWO) == ["size_mismatch a5 by 0, for 1"]

    def test_later_messages_are_consequences(self) -> None:
        steps = ["a>1"] * 4, ["a<0 a>2"] * 4, ["a<1"] * 4
        ranks = {
            0: " ".join([*steps[0], "a>1:9!"]),
            1: " ".join([*steps[1], "a<0!"]),
            2: " ".join([*steps[2], "a<1!"]),
        }
        assert problems(ranks, a=THREE) == ["size_mismatch a5 by 0, for 1 2"]

    @pytest.mark.parametrize("lost", [0, 1, 2, 3])
    def test_changing_sizes_in_wrapped_buffers(self, lost: int) -> None:
        sizes = [5, 1, 4, 1, 3, 9, 2, 6]
        sends, receives = ([f"a{way}:{size}" for size in sizes] for way in (">1", "<0"))
        ranks = {0: " ".join(sends), 1: " ".join(receives[lost:])}
        assert problems(ranks, forgotten={0: 5, 1: 5 + lost}, a=TWO) == []


class TestPeers:
    def test_wrong_target(self) -> None:
        steps = ["a>1 a<2"] * 3, ["a<0 a>2"] * 3, ["a<1 a>0"] * 3
        ranks = {
            0: " ".join([*steps[0], "a>2!"]),
            1: " ".join([*steps[1], "a<0!"]),
            2: " ".join([*steps[2], "a<1!"]),
        }
        assert problems(ranks, a=THREE) == ["deadlock a7 by 0, for 1 2"]

    def test_wrong_source(self) -> None:
        steps = ["a>1 a<3"] * 3, ["a<0 a>2"] * 3, ["a<1 a>3"] * 3, ["a<2 a>0"] * 3
        ranks = {
            0: " ".join([*steps[0], "a>1!"]),
            1: " ".join([*steps[1], "a<3!"]),
            2: " ".join([*steps[2], "a<1!"]),
            3: " ".join([*steps[3], "a<2!"]),
        }
        assert problems(ranks, a=FOUR) == ["deadlock a7 by 1, for 0 2 3"]

    def test_late_peer_is_not_wrong(self) -> None:
        """Rank 0 never sent to rank 2 before; but rank 2 has stopped, and may have been going to take it."""
        ranks = {0: "a>1 a>1 a>2!", 1: "a<0 a<0 a<0!", 2: ""}
        assert problems(ranks, a=THREE) == ["never_joined a3 by 2, for 0 1"]

    @pytest.mark.parametrize(("way", "mark"), [(">9", "!"), (">9", "^"), ("<4", "?")])
    def test_peer_outside_of_the_group(self, way: str, mark: str) -> None:
        ranks = {0: "a1 a2!", 1: f"a1 a{way}{mark}", 2: "a1 a<1!", 3: "a1 a2!"}
        (problem,) = diagnosis_of_programs(ranks, a=FOUR).problems
        assert (problem.kind, problem.culprits, problem.waiting) == ("peer_mismatch", (1,), (0, 2, 3))
        shown = {">9": "sends to position 9 in send 1->9", "<4": "receives from position 4 in recv 1<-4"}[way]
        assert problem.message == (
            f"Rank 1 {shown} #1 of group a, but this group has only positions 0 to 3; 3 ranks wait."
        )

    def test_peer_outside_of_a_group_without_a_list_of_members(self) -> None:
        """Members are known from dumps: there may be more of them."""
        send = collective("nccl:send 1->2", p2p_seq_id=1, is_p2p=True, state="started", retired=False)
        journal = recorded({0: [collective(completed=CREATED + 1)], 1: [send]}, pg_config={})
        assert [problem.kind for problem in diagnosis_of(journal).problems] == ["in_flight"]


class TestSkipped:
    def test_skipped_by_counterparts(self) -> None:
        ranks = {0: "a>1 a<1 a>1!", 1: "a<0 a>0 c1!", 2: "b>1 b<1 b>1 c1!", 3: "b<0 b>0 b<0 c1!"}
        found = problems(ranks, descriptions=STAGES, a=[0, 1], b=[2, 3], c=FOUR)
        assert found == ["deadlock a3 by 1, for 0 2 3"]

    def test_skipped_batch_is_one_problem(self) -> None:
        step, sibling = "[a>1 a<1]", "[a<0 a>0]"
        ranks = {
            0: f"{step} {step}!",
            1: f"{sibling} c1!",
            2: f"{step} {step} c1!",
            3: f"{sibling} {sibling} c1!",
        }
        ranks |= {rank: ranks[rank].replace("a", "b") for rank in (2, 3)}
        found = problems(ranks, descriptions=STAGES, a=[0, 1], b=[2, 3], c=FOUR)
        assert found == ["deadlock a2 by 1, for 0 2 3"]

    def test_skipped_by_earlier_steps(self) -> None:
        steps = [
            [f"c{step} a>1 a>1 a<1 a<1" for step in range(1, 6)],
            [f"c{step} a<0 a<0 a>0 a>0" for step in range(1, 6)],
        ]
        ranks = {0: " ".join([*steps[0], "c6 a>1 a>1!"]), 1: " ".join([*steps[1], "c6 a<0 a>0!"])}
        assert problems(ranks, a=TWO, c=TWO) == ["deadlock a22 by 1, for 0"]

    def test_deadlock_without_counterparts(self) -> None:
        ranks = {0: "a>1 a>1!", 1: "a<0 c1!"}
        assert problems(ranks, a=TWO, c=TWO) == ["deadlock a2 by 0 1 (tie), for 0 1"]
