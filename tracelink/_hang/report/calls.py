"""Calls of ranks in rows: what was called, with which tensors, how far it got, and the lines of the program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from tracelink._model.fields import Row, Shown
from tracelink._model.operations import POINT_TO_POINT, Operation, operation_of
from tracelink._model.records import Entry, Frame, line_in_words
from tracelink._model.text import (
    clipped,
    group_label,
    operation_in_words,
    shortened,
    time_of_day,
)
from tracelink._show.document import Frames

DONE, STARTED, QUEUED, RETIRED, WAITS = "done", "started", "queued", "retired", "waits"
STATES = {"completed": DONE, "started": STARTED, "scheduled": QUEUED}
"""What people read for the states that recorders write."""

MOST_FRAMES = 20
"""Frames of a stack that a terminal shows without -v."""
LONGEST_STACK = 40
LONGEST_FRAME = 300
"""Characters of the name of a file or a function in a stack."""
LONGEST_FUNCTION = 60
LONGEST_CHAIN = 60
"""The same where several are in a line, and the lines together: a row of a problem fits on 118 characters."""
MOST_NAMES = 2
"""Operations, and tensors, that are named of calls that were issued as one."""
LONGEST_NAME = 24
LONGEST_TENSORS = 40
"""Characters of the name of an operation, and of the tensors of a call."""
NOT_OF_PROGRAM = ("torch/", "threading.py", "selectors.py")
"""Parts of the names of files that are not of the program."""


class CallRow(Row, frozen=True):
    """A call that a rank made: an entry of the flight recorder, or several that were issued as one."""

    rank: str
    time: Annotated[str, Shown("time (UTC)", drop=1)] = ""
    call: Annotated[str, Shown(longest=120)] = ""
    group: Annotated[str, Shown(longest=48)] = ""
    tensors: Annotated[str, Shown(drop=3)] = ""
    state: str = ""
    timeout: Annotated[str, Shown(drop=2)] = ""
    called_from: Annotated[str, Shown(longest=100)] = ""


def call_row(rank: str, call: Sequence[Entry], state: str = "") -> CallRow:
    """The row of a call of a rank; `state` if it is not what was recorded."""
    first, last = call[0], call[-1]
    retired = last.retired and last.state != "completed"
    return CallRow(
        rank,
        "" if first.created_ns is None else time_of_day(first.created_ns, digits=3),
        _call_name(call),
        group_label(first.group, first.description),
        tensors_in_words(call),
        state or (RETIRED if retired else STATES.get(last.state, "")),
        "" if first.timeout_ms is None else f"{first.timeout_ms / 1000:,.0f} s",
        called_from(last.frames),
    )


def together(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Entries, with those that were issued as one call together."""
    calls: list[list[Entry]] = []
    for entry in entries:
        if not calls or not _issued_together(entry, calls[-1][0]):
            calls.append([])
        calls[-1].append(entry)
    return calls


def _issued_together(entry: Entry, first: Entry) -> bool:
    """Messages and collectives are numbered separately, so equal numbers are not enough."""
    same = entry.sequence is not None and (entry.group, entry.sequence) == (first.group, first.sequence)
    closes = operation_of(entry.operation) == Operation.COALESCED
    return same and (closes or _is_message(entry) == _is_message(first))


def _is_message(entry: Entry) -> bool:
    return operation_of(entry.operation) in POINT_TO_POINT


def _call_name(call: Sequence[Entry]) -> str:
    """`all_reduce #9`; of entries without a name of their own, `send 0->1, recv 0<-1 + 2 more #4`."""
    last = call[-1]
    coalesced = len(call) > 1 and operation_of(last.operation) == Operation.COALESCED
    names = list(dict.fromkeys(operation_in_words(one.operation) for one in call[: -1 if coalesced else 1]))
    if not coalesced:
        names = [operation_in_words(last.operation)]
    rest = f" + {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    sequence = "" if last.sequence is None else f" #{last.sequence}"
    return ", ".join(shortened(name, LONGEST_NAME) for name in names[:MOST_NAMES]) + rest + sequence


def tensors_in_words(call: Sequence[Entry], *, message: bool = False) -> str:
    """`Float 64x16`, `Float 64x16 -> 128x16`; of a message only what is sent, which is equal on both sides."""
    kinds = dict.fromkeys(kind for entry in call for kind in (*entry.input_types, *entry.output_types))
    given = _sizes([sizes for entry in call for sizes in entry.input_sizes])
    got = _sizes([sizes for entry in call for sizes in entry.output_sizes])
    sizes = f"{given} -> {got}" if given and got and got != given and not message else given or got
    return shortened(f"{'/'.join(kinds)} {sizes}".strip(), LONGEST_TENSORS)


def _sizes(tensors: Sequence[Sequence[int]]) -> str:
    shown = ", ".join("x".join(map(str, sizes)) or "scalar" for sizes in tensors[:MOST_NAMES])
    rest = len(tensors) - MOST_NAMES
    return f"{shown} + {rest} more" if rest > 0 else shown


# Stacks.


def called_from(frames: Sequence[Frame]) -> str:
    """The line of a call, and those of the program that led to it: `step (train.py:20) < main (train.py:80)`."""
    chain = ""
    for frame in (*frames[:1], *filter(_is_of_program, frames[1:])):
        line = f"{shortened(frame.name, LONGEST_FUNCTION)} ({line_in_words(frame)})"
        if chain and len(chain) + len(line) > LONGEST_CHAIN:
            break
        chain += f" < {line}" if chain else line
    return chain


def _is_of_program(frame: Frame) -> bool:
    other = any(part in frame.filename for part in NOT_OF_PROGRAM) or _is_of_python(frame)
    return frame.line > 0 and frame.name != "<module>" and not other


def _is_of_python(frame: Frame) -> bool:
    name = frame.filename
    return name.startswith("<") or ("/python3" in name and "-packages" not in name)


def stack_of(frames: Sequence[Frame]) -> Frames:
    """A stack, the innermost frame first; a terminal begins with frames of the program only."""
    shown = [
        (f"{clipped(frame.filename, LONGEST_FRAME)}:{frame.line}", clipped(frame.name, LONGEST_FRAME))
        for frame in frames[:LONGEST_STACK]
    ]
    inner = [index for index, frame in enumerate(frames) if not _is_of_python(frame)]
    return Frames(shown, min(MOST_FRAMES, inner[-1] + 1) if inner else MOST_FRAMES)
