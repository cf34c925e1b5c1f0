"""The matrix of entries, and program order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from builders.dumps import journal, recorded
from builders.recorded_jobs import LARGE, plans
from builders.recorder import CREATED, collective, dump, process_group
from generators.recorded_jobs import job
from generators.recorded_plan import Plan
from tracelink._hang.facts.journal import Journal
from tracelink._hang.report.matrix import Matrix, ProgramOrder, find_last_lines, match_entries, matrix_of
from tracelink._model.columns import UNKNOWN

# The matrix.


TP = {"1": [0, 1], "2": [2, 3]}


def whole(made: Journal, last: int | None = None) -> Matrix:
    return matrix_of(made, np.ones(len(made), np.bool_), made.ranks, last)


def rows(made: Journal, last: int | None = None) -> list[str]:
    """`7 all_reduce xx-?.`: number, operation, and for each rank an entry, a hole, what is lost, or no part."""
    matrix = whole(made, last)
    marks = np.where(matrix.member, np.where(matrix.lost, "?", "-"), ".")
    marks = np.where(matrix.entry != UNKNOWN, "x", marks)
    return [
        f"{made.records.sequence[sample]} {made.operation(int(sample)).partition(':')[2]} {''.join(cells)}"
        for sample, cells in zip(matrix.sample, marks, strict=True)
    ]


def entries(*numbers: int, name: str = "nccl:all_reduce", **fields: Any) -> list[dict[str, Any]]:
    """So many microseconds after each other as their numbers are apart."""
    return [collective(name, number, created=CREATED + 1000 * number, **fields) for number in numbers]


def side_by_side(*names: str, overlapping: bool = False) -> Journal:
    """Two groups of the same description, in which the first ranks do the first of these and the others the second."""
    groups = {"1": [0, 1], "2": [1, 2, 3]} if overlapping else TP
    config = {
        name: one
        for group, ranks in groups.items()
        for name, one in process_group(group, ranks, "tp").items()
    }
    done = {
        rank: entries(1, name=names[rank // 2], group=("1" if rank < 2 else "2", "tp")) for rank in range(4)
    }
    return journal({rank: dump(*made, pg_config=config) for rank, made in done.items()})


class TestRows:
    def test_missing_rank(self) -> None:
        made = recorded({0: entries(1, 2, 3), 1: entries(1, 2), 2: entries(1, 2, 3)})
        assert rows(made) == ["1 all_reduce xxx", "2 all_reduce xxx", "3 all_reduce x-x"]

    def test_last_rows(self) -> None:
        made = recorded({0: entries(1, 2, 3), 1: entries(1)})
        assert rows(made, last=2) == ["2 all_reduce x-", "3 all_reduce x-"]
        assert whole(made, last=2).earlier == 2

    def test_mismatch_is_in_the_same_row(self) -> None:
        made = recorded({0: entries(1), 1: entries(1, name="nccl:broadcast")})
        assert rows(made) == ["1 broadcast xx"]

    def test_chosen_ranks_and_entries(self) -> None:
        made = recorded({0: entries(1, 2), 1: entries(1, 2), 2: entries(1, 2)})
        matrix = matrix_of(made, made.records.sequence == 2, made.ranks[[0, 2]], None)
        assert (matrix.ranks.tolist(), matrix.entry.tolist()) == ([0, 2], [[1, 5]])

    def test_repeated_sequence_number(self) -> None:
        made = recorded({0: entries(1, 1, 2), 1: entries(1, 1)})
        assert rows(made) == ["1 all_reduce xx", "1 all_reduce xx", "2 all_reduce x-"]

    def test_entries_without_sequence_number(self) -> None:
        made = recorded({0: entries(1, collective_seq_id=None), 1: entries(1, collective_seq_id=None)})
        assert rows(made) == ["-1 all_reduce x-", "-1 all_reduce -x"]

    def test_no_entries(self) -> None:
        assert rows(recorded({0: [], 1: []})) == []


class TestGroupsSideBySide:
    def test_equal_calls_share_a_row(self) -> None:
        assert rows(side_by_side("nccl:all_reduce", "nccl:all_reduce")) == ["1 all_reduce xxxx"]

    def test_different_calls_do_not(self) -> None:
        made = side_by_side("nccl:all_reduce", "nccl:barrier")
        assert sorted(rows(made)) == ["1 all_reduce xx..", "1 barrier ..xx"]

    def test_groups_with_a_common_rank_do_not(self) -> None:
        made = side_by_side("nccl:all_reduce", "nccl:all_reduce", overlapping=True)
        assert sorted(rows(made)) == ["1 all_reduce .-xx", "1 all_reduce xx.."]

    def test_group_without_entries(self) -> None:
        made = side_by_side("nccl:all_reduce", "nccl:all_reduce")
        only = matrix_of(made, np.isin(made.rank, [0, 2, 3]), made.ranks, None)
        assert only.member.tolist() == [[True] * 4]
        first = matrix_of(made, made.rank < 2, made.ranks, None)
        assert first.member.tolist() == [[True, True, False, False]]


class TestMessages:
    def test_both_ends_share_a_row(self) -> None:
        sent = entries(1, 2, name="nccl:send 0->1", is_p2p=True)
        got = entries(1, 2, name="nccl:recv 1<-0", is_p2p=True)
        made = recorded({0: sent, 1: got, 2: []})
        assert [row.rpartition(" ")[2] for row in rows(made)] == ["xx.", "xx."]

    def test_missing_receive(self) -> None:
        made = recorded({0: entries(1, name="nccl:send 0->1", is_p2p=True), 1: [], 2: []})
        assert [row.rpartition(" ")[2] for row in rows(made)] == ["x-."]

    def test_message_to_itself(self) -> None:
        both = [
            *entries(1, name="nccl:send 0->0", is_p2p=True),
            *entries(2, name="nccl:recv 0<-0", is_p2p=True),
        ]
        assert len(rows(recorded({0: both}))) == 2


class TestCoalesced:
    def test_closing_entry_has_no_row(self) -> None:
        members = entries(1, 1, name="nccl:_all_gather_base")
        closing = entries(1, name="nccl:ALLGATHER_coalesced", input_sizes=[], output_sizes=[])
        made = recorded({0: [*members, *closing], 1: [*members, *closing]})
        assert rows(made) == ["1 _all_gather_base xx"] * 2
        assert whole(made).closing.tolist() == [[2, 5], [2, 5]]

    def test_closing_entry_alone_is_a_row(self) -> None:
        closing = entries(1, name="nccl:coalesced", input_sizes=[], output_sizes=[])
        assert rows(recorded({0: closing, 1: closing, 2: []})) == ["1 coalesced xx."]


class TestLost:
    def test_before_a_wrapped_buffer(self) -> None:
        kept = [entry | {"record_id": place + 2} for place, entry in enumerate(entries(3))]
        late = [entry | {"record_id": place} for place, entry in enumerate(entries(2, 3))]
        made = recorded({0: entries(1, 2, 3), 1: kept, 2: late})
        assert rows(made) == ["1 all_reduce x?-", "2 all_reduce x?x", "3 all_reduce xxx"]

    def test_stream_without_entries(self) -> None:
        """And what they had asked for before the first entry that it kept."""
        config = process_group("0", [0, 1], "default_pg") | process_group("1", [0, 1], "tp")
        told = {"group": ("1", "tp"), "created": CREATED + 9000}
        finished = collective("nccl:barrier", 1, completed=CREATED + 9999, **told)
        waiting = collective("nccl:barrier", 2, **told)
        early = collective("nccl:barrier", 3, group=("1", "tp"), created=CREATED)
        kept = [entry | {"record_id": 2} for entry in entries(3)]
        made = recorded({0: [early, finished, waiting], 1: kept}, pg_config=config)
        assert [row for row in rows(made) if "barrier" in row] == [
            "3 barrier x?",
            "1 barrier x?",
            "2 barrier x-",
        ]

    def test_after_a_truncated_dump(self) -> None:
        made = recorded({0: entries(1, 2, 3), 1: entries(1, 2), 2: entries(1, 2)})
        made.recordings[1] = replace(made.recordings[1], broken_off=True)
        assert rows(made)[-1] == "3 all_reduce x?-"

    def test_not_in_hidden_rows(self) -> None:
        kept = [entry | {"record_id": place + 2} for place, entry in enumerate(entries(1, 3))]
        assert rows(recorded({0: entries(1, 2, 3), 1: kept}), last=2) == [
            "2 all_reduce x-",
            "3 all_reduce xx",
        ]


def in_own_order(matrix: Matrix) -> bool:
    """Whether each rank's entries stand in the order of its program; what one entry closes has no order."""
    unit = np.where(matrix.closing == UNKNOWN, matrix.entry, matrix.closing)
    columns = (unit[there, place] for place, there in enumerate((matrix.entry != UNKNOWN).T))
    return all((np.diff(column) >= 0).all() for column in columns)


