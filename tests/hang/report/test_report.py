"""The document of a diagnosis in a terminal."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from builders.programs import journal_of_programs
from tracelink._hang.facts.model import (
    Category,
    Checked,
    Diagnosis,
    Evidence,
    Kind,
    Lateness,
    Link,
    Problem,
    RanksOfDumps,
    Role,
    Stage,
    Standing,
)
from tracelink._hang.report import MOST_PROBLEMS, report_of, verdict_of
from tracelink._hang.report.diagnosis import BRIEF, BRIEF_ROWS, MOST_IN_FULL, MOST_NOTES
from tracelink._model.findings import Finding, Severity
from tracelink._model.records import Entry, Frame
from tracelink._model.witnesses import Stack
from tracelink._show import terminal

SECOND = 1_000_000_000
MANY = 512
OK = Diagnosis(ranks=RanksOfDumps.of(range(MANY)), checked=Checked(MANY, 1_024_000, 300, 93_000, 12))
HANG = Problem(
    Kind.NEVER_JOINED, "0", "", 9, "nccl:all_reduce", (3,), tuple(range(4, MANY)), "Rank 3 is gone."
)


def standing(group: str, stage: Stage, ranks: Sequence[int], sequence: int | None = 8) -> Standing:
    return Standing(group, "", sequence, "nccl:all_reduce" if sequence else "", stage, tuple(ranks))


def entry(operation: str = "nccl:all_reduce", sequence: int | None = 8, **fields: object) -> Entry:
    known = Entry(
        group="0",
        description="",
        sequence=sequence,
        operation=operation,
        input_sizes=((4,),),
        output_sizes=((4,),),
        input_types=("Float",),
        output_types=("Float",),
        state="started",
        retired=False,
        created_ns=None,
        timeout_ms=None,
        frames=(),
    )
    return replace(known, **fields)  # type: ignore[arg-type]


def shown(problem: Problem, *entries: Entry, rank: int = 3, role: Role = Role.CULPRIT) -> Diagnosis:
    return replace(OK, problems=[replace(problem, evidence=(Evidence(rank, role, entries),))])


def page(diagnosis: Diagnosis, *, verbose: bool = False) -> list[str]:
    return terminal.draw(report_of(diagnosis), verbose=verbose).splitlines()


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_a_healthy_job_is_one_sentence() -> None:
    assert page(OK) == [
        "No problem found: 512 ranks, 300 groups, 93,000 collectives and 12 messages, 1,024,000 entries. "
        "All ranks joined; operations, types and sizes agree."
    ]


def test_a_healthy_job_with_missing_ranks() -> None:
    first, _, second = page(replace(OK, ranks=RanksOfDumps.of(range(MANY), [512, 513])))
    assert first.startswith("No problem found: 512 of 514 ranks, 300 groups, ")
    assert second == "No dump of ranks 512 and 513."


def test_a_healthy_job_of_one_rank_and_one_entry() -> None:
    assert page(replace(OK, ranks=RanksOfDumps.of([0]), checked=Checked(1, 1, 1, 1))) == [
        "No problem found: 1 rank, 1 group, 1 collective, 1 entry. All ranks joined; operations, types and sizes agree."
    ]


def test_one_dump_of_several_ranks_is_not_compared() -> None:
    first, *_ = page(replace(OK, ranks=RanksOfDumps.of([0], [1, 2]), checked=Checked(1, 5, 1, 5)))
    assert first == (
        "No problem found: 1 of 3 ranks, 1 group, 5 collectives, 5 entries. "
        "There is no dump of another rank to compare with."
    )


def test_without_entries_there_is_no_verdict() -> None:
    first, *_ = page(replace(OK, ranks=RanksOfDumps.of([0], [1]), checked=Checked(1, 0, 1, 0)))
    assert first == "No verdict: the recordings of 1 of 2 ranks contain no entries."


@pytest.mark.parametrize(
    ("stage", "sequence", "cells"),
    [
        (Stage.NEVER_JOINED, None, ["-", "-", "never joined"]),
        (Stage.FINISHED, 8, ["all_reduce", "8", "finished"]),
        (Stage.ENDING, 8, ["all_reduce", "8", "ending"]),
        (Stage.UNKNOWN, 8, ["all_reduce", "8", "unknown"]),
        (Stage.UNKNOWN, None, ["-", "-", "unknown"]),
    ],
)
def test_how_far_ranks_got(stage: Stage, sequence: int | None, cells: list[str]) -> None:
    standings = [standing("0", stage, [3], sequence), standing("0", Stage.WAITING, [0, *range(4, MANY)], 9)]
    lines = page(replace(OK, problems=[HANG], standings=standings))
    assert list(map(cells_of, lines[2:])) == [
        ["group", "ranks", "last collective", "#", "state"],
        ["0", "3", *cells],
        ["0", "0, 4-511", "all_reduce", "9", "waiting"],
    ]


def test_groups_of_problems_come_first_and_uniform_groups_are_counted() -> None:
    ring = (Link("10", 1, "", (0,), (1,)), Link("9", 1, "", (1,), (0,)))
    different = [
        [standing(name, Stage.FINISHED, [0]), standing(name, Stage.WAITING, [1], 9)]
        for name in ("2", "10", "9")
    ]
    equal = [standing("7", Stage.FINISHED, [0, 1]), standing("8", Stage.UNKNOWN, [2], None)]
    standings = [*(standing for pair in different for standing in pair), *equal]
    deadlock = replace(HANG, kind=Kind.DEADLOCK, group="10", cycle=ring)
    lines = page(replace(OK, problems=[deadlock], standings=standings), verbose=True)
    rows = lines[lines.index("group  ranks  last collective  #  state") + 1 :]
    assert [line.split()[0] for line in rows[:6:2]] == ["10", "9", "2"]
    assert rows[6] == "2 other groups: all ranks are at the same collective."


def test_many_groups_are_shortened_without_verbose() -> None:
    names = [str(name) for name in range(20)]
    standings = [
        row
        for name in names
        for row in (standing(name, Stage.FINISHED, [0]), standing(name, Stage.WAITING, [1], 9))
    ]
    diagnosis = replace(OK, problems=[HANG], standings=standings)
    lines = page(diagnosis)
    assert len(lines) == 3 + BRIEF_ROWS + 1
    assert lines[-1] == f"{40 - BRIEF_ROWS} more rows with ranks at different collectives (-v shows them)."
    assert [line.split()[0] for line in page(diagnosis, verbose=True) if line.endswith("finished")] == names


def test_separate_groups_of_one_name_that_are_equally_far_do_not_differ() -> None:
    standings = [standing("1", Stage.NEVER_JOINED, [rank], None) for rank in range(2)]
    assert page(replace(OK, problems=[HANG], standings=standings))[2:] == [
        "1 group: all ranks are at the same collective."
    ]


def test_a_group_without_collectives_is_counted() -> None:
    nowhere = standing("0", Stage.NEVER_JOINED, [0, 1], None)
    diagnosis = replace(OK, problems=[HANG], standings=[nowhere])
    assert page(diagnosis)[2:] == ["1 group: all ranks are at the same collective."]
    assert cells_of(page(diagnosis, verbose=True)[-1]) == ["0", "0-1", "never joined"]


def test_many_problems_are_numbered_and_the_first_is_explained() -> None:
    problems = [replace(HANG, message=f"Problem {number}.", advice="Look.") for number in range(1, 13)]
    lines = page(replace(OK, problems=problems))
    first = [f"{number}. Problem {number}." for number in range(1, BRIEF + 1)]
    assert lines == [
        *first,
        f"{12 - BRIEF} more problems (-v shows them).",
        "",
        "Next: Look.",
    ]
    explained = page(replace(OK, problems=problems), verbose=True)[12:]
    assert [line for line in explained if ". Problem" in line] == [
        f"{number}. Problem {number}." for number in range(2, MOST_IN_FULL + 1)
    ]
    assert verdict_of(replace(OK, problems=problems).limited(MOST_PROBLEMS)) == [
        *(f"{number}. Problem {number}." for number in range(1, MOST_PROBLEMS + 1)),
        "2 more problems (--limit 0 shows them).",
    ]


# Why a problem is believed, in short and in full.


FRAMES = tuple(Frame(f"f{depth}", "train.py", depth + 1) for depth in range(6))
OF_PYTHON = Frame("run", "/usr/lib/python3.11/runpy.py", 88), Frame("<module>", "<string>", 1)


def why(problem: Problem, *evidence: Evidence) -> list[list[str]]:
    """The rows of a problem, with their heading."""
    lines = page(replace(OK, problems=[replace(problem, evidence=evidence)]))
    return [cells_of(line) for line in lines[2:]]


@pytest.mark.parametrize(
    ("rank", "role", "fields", "cells"),
    [
        (3, Role.CULPRIT, {}, ["3", "all_reduce #8", "0", "started"]),
        (
            3,
            Role.CULPRIT,
            {"frames": (*FRAMES, *OF_PYTHON), "state": "completed"},
            ["3", "all_reduce #8", "0", "done", "f0 (train.py:1) < f1 (train.py:2) < f2 (train.py:3)"],
        ),
        (3, Role.CULPRIT, {"state": "scheduled"}, ["3", "all_reduce #8", "0", "queued"]),
        (4, Role.WAITING, {}, ["4 (of 508 waiting)", "all_reduce #8", "0", "waits"]),
        (4, Role.CULPRIT, {}, ["4", "all_reduce #8", "0", "waits"]),
        (4, Role.WAITING, {"state": "completed"}, ["4", "all_reduce #8", "0", "done"]),
        (0, Role.WAITING, {}, ["0", "all_reduce #8", "0", "started"]),
    ],
)
def test_the_last_call_of_a_rank_and_whether_it_waits_there(
    rank: int, role: Role, fields: dict[str, object], cells: list[str]
) -> None:
    heading, row = why(HANG, Evidence(rank, role, (entry(sequence=7), entry(**fields))))
    assert (heading[:4], row) == (["rank", "call", "group", "state"], cells)


def test_tensors_are_shown_if_arguments_are_wrong() -> None:
    wrong = replace(HANG, category=Category.WRONG_ARGUMENTS)
    assert why(wrong, Evidence(3, Role.CULPRIT, (entry(),)))[1][3] == "Float 4"


def test_two_culprits_and_another_rank_are_shown() -> None:
    evidence = [Evidence(rank, Role.CULPRIT if rank < 3 else Role.WAITING, (entry(),)) for rank in range(5)]
    assert [row[0] for row in why(HANG, *evidence)] == ["rank", "0", "1", "3"]


def calls(diagnosis: Diagnosis) -> list[str]:
    """The table of calls of a verbose page, and what follows it."""
    lines = page(diagnosis, verbose=True)
    return lines[lines.index("Last calls:") + 1 :]


def test_columns_without_values_are_left_out() -> None:
    bare = entry(input_sizes=(), output_sizes=(), input_types=(), output_types=(), state="")
    assert calls(shown(HANG, bare)) == ["rank  call           group", "3     all_reduce #8  0"]


@pytest.mark.parametrize(
    ("fields", "cells"),
    [
        ({}, ["Float 4", "started"]),
        ({"state": "scheduled", "retired": True}, ["Float 4", "retired"]),
        ({"state": "completed", "retired": True}, ["Float 4", "done"]),
        ({"output_sizes": ((2, 4),)}, ["Float 4 -> 2x4", "started"]),
        ({"output_types": ("Half",)}, ["Float/Half 4", "started"]),
        ({"input_sizes": ((1,), (2,), (3,)), "output_sizes": ()}, ["Float 1, 2 + 1 more", "started"]),
        ({"input_sizes": ()}, ["Float 4", "started"]),
        ({"timeout_ms": 600_000}, ["Float 4", "started", "600 s"]),
    ],
)
def test_cells_of_an_entry(fields: dict[str, object], cells: list[str]) -> None:
    assert cells_of(calls(shown(HANG, entry(**fields)))[1]) == ["3", "all_reduce #8", "0", *cells]


def test_entries_that_were_issued_together_share_a_line() -> None:
    batch = [
        entry("nccl:send 0->1", 4),
        entry("nccl:recv 0<-1", 4),
        entry("nccl:coalesced", 4, input_sizes=()),
    ]
    gathered = [entry("nccl:all_gather", 5), entry("nccl:ALLGATHER_coalesced", 5)]
    lines = calls(shown(HANG, *batch, *gathered, entry(sequence=6)))
    assert [cells_of(line)[1] for line in lines[1:]] == [
        "send 0->1, recv 0<-1 #4",
        "ALLGATHER_coalesced #5",
        "all_reduce #6",
    ]


def test_messages_and_collectives_are_numbered_separately() -> None:
    lines = calls(shown(HANG, entry("nccl:recv 1<-0", 1), entry("nccl:all_reduce", 1)))
    assert [cells_of(line)[1] for line in lines[1:]] == ["recv 1<-0 #1", "all_reduce #1"]


def test_a_large_batch_is_named_by_its_first_entries() -> None:
    sends = [entry(f"nccl:send 0->{peer}", 4) for peer in range(1, 6)]
    lines = calls(shown(HANG, *sends, entry("nccl:coalesced", 4)))
    assert cells_of(lines[1])[1:4] == ["send 0->1, send 0->2 + 3 more #4", "0", "Float 4, 4 + 4 more"]


def test_the_stack_of_a_witness_is_a_row_and_whole_with_verbose() -> None:
    stack = Stack(3, "py-spy", "MainThread", (*FRAMES, *OF_PYTHON), in_compiler=False, source="stack.txt")
    problem = replace(HANG, stacks=(stack,))
    assert why(problem)[1] == ["3", "stack (py-spy)", "f0 (train.py:1) < f1 (train.py:2) < f2 (train.py:3)"]
    lines = page(replace(OK, problems=[problem]), verbose=True)
    whole = lines[lines.index("Stack of rank 3 (py-spy, MainThread):") + 1 :]
    assert [line.split()[1] for line in whole] == [*(f"f{depth}" for depth in range(6)), "run", "<module>"]


def test_stacks_of_calls_are_whole_with_verbose() -> None:
    lines = calls(shown(HANG, entry(frames=(*FRAMES, *OF_PYTHON))))
    stack = lines[lines.index("Stack of the last call of rank 3:") + 1 :]
    assert [line.split()[1] for line in stack] == [*(f"f{depth}" for depth in range(6)), "run", "<module>"]


def test_late_ranks_are_listed_with_verbose() -> None:
    diagnosis = replace(OK, lateness=[Lateness(0, 7, 9, SECOND, 5 * SECOND, "5", 3)])
    assert len(page(diagnosis)) == 1
    assert cells_of(page(diagnosis, verbose=True)[-1]) == ["0", "7", "9", "1,000.000", "5,000.000", "5", "3"]


def test_the_cycle_of_a_deadlock_is_listed_with_verbose() -> None:
    cycle = (Link("0", 5, "nccl:all_reduce", (0, 1), (2,)), Link("1", 4, "nccl:broadcast", (2,), (0,)))
    lines = page(replace(OK, problems=[replace(HANG, cycle=cycle)]), verbose=True)
    assert list(map(cells_of, lines[lines.index("Cycle of waits:") + 1 :])) == [
        ["ranks", "are in", "#", "group", "wait for ranks"],
        ["0-1", "all_reduce", "5", "0", "2"],
        ["2", "broadcast", "4", "1", "0"],
    ]


@pytest.mark.parametrize(("missing", "lines"), [([3], []), ([3, 5], ["", "No dump of ranks 3 and 5."])])
def test_missing_dumps_are_named_unless_the_problem_does(missing: list[int], lines: list[str]) -> None:
    shown_lines = page(replace(OK, problems=[HANG], ranks=RanksOfDumps.of((), missing)))
    assert shown_lines[1:] == ["", "rank  state", "3     no dump", *lines]


def test_a_culprit_whose_dump_has_no_call() -> None:
    journal = journal_of_programs({0: "a1!", 3: ""}, a=[0, 3])
    lines = terminal.draw(report_of(replace(OK, problems=[HANG]), journal)).splitlines()
    assert lines[2:] == ["rank  state", "3     no call in its dump"]


def test_many_damaged_dumps_share_a_line() -> None:
    why = {rank: f"d/{rank}: it is broken." for rank in range(8, 16)}
    findings = [Finding(Severity.ERROR, "unreadable", text) for text in why.values()]
    diagnosis = replace(OK, ranks=RanksOfDumps.of([], [], why), findings=findings)
    assert page(diagnosis)[2:] == [
        "The dumps of ranks 8-15 are damaged.",
        "Rank 8: d/8: it is broken.",
        "7 more damaged dumps (-v shows them).",
    ]
    assert [line.split(":")[0] for line in page(diagnosis, verbose=True)[3:]] == [
        f"Rank {rank}" for rank in why
    ]


def test_notes_and_wrapped_buffers() -> None:
    findings = [Finding(Severity.INFO, "wrapped", f"rank {rank}") for rank in range(2)]
    notes = [f"It is {number}." for number in range(9)]
    forgotten = "Note: The ring buffers of 2 ranks have wrapped: the first entries are lost."
    first = [f"Note: It is {number}." for number in range(MOST_NOTES)]
    healthy = replace(OK, notes=notes, findings=findings)
    assert page(healthy)[2:] == [forgotten, *first, f"{9 - MOST_NOTES} more notes (-v shows them)."]
    hang = replace(healthy, problems=[HANG])
    assert page(hang)[2:] == [forgotten, "9 notes (-v shows them)."]
    assert [line for line in page(hang, verbose=True) if "It is" in line] == [
        f"note: {note}" for note in notes
    ]


def test_findings_come_last() -> None:
    finding = Finding(Severity.WARNING, "odd", "something is odd")
    assert page(replace(OK, findings=[finding]))[1:] == ["warning: something is odd"]


def test_text_of_a_dump_cannot_control_the_terminal() -> None:
    frame = Frame("\x1b[2Jf", "a\x07.py", 1)
    output = "\n".join(
        page(shown(replace(HANG, message="x\x1b[0m"), entry("nccl:\x1b]0;x\x07", frames=(frame,))))
    )
    assert not {"\x1b", "\x07"} & set(output)


def test_thousands_of_ranks_and_groups_are_one_screen() -> None:
    ranks = range(4096)
    sentence = "Ranks 0, 2, 4, 6, 8, 10, 12, 14, … are behind in all_reduce #8 of group 0 (default_pg). " * 3
    frames = tuple(Frame("forward" * 5, f"model_{depth}.py", 1000 + depth) for depth in range(50))
    evidence = tuple(Evidence(rank, Role.CULPRIT, (entry(frames=frames),)) for rank in range(3))
    problem = replace(HANG, message=sentence, advice=sentence, culprits=tuple(ranks[::2]), evidence=evidence)
    diagnosis = replace(
        OK,
        problems=[problem] * 500,
        ranks=RanksOfDumps.of(ranks[::3], ranks[1::3], dict.fromkeys(ranks[2::3], "It is damaged. " * 9)),
        standings=[
            standing(f"{number}", stage, own, 8)
            for number in range(2000)
            for stage, own in ((Stage.FINISHED, ranks[::2]), (Stage.WAITING, ranks[1::2]))
        ],
        notes=["Something is worth knowing."] * 500,
        findings=[Finding(Severity.WARNING, "odd", f"{number} is odd") for number in range(500)],
    )
    assert len(terminal.draw(report_of(diagnosis), width=120).splitlines()) <= 40
