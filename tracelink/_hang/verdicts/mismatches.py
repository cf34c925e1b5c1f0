"""Ranks that request different things: other operations, types, sizes or peers, skipped calls and extra ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._hang.facts.deviations import Deviation, Deviations
from tracelink._hang.facts.disagreements import Disagreement, Split
from tracelink._hang.facts.journal import Journal, reread_entries
from tracelink._hang.facts.model import Category, Kind
from tracelink._hang.facts.participation import Outcome, Parts
from tracelink._hang.facts.programs import Aspect, Comparison, similar_groups
from tracelink._hang.facts.waits import Wait, add_device_waits
from tracelink._hang.verdicts.base import Verdict
from tracelink._model.columns import UNKNOWN, Int64s
from tracelink._model.operations import ROOTED, Operation, operation_of
from tracelink._model.records import line_in_words, own_frames
from tracelink._model.text import capitalized, collective_in_words, counted, lowered, operation_in_words
from tracelink._model.trace import ProcessGroup


class OtherProgram(Verdict, frozen=True, kw_only=True):
    """Ranks made too few or too many calls: they disagree with the others in all later calls of the group."""

    number: int = 1
    """How many calls in a row."""

    usual = Category.CODE_PATH
    foldable = True

    def facts(self) -> tuple[Any, ...]:
        """What is around the calls is of one group."""
        return (self.number,)

    @property
    def after(self) -> str:
        """` and the 2 calls after it`."""
        calls = "call" if self.number == 2 else f"{self.number - 1} calls"
        return f" and the {calls} after it" if self.number > 1 else ""


class Skipped(OtherProgram, frozen=True, kw_only=True):
    """Ranks skipped calls and continued with later ones."""

    kind: Kind = Kind.SKIPPED
    continued: str = ""
    """What they continued with: `all_reduce at train.py:65`."""
    line: str = ""
    """Where the others made the first skipped call, if only that tells it from the one after them."""

    def claim(self) -> str:
        """Rank 3 skipped a call."""
        at = f" at {self.line}" if self.line else ""
        return f"{self.ranks} skipped {self.call}{at}{self.after} and continued with {self.continued}"

    def next_step(self) -> str:
        """The branch that skips it."""
        own, other = self.own_line, self.other_line
        if own and other and own != other:
            return (
                f"The others called it at {other}, and {self.example} continued at {own}: look for the branch that "
                "skipped the call."
            )
        where = f" at {other}" if other else ""
        return f"Look for the branch or the loop in which {self.example} skipped the call{where}."


class ExtraCall(OtherProgram, frozen=True, kw_only=True):
    """Ranks made calls that the others did not make."""

    kind: Kind = Kind.EXTRA_CALL
    other: int
    """A rank that did not make them."""

    def claim(self) -> str:
        """Rank 0 made 3 calls that rank 1 did not make."""
        calls = "a call" if self.number == 1 else f"{self.number} calls"
        return f"{self.ranks} made {calls} that rank {self.other} did not make: {self.call}{self.after}"

    def next_step(self) -> str:
        """The branch that only the culprit takes."""
        where = f" at {self.own_line}" if self.own_line else ""
        return f"Look for the branch or the loop that only {self.example} takes{where}, or make the call on all ranks."


class Request(Struct, frozen=True):
    """What a rank requested."""

    operation: str
    elements_in: int
    elements_out: int
    type_in: str
    type_out: str

    @property
    def elements(self) -> int:
        """Of what is sent, else of what is received."""
        return self.elements_in if self.elements_in != UNKNOWN else self.elements_out

    @property
    def type(self) -> str:
        """Of what is sent, else of what is received."""
        return self.type_in or self.type_out or "no type"

    def in_words(self) -> str:
        """`broadcast of 256 Float`."""
        size = f" of {self.elements:,} {self.type}" if self.elements != UNKNOWN else ""
        return f"{operation_in_words(self.operation)}{size}"


class Mismatch(Verdict, frozen=True, kw_only=True):
    """Ranks requested something else than the others under one number."""

    own: Request | None = None
    others: Request | None = None
    within: str = ""
    """Where in a coalesced call: ` in tensor 4 of 4`."""

    foldable = True

    def both(self) -> tuple[str, str]:
        """What the culprits requested, and the others, as far as it differs."""
        raise NotImplementedError

    def claim(self) -> str:
        """Rank 1 called something else."""
        own, others = self.both()
        if own == others:
            often = "equally often" if self.tie else "as often as the others"
            claim = f"{self.ranks} did not call {self.call} {often} under this sequence number"
        elif self.tie:
            differing = f"{own} or {others}{self.within}. It is unknown which rank is wrong"
            claim = f"{self.ranks} do not agree in {self.call}: {differing}"
        else:
            claim = f"{self.ranks} called {self.difference(own, others)}"
        return f"{claim}{self.shown_by}"

    def difference(self, own: str, others: str) -> str:
        """`all_reduce #5 of group 0 with Int, the others with Float`."""
        return f"{self.call} with {own}{self.within}, the others with {others}"

    def step_to_other_line(self) -> str:
        """The condition that takes culprits to another line than the others; empty if no other line is known."""
        own, other = self.own_line, self.other_line
        if not own or not other or own == other:
            return ""
        return (
            f"{capitalized(self.example)} called from {own}, the others from {other}: look for the condition that "
            "takes them to different lines."
        )

    @property
    def shown_by(self) -> str:
        """` (3 collectives show it)`."""
        return f" ({self.count} collectives show it)" if self.count > 1 else ""


class OtherOperation(Mismatch, frozen=True, kw_only=True):
    """Ranks called another operation than the others."""

    kind: Kind = Kind.OPERATION_MISMATCH

    usual = Category.CODE_PATH

    def both(self) -> tuple[str, str]:
        """The requests; the recorded operations if they are alike."""
        assert self.own
        assert self.others
        own, others = self.own.in_words(), self.others.in_words()
        return (self.own.operation, self.others.operation) if own == others else (own, others)

    def difference(self, own: str, others: str) -> str:
        """`broadcast of 8 Float instead of all_reduce #5 of group 0`."""
        return f"{own} instead of {self.call}, the others called {others}"

    def next_step(self) -> str:
        """The condition that takes them there."""
        other = f"Look for the condition that takes {self.example} to another call than the others."
        return self.step_to_other_line() or other


class OtherTensor(Mismatch, frozen=True, kw_only=True):
    """Ranks passed tensors of another type or size than the others."""

    usual = Category.WRONG_ARGUMENTS

    def found_category(self) -> Category:
        """Calls of different lines are of ranks that took different ways."""
        return Category.CODE_PATH if self.step_to_other_line() else super().found_category()

    def both(self) -> tuple[str, str]:
        """Types or sizes."""
        assert self.own
        assert self.others
        own, others = self.own, self.others
        if self.kind is Kind.DTYPE_MISMATCH:
            if own.type != others.type:
                return own.type, others.type
            return f"output of {own.type_out or 'no type'}", others.type_out or "no type"
        if own.elements != others.elements:
            return counted(own.elements, "element"), f"{others.elements:,}"
        if own.elements_out != others.elements_out:
            return f"{counted(own.elements_out, 'element')} of output", f"{others.elements_out:,}"
        return f"another tensor shape (also {counted(own.elements, 'element')})", "one shape"

    def next_step(self) -> str:
        """The tensor, and the usual causes; or the lines of the calls, if these differ."""
        if step := self.step_to_other_line():
            return step
        causes = (
            "autocast, a cast, or a checkpoint or default of another dtype"
            if self.kind is Kind.DTYPE_MISMATCH
            else "an uneven last batch (drop_last), uneven shards, or a setting that differs"
        )
        at = f" at {self.own_line}" if self.own_line else ""
        look = (
            f"It is unknown which rank is wrong: compare the tensors{at} on all of them."
            if self.tie
            else f"Check the tensor that {self.example} passes{at}."
        )
        return f"{look} Usual causes: {causes}."


class OtherSplit(OtherTensor, frozen=True, kw_only=True):
    """Ranks of an all-to-all send another size than the receivers expect."""

    kind: Kind = Kind.SIZE_MISMATCH
    split: Split

    def claim(self) -> str:
        """The first pair of ranks, or the sums."""
        split, sent = self.split, counted(self.split.sent, "element")
        if split.sender == UNKNOWN:
            sizes = f"all ranks together send {sent} and expect {split.expected:,}"
        else:
            sizes = (
                f"rank {split.sender} sends {sent} to rank {split.receiver}, which expects {split.expected:,}"
            )
        wrong = (
            "it is unknown which rank is wrong" if self.tie else f"{lowered(self.ranks)} has the wrong sizes"
        )
        return f"Sizes do not match in {self.call}: {sizes}; {wrong}{self.shown_by}"


class OtherPeer(Mismatch, frozen=True, kw_only=True):
    """Ranks named another root, source or target than the others."""

    kind: Kind = Kind.PEER_MISMATCH
    roots: tuple[int, int] | None = None
    """The root that they named, and that of the others."""

    usual = Category.WRONG_ARGUMENTS

    def both(self) -> tuple[str, str]:
        """The roots."""
        own, others = self.roots or (UNKNOWN, UNKNOWN)
        return f"root {own}", f"root {others}"

    def next_step(self) -> str:
        """The calls to compare."""
        if operation_of(self.operation) in ROOTED:
            return (
                f"Compare the root (src, dst) of the calls{self.lines}: all ranks must name the same one, by its rank "
                "in the job and not in the group."
            )
        return (
            f"Compare source, destination and order of the calls{self.lines}: each send needs a receive between the "
            "same two ranks, in the same order."
        )


KIND_OF_ASPECT = {
    Aspect.OPERATION: Kind.OPERATION_MISMATCH,
    Aspect.DTYPE: Kind.DTYPE_MISMATCH,
    Aspect.SIZE: Kind.SIZE_MISMATCH,
    Aspect.ROOT: Kind.PEER_MISMATCH,
}


# Deviations as verdicts.


def deviation_verdict(
    journal: Journal, deviations: Sequence[Deviation], waiting: Collection[int], **facts: Any
) -> OtherProgram:
    """The verdict that ranks have skipped the same calls of a group, or made the same extra ones."""
    deviations = sorted(deviations, key=lambda deviation: deviation.rank)
    first, ranks = deviations[0], [deviation.rank for deviation in deviations]
    number = int(journal.records.group[first.first])
    own = [
        each for each in similar_groups(journal.groups, number) if first.rank in journal.groups[each].ranks
    ]
    group = journal.groups[number if number in own or not own else own[0]]
    kind: type[OtherProgram] = ExtraCall
    if first.skipped:
        kind, facts = Skipped, _around(journal, first, group) | facts
    else:
        facts = {"other": first.other} | facts
    rows = {first.other: first.usual, **{each.rank: each.row for each in deviations}}
    return kind.of_call(
        group,
        int(journal.records.sequence[first.first]),
        journal.operation(first.first),
        culprits=ranks,
        waiting=set(waiting).difference(ranks),
        **{"number": first.skipped or first.extra, "rows": rows, **facts},
    )


def _around(journal: Journal, deviation: Deviation, group: ProcessGroup) -> dict[str, str]:
    """What the rank continued with; and the lines of both calls, if only these tell them apart."""
    rows = (deviation.usual, deviation.row)
    continued = journal.groups[journal.records.group[deviation.row]]
    skipped, after = (
        collective_in_words(journal.operation(row), int(journal.records.sequence[row]), own)
        for row, own in zip(rows, (group, continued), strict=True)
    )
    entries, _ = reread_entries(journal, np.array(rows)) if skipped == after else ({}, [])
    frames = [own_frames(entries[row].frames) for row in rows if row in entries]
    lines = [line_in_words(own[0]) for own in frames if own]
    return (
        {"continued": f"{after} at {lines[1]}", "line": lines[0]} if len(lines) > 1 else {"continued": after}
    )


# Disagreements as verdicts.


def mismatches_of(
    journal: Journal,
    parts: Parts,
    disagreements: Sequence[Disagreement],
    comparisons: Sequence[Comparison],
    waits: Sequence[Wait],
    deviations: Deviations,
) -> list[Verdict]:
    """A verdict for each group and set of culprits, however many collectives show it.

    A rank that skipped a call, or made an extra one, disagrees with all later ones of the group: that is one problem.
    """
    found = _first_ones(disagreements)
    disputed = [(rank, each.group) for each in found for rank in parts.rank[_parts_of(parts, each)].tolist()]
    deviating = (
        deviations.behind(add_device_waits(journal, waits, lambda _: True), disputed) if disputed else []
    )
    verdicts: list[Verdict] = []
    shown: dict[tuple[int, int, int], list[tuple[Deviation, Disagreement]]] = {}
    for each in found:
        before = _before(journal, parts, each, deviating)
        before = before or _before(journal, parts, each, deviations.in_group(each.group))
        for deviation in before:
            alike = deviation.usual, deviation.skipped, deviation.extra
            shown.setdefault(alike, []).append((deviation, each))
        if not before:
            verdicts.append(_mismatch(journal, parts, comparisons, _decided(parts, deviations, each), waits))
    return [*(_shift(journal, parts, each, waits) for each in shown.values()), *verdicts]


def _first_ones(disagreements: Sequence[Disagreement]) -> list[Disagreement]:
    """The first disagreement of each group and set of culprits, with the number of all."""
    alike: dict[tuple[int, tuple[int, ...]], list[Disagreement]] = {}
    for each in sorted(disagreements, key=lambda each: each.sequence):
        alike.setdefault((each.group, each.culprits), []).append(each)
    return [replace(first, count=1 + len(others)) for first, *others in alike.values()]


def _before(
    journal: Journal, parts: Parts, disagreement: Disagreement, deviations: Sequence[Deviation]
) -> list[Deviation]:
    """The deviations in calls of the group that the ranks made before they disagreed; a root is an argument."""
    if disagreement.aspect is Aspect.ROOT:
        return []
    rows = _parts_of(parts, disagreement)
    last = dict(zip(parts.rank[rows].tolist(), parts.row[rows].tolist(), strict=True))
    groups = similar_groups(journal.groups, disagreement.group)
    return [
        each
        for each in deviations
        if each.agreeing
        and each.row <= last.get(each.rank, UNKNOWN)
        and int(journal.records.group[each.first]) in groups
    ]


def _shift(
    journal: Journal,
    parts: Parts,
    shown: Sequence[tuple[Deviation, Disagreement]],
    waits: Sequence[Wait],
) -> OtherProgram:
    """The verdict on skipped or extra calls, and all disagreements that show them."""
    by_rank = {deviation.rank: deviation for deviation, _ in shown}
    groups = {disagreement.group for _, disagreement in shown}
    waiting = {rank for _, disagreement in shown for rank in _waiting(parts, disagreement, waits)}
    for wait in waits:
        if wait.group in groups and not wait.message and not by_rank.keys().isdisjoint(wait.awaited):
            waiting.update(wait.rows)
    count = sum(disagreement.count for _, disagreement in shown)
    return deviation_verdict(journal, list(by_rank.values()), waiting, count=count)


def _decided(parts: Parts, deviations: Deviations, disagreement: Disagreement) -> Disagreement:
    """Without a majority in the group, programs of ranks elsewhere and earlier steps decide which ranks are wrong."""
    rows = _parts_of(parts, disagreement)
    undecided = disagreement.tie and not disagreement.detail
    wrong = np.isin(parts.row[rows], deviations.wrong_among(parts.row[rows]) if undecided else [])
    if not wrong.any():
        return disagreement
    culprits = tuple(parts.rank[rows[wrong]].tolist())
    typical, deviating = int(rows[~wrong][0]), int(rows[wrong][0])
    return replace(disagreement, culprits=culprits, tie=False, typical=typical, deviating=deviating)


def _mismatch(
    journal: Journal,
    parts: Parts,
    comparisons: Sequence[Comparison],
    first: Disagreement,
    waits: Sequence[Wait],
) -> Mismatch:
    typical, deviating, within = _shown_entries(journal, parts, comparisons, first)
    facts: dict[str, Any] = {"own": _request(journal, deviating), "others": _request(journal, typical)}
    match first.detail:
        case Split():
            verdict: type[Mismatch] = OtherSplit
            facts = {"split": first.detail}
        case tuple():
            verdict, facts = OtherPeer, {"roots": first.detail}
        case _ if first.aspect is Aspect.OPERATION:
            verdict = OtherOperation
        case _:
            verdict, facts["kind"] = OtherTensor, KIND_OF_ASPECT[first.aspect]
    return verdict.of_call(
        journal.groups[first.group],
        first.sequence,
        journal.operation(typical),
        culprits=first.culprits,
        waiting=_waiting(parts, first, waits),
        tie=first.tie,
        count=first.count,
        within=within,
        rows={int(parts.rank[first.deviating]): deviating, int(parts.rank[first.typical]): typical},
        **facts,
    )


def _request(journal: Journal, row: int) -> Request:
    number, requests = int(journal.records.request[row]), journal.requests
    given, received = (
        journal.strings[code] if code != UNKNOWN else ""
        for code in (int(requests.type_in[number]), int(requests.type_out[number]))
    )
    elements = int(requests.elements_in[number]), int(requests.elements_out[number])
    return Request(journal.operation(row), *elements, given, received)


def _shown_entries(
    journal: Journal, parts: Parts, comparisons: Sequence[Comparison], disagreement: Disagreement
) -> tuple[int, int, str]:
    """The entries that show the difference, of a typical and of a deviating part, and where in a coalesced call."""
    both = disagreement.typical, disagreement.deviating
    first_composition = len(journal.requests)
    requests = [int(parts.request[part]) for part in both]
    rows, deviating_rows = (entries_of(journal, parts, part) for part in both)
    if disagreement.detail or min(requests) < first_composition or len(rows) != len(deviating_rows):
        return int(rows[0]), int(deviating_rows[0]), ""
    values = [comparison.value for comparison in comparisons if comparison.aspect is disagreement.aspect]
    members = zip(*(parts.compositions[request - first_composition] for request in requests), strict=True)
    differ = [any(value[own] != value[other] for value in values) for own, other in members]
    number = differ.index(True) if True in differ else 0
    tensors = sum(operation_of(journal.operation(row)) != Operation.COALESCED for row in rows.tolist())
    return int(rows[number]), int(deviating_rows[number]), f" in tensor {number + 1} of {tensors}"


def entries_of(journal: Journal, parts: Parts, part: int) -> Int64s:
    """All entries of a part; entries of other groups may be between them."""
    rows = np.arange(parts.row[part], parts.last[part] + 1)
    records = journal.records
    own: Int64s = rows[
        (records.group[rows] == parts.group[part])
        & (records.sequence[rows] == parts.sequence[part])
        & ~records.point_to_point[rows]
    ]
    return own


def _parts_of(parts: Parts, disagreement: Disagreement) -> Int64s:
    """The parts of all ranks in the collective."""
    return np.arange(*np.searchsorted(parts.collective, disagreement.collective + np.arange(2)).tolist())


def _waiting(parts: Parts, disagreement: Disagreement, waits: Sequence[Wait]) -> tuple[int, ...]:
    """The other ranks that have not finished it, or only retired it and did nothing in the group since."""
    for wait in waits:
        if (wait.group, wait.sequence, wait.message) == (disagreement.group, disagreement.sequence, False):
            return tuple(rank for rank in wait.ranks if rank not in disagreement.culprits)
    rows = _parts_of(parts, disagreement)
    of_group = slice(*np.searchsorted(parts.group, [disagreement.group, disagreement.group + 1]).tolist())
    last = dict(zip(parts.rank[of_group].tolist(), parts.sequence[of_group].tolist(), strict=True))
    retired = rows[parts.outcome[rows] == Outcome.RETIRED]
    ranks = [rank for rank in parts.rank[retired].tolist() if last[rank] == disagreement.sequence]
    return tuple(rank for rank in ranks if rank not in disagreement.culprits)
