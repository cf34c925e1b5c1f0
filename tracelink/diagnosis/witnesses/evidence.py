"""What a bundle of files shows by itself, and next to dumps: problems, notes, conflicts, and what was used for what."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from tracelink.diagnosis.model import Kind, Problem, Standing
from tracelink.diagnosis.verdicts.base import Verdict
from tracelink.diagnosis.verdicts.drafts import Draft
from tracelink.diagnosis.verdicts.stated import stated
from tracelink.diagnosis.witnesses.bundle import Bundle
from tracelink.diagnosis.witnesses.communicators import answers_of
from tracelink.diagnosis.witnesses.communicators import testimony_of as testimony_of_monitor
from tracelink.diagnosis.witnesses.conflicts import log_conflicts, stack_conflicts
from tracelink.diagnosis.witnesses.model import Testimony
from tracelink.diagnosis.witnesses.watchdog import group_names
from tracelink.diagnosis.witnesses.watchdog import testimony_of as testimony_of_logs
from tracelink.model.columns import UNKNOWN, StringTable
from tracelink.model.errors import UnreadableError
from tracelink.model.findings import Finding
from tracelink.model.records import Entry, Recording, Records, Requests, State
from tracelink.model.text import collective_in_words, counted, lowered, name_in_words, ranks_in_words
from tracelink.model.trace import NoPayloads, ProcessGroup, SourceInfo
from tracelink.model.witnesses import FoldedStack, RankReport, Report, Sign, Witnesses

MOST_STACKS = 3
"""Stacks that a sentence names."""


class Shown(Struct, frozen=True):
    """What a diagnosis takes from a bundle."""

    problems: Sequence[Problem]
    standings: Sequence[Standing]
    """How far ranks are by their logs; next to dumps only if they are of the same run."""
    notes: Sequence[str]
    findings: Sequence[Finding]
    witnesses: Witnesses


def without_dumps(bundle: Bundle, error: UnreadableError, *, hung: bool) -> Shown:
    """What these files show by themselves; raises an error that names what was searched if it is nothing."""
    logs = testimony_of_logs(bundle.reports, bundle.ranks_with_logs)
    monitor = testimony_of_monitor(answers_of(bundle.statuses), hung=hung)
    problems = _ordered(logs, monitor)
    if not problems and bundle.stacks.folded:
        problems = [_of_stacks(bundle.stacks.folded, hung=hung)]
    if not problems:
        raise _nothing(bundle, error)
    paths = {one.rank: one.source for one in bundle.reports if one.rank is not None}
    conflicts = stack_conflicts(bundle.stacks, logs.standings, paths, missed_calls(logs.problems))
    return Shown(
        problems,
        logs.standings,
        [_basis(bundle), *logs.notes, *monitor.notes],
        [*bundle.findings, *logs.findings, *monitor.findings],
        bundle.witnesses(conflicts),
    )


def next_to_dumps(bundle: Bundle, draft: Draft, paths: Mapping[int, str], *, hung: bool) -> Shown:
    """What these files add to a diagnosis of dumps; counts of NCCL's monitor alone decide nothing.

    If the dumps decide whether the job hangs, what these files problem is only a note.
    """
    standings, decides = draft.rest.standings, draft.is_decided
    logs = testimony_of_logs(bundle.reports, bundle.ranks_with_logs)
    monitor = testimony_of_monitor(answers_of(bundle.statuses), hung=hung)
    decided = [problem for problem in monitor.problems if problem.kind is not Kind.IN_FLIGHT]
    compared = log_conflicts(standings, paths, bundle.reports)
    missed = missed_calls(draft.verdicts)
    conflicts = [*compared.conflicts, *stack_conflicts(bundle.stacks, standings, paths, missed)]
    notes = [
        f"NCCL RAS: {problem.message}" for problem in monitor.problems if decides or problem not in decided
    ]
    if decides:
        notes = [*(f"Watchdog lines: {problem.message}" for problem in logs.problems), *notes]
    return Shown(
        [*logs.problems, *decided],
        logs.standings if compared.same_run else (),
        [*notes, *compared.notes, *logs.notes, *monitor.notes],
        [*bundle.findings, *logs.findings, *monitor.findings],
        bundle.witnesses(conflicts),
    )


def _ordered(logs: Testimony, monitor: Testimony) -> list[Problem]:
    """Logs first: they show that a collective timed out; what is only in flight adds nothing to that."""
    if logs.problems:
        return [
            *logs.problems,
            *(problem for problem in monitor.problems if problem.kind is not Kind.IN_FLIGHT),
        ]
    return list(monitor.problems)


def _basis(bundle: Bundle) -> str:
    """What the diagnosis rests on."""
    parts = []
    if bundle.logs:
        parts.append(f"watchdog lines in {counted(len(bundle.logs), 'log')}")
    if bundle.statuses:
        parts.append(f"{counted(len(bundle.statuses), 'answer')} of NCCL's monitor")
    if not parts:
        parts.append("stacks alone")
    return f"There is no dump: this diagnosis rests on {' and '.join(parts)}. docs/witnesses.md: what they can prove."


def _of_stacks(stacks: Sequence[FoldedStack], *, hung: bool) -> Problem:
    """Where the programs are: nothing shows whether they move."""
    places = []
    for stack in stacks[:MOST_STACKS]:
        who = [ranks_in_words(stack.ranks)] if stack.ranks else []
        who += [name_in_words(process) for process in stack.processes[:MOST_STACKS]]
        frame = stack.frames[0]
        places.append(f"{', '.join(who)} in {name_in_words(frame.name)}")
    rest = len(stacks) - MOST_STACKS
    more = f"; {counted(rest, 'more stack')}" if rest > 0 else ""
    listed = "; ".join([places[0], *map(lowered, places[1:])])
    ranks = tuple(sorted({rank for stack in stacks for rank in stack.ranks}))
    return Problem(
        Kind.TIMED_OUT if hung else Kind.IN_FLIGHT,
        "",
        "",
        None,
        "",
        (),
        ranks if hung else (),
        f"{'' if hung else 'Running or hung? '}{listed}{more}. Stacks alone show neither whether the job "
        "runs, nor who waits for whom.",
        "Take flight-recorder dumps, or the stacks again a minute later: a stack that stays the same is stuck.",
        proven=False,
    )


def _nothing(bundle: Bundle, error: UnreadableError) -> UnreadableError:
    """The error that there are no dumps; with logs, also that they contain nothing of a hang."""
    damaged = [finding.message for finding in bundle.findings if finding.reason == "unreadable"]
    notes = [f"{message.rstrip('.')}." for message in damaged[:1]]
    if bundle.quiet:
        logs = "1 log contains" if len(bundle.quiet) == 1 else f"{len(bundle.quiet)} logs contain"
        notes.append(f"{logs} no watchdog line, which is no sign that the job is healthy.")
    if not notes:
        return error
    advice = " ".join([*notes, error.advice]).strip()
    return UnreadableError(error.problem, source=error.source, position=error.position, advice=advice)


# What it changes in a diagnosis.


def with_others(draft: Draft, shown: Shown) -> Draft:
    """The draft with what other files show.

    Their problems count if dumps show none, or leave open whether the job hangs; and ranks without a dump are not
    suspected of what their logs refute.
    """
    by_logs = [stated(problem) for problem in shown.problems]
    places = {(one.group, rank): one for one in shown.standings for rank in one.ranks}
    verdicts = [_by_logs(verdict, by_logs, places) for verdict in draft.verdicts]
    if not draft.is_decided:
        verdicts = [*sorted(by_logs, key=lambda verdict: verdict.kind is Kind.IN_FLIGHT), *verdicts]
    rest = replace(
        draft.rest,
        standings=draft.rest.standings or shown.standings,
        notes=[*draft.rest.notes, *shown.notes],
        findings=[*draft.rest.findings, *shown.findings],
        witnesses=shown.witnesses,
    )
    return Draft(verdicts, rest)


def _by_logs(
    verdict: Verdict, by_logs: Sequence[Verdict], places: Mapping[tuple[str, int], Standing]
) -> Verdict:
    if verdict.proven or verdict.sequence is None:
        return verdict
    same = [
        one
        for one in by_logs
        if (one.group, one.sequence) == (verdict.group, verdict.sequence)
        and one.culprits
        and set(one.culprits) <= set(verdict.culprits)
    ]
    if same and places:
        return _proven_by_log(verdict, same[0])
    joined = tuple(
        rank
        for rank in verdict.culprits
        if (place := places.get((verdict.group, rank))) and (place.sequence or 0) >= verdict.sequence
    )
    left = tuple(rank for rank in verdict.culprits if rank not in joined)
    return replace(verdict, culprits=left, joined_by_log=joined) if joined else verdict


def _proven_by_log(verdict: Verdict, proven: Verdict) -> Verdict:
    return replace(
        proven,
        waiting=tuple(sorted({*verdict.waiting, *proven.waiting})),
        shown_by_log=True,
        evidence=verdict.evidence,
        rows=verdict.rows,
        stacks=tuple(stack for stack in verdict.stacks if stack.rank in proven.culprits),
    )


def missed_calls(problems: Sequence[Problem]) -> dict[int, str]:
    """By culprit the collective that it did not join."""
    return {
        rank: collective_in_words(
            problem.operation, problem.sequence, ProcessGroup(problem.group, problem.description)
        )
        for problem in problems
        if problem.kind in (Kind.NEVER_JOINED, Kind.LAGGING) and problem.proven
        if problem.sequence is not None
        for rank in problem.culprits
    }


# Watchdog lines in the form of dumps: tables of entries and databases contain them like those of dumps.


def recordings_of(reports: Sequence[RankReport]) -> dict[int, Recording]:
    """By rank the collectives that its lines name: those that it gave up, and the last ones that it finished."""
    by_rank: dict[int, list[RankReport]] = defaultdict(list)
    for one in reports:
        if one.rank is not None and one.sign in (Sign.TIMED_OUT, Sign.STATUS):
            by_rank[one.rank].append(one)
    return {rank: _recording(rank, own) for rank, own in sorted(by_rank.items())}


class _Lines(NoPayloads):
    """Collectives as lines name them."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries

    def entries(self, places: Collection[int]) -> Mapping[int, Entry]:
        """Those at these places."""
        return {place: self._entries[place] for place in places}