@settings(max_examples=20)
@given(plans(buffers=[LARGE]))
def test_any_healthy_job(plan: Plan) -> None:
    made = journal(job(plan).dumps)
    matrix = whole(made)
    shown = np.sort(matrix.entry[matrix.entry != UNKNOWN])
    closing = np.unique(match_entries(made).closing)
    assert sorted([*shown.tolist(), *closing[closing != UNKNOWN].tolist()]) == list(range(len(made)))
    assert in_own_order(matrix)
    assert not (matrix.member & (matrix.entry == UNKNOWN)).any()


@settings(max_examples=20)
@given(plans(buffers=[17, 40]))
def test_any_wrapped_buffers(plan: Plan) -> None:
    matrix = whole(journal(job(plan).dumps))
    holes = matrix.member & (matrix.entry == UNKNOWN)
    assert not (holes & ~matrix.lost).any()


# Program order.


Done = list[list[int]]
"""For each rank the numbers of what it does, one after the other."""


def lines(
    done: Sequence[Sequence[int]],
    times: Sequence[Sequence[int]] | None = None,
    most: int | None = None,
    *,
    units: Sequence[int] | None = None,
    alike: Sequence[int] | None = None,
) -> list[list[int]]:
    """The lines of a table; `alike` is by number."""
    number = np.array([one for own in done for one in own], np.int64)
    programs = ProgramOrder(
        number,
        number if alike is None else np.array(alike, np.int64)[number],
        np.arange(len(number)) if units is None else np.array(units),
        np.zeros(len(number), np.int64) if times is None else np.array([one for own in times for one in own]),
        np.cumsum([0, *map(len, done)]),
    )
    return [sorted(line) for line in find_last_lines(programs, most)]


