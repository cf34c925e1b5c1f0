"""What-if questions: what is changed in the replay of a job, and the answer with the error of the replay."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from msgspec import Struct

from tracelink._model.columns import Bools, Float64s
from tracelink._model.errors import UsageError, did_you_mean
from tracelink._model.text import number, rank_list
from tracelink._time.model.results import WhatIf
from tracelink._time.path.job import JobPieces
from tracelink._time.path.nodes import PieceKind
from tracelink._time.path.replay import Model, on_time, replayed, scaled

LARGEST_ERROR = 0.03
"""A replay that differs more from the unchanged job cannot answer."""

MOST_AROUND = 3
"""Outermost operators that an advice names."""
EXAMPLES = "'communication free', 'kernel NAME 2x', 'operator NAME 1.5x', or 'rank 3 on time'"
_FACTOR = r"(?:(?P<free>free)|(?P<factor>\d{1,6}(?:\.\d{1,6})?)\s*(?:x|times)(?:\s+(?:as\s+)?fast(?:er)?)?)"
_QUESTIONS = (
    re.compile(r"rank\s+(?P<rank>\d{1,9})\s+on\s+time", re.IGNORECASE),
    re.compile(rf"(?P<kind>communication)\s+{_FACTOR}", re.IGNORECASE),
    re.compile(rf"(?P<kind>kernel|operator)\s+(?P<name>.+?)\s+{_FACTOR}", re.IGNORECASE),
)
_KINDS = {
    "communication": (PieceKind.COMMUNICATION,),
    "kernel": (PieceKind.COMPUTE, PieceKind.COPY, PieceKind.COMMUNICATION),
    "operator": (PieceKind.HOST, PieceKind.DATA_LOADING),
}


class Change(Struct, frozen=True):
    """One change to a job."""

    rank: int | None = None
    """The rank that is on time; None if pieces change their duration."""
    kind: str = ""
    """A key of `_KINDS`."""
    name: str = ""
    """A part of the names of the changed pieces; empty for all."""
    factor: float = 1.0
    """By which their durations are multiplied."""


def changes_in(question: str) -> list[Change]:
    """Returns the changes that a question names, separated by commas.

    Raises:
        UsageError: It cannot be understood.
    """
    return [
        _change(part.strip())
        for part in re.split(r",\s*(?=rank\s|communication\s|kernel\s|operator\s)", question)
    ]


def _change(text: str) -> Change:
    for pattern in _QUESTIONS:
        match = pattern.fullmatch(text)
        if match is None:
            continue
        found = match.groupdict()
        if found.get("rank") is not None:
            return Change(rank=int(found["rank"]))
        times = 0.0 if found["free"] else float(found["factor"])
        if not found["free"] and not times:
            break
        return Change(None, found["kind"].lower(), found.get("name") or "", 1 / times if times else 0.0)
    raise _not_understood(text)


def _not_understood(question: object) -> UsageError:
    return UsageError(
        f"what-if question not understood: {question!r}", advice=f"Ask, for example, {EXAMPLES}."
    )


def asked(questions: Sequence[str]) -> list[str]:
    """The questions as a list; one that is given as a text is one question.

    Raises:
        UsageError: One of them cannot be understood.
    """
    several: Iterable[str] = [questions] if isinstance(questions, str) else questions
    if not isinstance(several, Iterable):
        raise _not_understood(several)
    listed = list(several)
    for question in listed:
        if not isinstance(question, str):
            raise _not_understood(question)
        changes_in(question)
    return listed


def not_answered(questions: Sequence[str], why_not: str) -> list[WhatIf]:
    """No answer to any question, for one reason."""
    return [
        WhatIf(
            question=question,
            answered=False,
            why_not=why_not,
            steps=0,
            recorded_ns=0,
            replayed_ns=0,
            error=0.0,
            expected_ns=None,
            saving_ns=None,
            share=None,
            changed=0,
            notes=[],
        )
        for question in questions
    ]


Around = Callable[[str], Sequence[str]]
"""The outermost operators around those of a name, in full or as a part of it; the most frequent first."""


def answered(job: JobPieces, questions: Sequence[str], around: Around) -> list[WhatIf]:
    """Returns an answer to each question.

    Args:
        job: The contracted graph of the job.
        questions: The questions.
        around: Finds outermost operators for the advice on operators that are within others.

    Raises:
        UsageError: A question cannot be understood, or names a rank or kernel that the job does not have.
    """
    parsed = [changes_in(question) for question in questions]
    model = Model.of(job)
    unchanged = replayed(model)
    return [
        _answer(model, unchanged, question, changes, around)
        for question, changes in zip(questions, parsed, strict=True)
    ]


def _answer(model: Model, unchanged: int, question: str, changes: Sequence[Change], around: Around) -> WhatIf:
    recorded = model.recorded_ns()
    error = abs(unchanged - recorded) / recorded if recorded else 1.0
    own: Float64s = model.own.astype(np.float64)
    changed = 0
    for change in changes:
        before = own
        own = _changed(model, own, change, around)
        changed += int(np.count_nonzero(own != before))
    why_not = (
        f"The replay of the unchanged job takes {100 * unchanged / recorded:.1f} % of its time, so the causes of "
        f"{100 * error:.1f} % are not known."
        if error > LARGEST_ERROR
        else ""
    )
    saving = unchanged - replayed(model, own)
    steps = len(model.job.steps)
    return WhatIf(
        question=question,
        answered=not why_not,
        why_not=why_not,
        steps=steps,
        recorded_ns=recorded,
        replayed_ns=unchanged,
        error=round(error, 6),
        expected_ns=None if why_not else recorded - saving,
        saving_ns=None if why_not else saving,
        share=None if why_not or not recorded else round(saving / recorded, 6),
        changed=changed,
        notes=list(_notes(model, changes)),
    )


def _changed(model: Model, own: Float64s, change: Change, around: Around) -> Float64s:
    job = model.job
    if change.rank is not None:
        if change.rank not in job.ranks:
            raise UsageError(
                f"there is no rank {change.rank} with a profile",
                advice=f"There are ranks {rank_list(job.ranks)}.",
            )
        return on_time(model, own, change.rank)
    return scaled(own, _pieces(job, change, around), change.factor)


def _pieces(job: JobPieces, change: Change, around: Around) -> Bools:
    """The pieces of a kind, and of a name if one is given: in full, else as a part of it."""
    chosen: Bools = np.isin(job.pieces.kind, _KINDS[change.kind])
    if change.name:
        wanted = change.name.lower()
        used = np.unique(job.pieces.name[chosen])
        names = {code: job.names[code].lower() for code in used.tolist() if code >= 0}
        codes = [code for code, name in names.items() if name == wanted]
        codes = codes or [code for code, name in names.items() if wanted in name]
        if not codes:
            raise _nothing_of(change, sorted({job.names[code] for code in names}), around)
        chosen &= np.isin(job.pieces.name, codes)
    elif not chosen.any():
        raise UsageError(f"the job has no {change.kind} with times")
    return chosen


def _nothing_of(change: Change, known: Sequence[str], around: Around) -> UsageError:
    """Why no piece has the name that a question names."""
    if change.kind == "operator" and (outer := around(change.name)):
        most = ", ".join(repr(f"operator {name} 2x") for name in outer[:MOST_AROUND])
        return UsageError(
            f"operator {change.name!r} runs only within other operators, and what-if changes the outermost ones",
            advice=f"Ask about what it is in, such as {most}.",
        )
    advice = did_you_mean(change.name, known) or f"tracelink summary -v lists the {change.kind}s."
    return UsageError(f"there is no {change.kind} {change.name!r}", advice=advice)


def _notes(model: Model, changes: Sequence[Change]) -> Iterator[str]:
    if any(change.kind == "communication" for change in changes):
        yield "Ranks still wait for each other: only transfers take less time."
    if any(change.kind == "operator" for change in changes):
        yield "Operators within other operators take as long as before: only outermost ones change."
    if any(change.rank is not None for change in changes):
        yield "The rank works faster before each collective at which it came last: it comes with the one before it."
    if model.anchored:
        yield f"{number(model.anchored)} pieces without a known cause start as recorded, whatever changes."