def _recording(rank: int, reports: Sequence[RankReport]) -> Recording:
    named = group_names(reports)
    strings = StringTable()
    rows = sorted(
        (_row(one, named.get(id(one), one.group), strings) for one in reports),
        key=lambda row: (row["group"], row["sequence"]),
    )
    rows = [row for row in rows if row["sequence"] > 0]
    requests = list(
        dict.fromkeys((row["operation"], row["elements_in"], row["elements_out"]) for row in rows)
    )
    numbers = {request: number for number, request in enumerate(requests)}
    operation, elements_in, elements_out = zip(*requests, strict=True) if requests else ((), (), ())
    groups = {one.group: one.description for one in reports if one.group}
    source = SourceInfo(path=reports[0].source, format="watchdog-log", rank=rank, records=len(rows))
    return Recording(
        source,
        strings.texts(),
        Records.of(
            len(rows),
            group=[row["group"] for row in rows],
            request=[numbers[row["operation"], row["elements_in"], row["elements_out"]] for row in rows],
            sequence=[row["sequence"] for row in rows],
            number=[UNKNOWN] * len(rows),
            life=[0] * len(rows),
            point_to_point=[False] * len(rows),
            state=[row["state"] for row in rows],
            timeout_ms=[row["timeout_ms"] for row in rows],
            place=list(range(len(rows))),
        ),
        Requests.of(len(requests), operation=operation, elements_in=elements_in, elements_out=elements_out),
        [ProcessGroup(name, description) for name, description in groups.items()],
        overwritten=1,
        payloads=_Lines([_entry(row, groups, strings) for row in rows]),
    )