def ordered(done: Sequence[Sequence[int]], *args: Any, **kwargs: Any) -> list[int]:
    """The same, where each line holds one thing."""
    return [one for (one,) in lines(done, *args, **kwargs)]


@st.composite
def agreeing(draw: st.DrawFn) -> Done:
    """Ranks that each leave out some of one program."""
    whole = draw(st.permutations(range(draw(st.integers(1, 12)))))
    programs = [[one for one in whole if draw(st.booleans())] for _ in range(draw(st.integers(1, 5)))]
    return [*programs, whole]


contradicting = st.lists(st.lists(st.integers(0, 9), unique=True), min_size=1, max_size=5)


def everything(programs: Done) -> list[int]:
    """Everything, without gaps in the numbers."""
    return sorted({one for program in programs for one in program})


def without_gaps(programs: Done) -> Done:
    place = {one: place for place, one in enumerate(everything(programs))}
    return [[place[one] for one in program] for program in programs]


def test_order_with_skipped_calls() -> None:
    assert ordered([[0, 1, 3], [0, 2, 3], [1, 2]]) == [0, 1, 2, 3]


def test_order_by_time() -> None:
    early, late = [[0, 1], [2, 3]], [[10, 40], [20, 30]]
    assert ordered(early, late) == [0, 2, 3, 1]


def test_order_with_a_clock_behind() -> None:
    assert ordered([[0, 1], [1, 2]], [[100, 101], [1, 2]]) == [0, 1, 2]


def test_order_with_a_rank_far_behind() -> None:
    assert ordered([[0, 1, 2, 3], [0]], most=2) == [2, 3]


def test_order_by_majority() -> None:
    assert ordered([[0, 1], [0, 1], [1, 0]]) == [0, 1]


def test_batch_has_no_order() -> None:
    assert ordered([[0, 1, 2], [0, 2, 1]], [[0, 9, 5], [0, 5, 9]], units=[0, 1, 1, 3, 4, 4]) == [0, 2, 1]


class TestSimilar:
    """0 and 1 are alike, and 2 and 3."""

    def test_similar_work_shares_a_line(self) -> None:
        assert lines([[0, 2, 4], [1, 3, 4]], alike=[0, 0, 2, 2, 4]) == [[0, 1], [2, 3], [4]]

    def test_unless_the_order_of_a_rank_breaks(self) -> None:
        assert lines([[0, 2], [3, 1]], alike=[0, 0, 2, 2]) == [[3], [0, 1], [2]]

    def test_with_a_clock_far_behind(self) -> None:
        ahead, behind = [8, 9], [1, 2]
        assert lines([[0, 2], [1, 3]], [ahead, behind], most=1, alike=[0, 0, 2, 2]) == [[2, 3]]


def test_no_entries() -> None:
    assert ordered([[], []]) == []


@given(agreeing())
def test_any_common_program(programs: Done) -> None:
    assert ordered(programs) == programs[-1]


@given(contradicting)
def test_any_program_is_complete(programs: Done) -> None:
    programs = without_gaps(programs)
    assert sorted(ordered(programs)) == everything(programs)


@given(contradicting, st.integers(0, 9))
def test_last_lines_are_the_end_of_all_lines(programs: Done, most: int) -> None:
    programs = without_gaps(programs)
    whole = ordered(programs)
    assert ordered(programs, most=most) == whole[max(0, len(whole) - most) :]


@given(agreeing(), st.randoms(use_true_random=False))
def test_any_order_of_ranks(programs: Done, random: st.randoms) -> None:  # type: ignore[valid-type]
    shuffled = list(programs)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert ordered(shuffled) == ordered(programs)
