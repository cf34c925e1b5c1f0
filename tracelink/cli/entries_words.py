"""Entries in a few letters: what they ask for, and how far they got."""

from __future__ import annotations

from collections.abc import Sequence

from tracelink.analysis.wording import operation_in_words
from tracelink.communications import UNKNOWN
from tracelink.diagnosis import Entry
from tracelink.journal import Journal
from tracelink.records import State

MISSING = "missing"
LOST = "?"

DONE, STARTED, QUEUED, RETIRED, THERE = "done", "started", "queued", "retired", "there"

MEANINGS = {
    QUEUED: "asked for, not started",
    STARTED: "started, not completed",
    DONE: "completed",
    RETIRED: "off the list of work: completed or given up, its backend does not say which",
    THERE: "recorded, without saying how far it got",
    MISSING: "takes part by its group, and has no entry",
    LOST: "may have taken part: its dump no longer tells",
}
"""What stands in a cell."""

UNEVEN = "uneven"
"""Stands for sizes where each rank may have its own."""

MOST_TENSORS = 2
LONGEST = 40
"""Letters of what is asked for."""


def state_in_words(journal: Journal, entry: int, closing: int) -> str:
    """How far an entry got; where it was issued with others, what closes them says it."""
    row = entry if closing == UNKNOWN else closing
    state, retired = int(journal.records.state[row]), int(journal.records.retired[row])
    if state == State.COMPLETED:
        return DONE
    if retired == 1:
        return RETIRED
    return {State.STARTED: STARTED, State.SCHEDULED: QUEUED}.get(State(state), THERE)


def operation_of_entry(journal: Journal, row: int) -> str:
    """The operation without its backend and without the ranks of a message."""
    return operation_in_words(journal.operation(row)).partition(" ")[0]


def tensors_in_words(entry: Entry | None, *, message: bool) -> str:
    """`Float 64x16`, `Float 64x16 -> 128x16`; of a message only what is sent, the same on both sides."""
    if entry is None:
        return ""
    given, got = (_sizes(sizes) for sizes in (entry.input_sizes, entry.output_sizes))
    sizes = f"{given} -> {got}" if given and got and got != given and not message else given or got
    words = f"{types_in_words(entry)} {sizes}".strip()
    return words if len(words) <= LONGEST else f"{words[: LONGEST - 1]}…"


def types_in_words(entry: Entry | None) -> str:
    """`Float`, `BFloat16/Float`."""
    return "/".join(dict.fromkeys([*entry.input_types, *entry.output_types])) if entry else ""


def _sizes(tensors: Sequence[Sequence[int]]) -> str:
    shown = ", ".join("x".join(map(str, sizes)) or "scalar" for sizes in tensors[:MOST_TENSORS])
    rest = len(tensors) - MOST_TENSORS
    return f"{shown} + {rest} more" if rest > 0 else shown


def ordinal(place: int) -> str:
    """`1st` of place 0."""
    number = place + 1
    teen = number % 100 in (11, 12, 13)
    return f"{number}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"
