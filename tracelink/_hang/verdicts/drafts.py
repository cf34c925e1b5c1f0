"""Drafts: a diagnosis whose verdicts are still being completed; settled once, at the end."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tracelink._hang.facts.model import Diagnosis, Kind, Stage, Standing
from tracelink._hang.verdicts.absence import NoDump
from tracelink._hang.verdicts.base import Verdict, facts_of_all
from tracelink._hang.verdicts.hangs import InFlight
from tracelink._match.groups import UNDEFINED
from tracelink._model.findings import Finding
from tracelink._model.text import collective_in_words
from tracelink._model.trace import ProcessGroup


class Draft(Struct, frozen=True):
    """The verdicts of a diagnosis, and all of it that is not a verdict."""

    verdicts: Sequence[Verdict]
    rest: Diagnosis

    @property
    def is_decided(self) -> bool:
        """True if a verdict is known to be wrong: more than calls in flight and missing dumps."""
        return any(verdict.is_decided for verdict in self.verdicts)

    def with_verdicts(self, verdicts: Sequence[Verdict], findings: Collection[Finding] = ()) -> Draft:
        """The same with these verdicts, and further findings."""
        return Draft(verdicts, replace(self.rest, findings=[*self.rest.findings, *findings]))

    def each(self, change: Callable[[Verdict], Verdict]) -> Draft:
        """The same with each verdict changed."""
        return Draft([change(verdict) for verdict in self.verdicts], self.rest)

    def settled(self) -> Diagnosis:
        """The diagnosis, with all texts."""
        return replace(self.rest, problems=[verdict.settled() for verdict in self.verdicts])


# The law that holds without a search for causes.


def apply_law(draft: Draft) -> Draft:
    """The draft, which is not `ok` while a rank waits or a member of a group that others used left no dump.

    Standings show this independently of the search for causes, which may overlook one.
    """
    if draft.verdicts:
        return draft
    missing = set(draft.rest.missing)
    for standing in draft.rest.standings:
        if standing.stage is Stage.WAITING:
            return draft.with_verdicts(
                [_verdict(InFlight, standing, waiting=standing.ranks, inside=standing.ranks, complete=False)]
            )
    for standing in draft.rest.standings:
        absent = missing & set(standing.ranks)
        if absent and standing.sequence is not None:
            group = ProcessGroup(standing.group, standing.description)
            joined = collective_in_words(standing.operation, standing.sequence, group)
            return draft.with_verdicts([_verdict(NoDump, standing, culprits=absent, joined=joined)])
    anywhere = NoDump.of_call(culprits=missing)
    return draft.with_verdicts([anywhere]) if missing else draft


def _verdict(kind: type[Verdict], standing: Standing, **facts: Any) -> Verdict:
    group = ProcessGroup(standing.group, standing.description)
    return kind.of_call(group, standing.sequence, standing.operation, **facts)


# Several problems that are one.


def fold(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """The verdicts, where the same one in similar groups, each with its own culprits, is one."""
    similar: dict[tuple[object, ...], list[Verdict]] = {}
    for number, verdict in enumerate(verdicts):
        alone = not verdict.foldable or not verdict.culprits or verdict.tie
        key = (
            *(verdict.kind, verdict.operation, verdict.sequence, verdict.description, verdict.proven),
            *verdict.facts(),
        )
        similar.setdefault((number,) if alone or verdict.description in ("", UNDEFINED) else key, []).append(
            verdict
        )
    return [one for alike in similar.values() for one in _as_one(alike)]


def _as_one(verdicts: Sequence[Verdict]) -> Sequence[Verdict]:
    """One verdict, if groups and culprits differ."""
    first, count = verdicts[0], len(verdicts)
    culprits = {rank for verdict in verdicts for rank in verdict.culprits}
    groups = {verdict.group for verdict in verdicts}
    if (
        count == 1
        or len(culprits) < sum(len(verdict.culprits) for verdict in verdicts)
        or len(groups) < count
    ):
        return verdicts
    return [
        replace(
            first,
            culprits=tuple(sorted(culprits)),
            waiting=tuple(sorted({rank for verdict in verdicts for rank in verdict.waiting} - culprits)),
            groups=count,
            **facts_of_all(verdicts, culprits),
        )
    ]


def sort_worst_first(verdicts: Sequence[Verdict], rest: Diagnosis) -> list[Verdict]:
    """The most certain first, then by the number of waiting ranks and of collectives that show it."""
    present = set(rest.ranks.present)
    ending = {rank for one in rest.standings if one.stage is Stage.ENDING for rank in one.ranks}
    return sorted(
        verdicts,
        key=lambda verdict: (
            _uncertainty(verdict, present, ending),
            -len(verdict.waiting),
            -verdict.count,
            verdict.group,
            verdict.sequence or 0,
            verdict.culprits,
        ),
    )


def _uncertainty(verdict: Verdict, present: set[int], ending: set[int]) -> int:
    """Decided ones first, then those for which all ranks wait, then missing dumps and late ranks, then the rest.

    A rank in a call that others have finished is about to leave it: its dump is older than theirs.
    """
    if verdict.is_decided:
        return 0
    if verdict.kind is not Kind.IN_FLIGHT:
        return 2
    if set(verdict.culprits) <= ending:
        return 3
    waits_for_all = bool(verdict.culprits) and present <= {*verdict.culprits, *verdict.waiting}
    return 1 if waits_for_all or (verdict.culprits and verdict.proven) else 3