def _entry(row: Mapping[str, int], groups: Mapping[str, str], strings: StringTable) -> Entry:
    texts = strings.texts()
    group = texts[row["group"]] if row["group"] != UNKNOWN else ""
    elements_in, elements_out = (
        [[row[name]]] if row[name] != UNKNOWN else [] for name in ("elements_in", "elements_out")
    )
    return Entry(
        group,
        groups.get(group, ""),
        row["sequence"],
        texts[row["operation"]],
        elements_in,
        elements_out,
        (),
        (),
        "completed" if row["state"] == State.COMPLETED else "",
        None,
        None,
        row["timeout_ms"] if row["timeout_ms"] != UNKNOWN else None,
        (),
    )


def _row(report: Report, group: str, strings: StringTable) -> dict[str, int]:
    """A collective that was given up, else the last one that was finished; 0 if there is none."""
    given_up = report.sign is Sign.TIMED_OUT
    sequence = report.sequence if given_up else report.completed
    return {
        "group": strings[group] if group else UNKNOWN,
        "operation": strings[report.operation],
        "elements_in": UNKNOWN if report.elements_in is None else report.elements_in,
        "elements_out": UNKNOWN if report.elements_out is None else report.elements_out,
        "sequence": sequence or 0,
        "state": State.UNKNOWN if given_up else State.COMPLETED,
        "timeout_ms": UNKNOWN if report.timeout_ms is None else report.timeout_ms,
    }
