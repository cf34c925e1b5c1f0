"""What a bundle of files shows by itself, and next to dumps: problems, notes, conflicts, and what was used for what."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from tracelink._hang.facts.bundle import Bundle, Stacks, fold_skips, is_in_call
from tracelink._hang.facts.model import Kind, Stage, Standing
from tracelink._hang.facts.watchdog import standings_of
from tracelink._hang.verdicts.base import Verdict
from tracelink._hang.verdicts.drafts import Draft
from tracelink._hang.verdicts.logs import notes_on_logs, verdicts_of_logs
from tracelink._hang.verdicts.monitor import Answers, OfMonitor, StacksAlone, verdicts_of_monitor
from tracelink._model.errors import UnreadableError
from tracelink._model.text import counted, group_in_words, name_in_words, ranks_in_words
from tracelink._model.witnesses import Conflict, RankReport, Sign, Use


def diagnose_without_dumps(
    draft: Draft, bundle: Bundle, uses: Sequence[Use], error: UnreadableError, *, hung: bool
) -> Draft:
    """What these files show by themselves; raises an error that names what was searched if it is nothing."""
    logs, monitor = _verdicts(bundle, hung=hung)
    # logs show that a collective timed out: what is only in flight adds nothing to that
    found = [*logs, *(one for one in monitor if not logs or one.kind is not Kind.IN_FLIGHT)]
    if not found and bundle.stacks.folded:
        found = [StacksAlone.of(bundle.stacks, hung=hung)]
    if not found:
        raise _nothing(bundle, error)
    paths = {one.rank: one.source for one in bundle.reports if one.rank is not None}
    standings = standings_of(bundle.reports)
    conflicts = find_stack_conflicts(bundle.stacks, paths, _missed_calls(logs))
    shown = _shown(Draft(found, draft.rest), bundle, uses, [_basis(bundle)], conflicts)
    return Draft(found, replace(shown.rest, standings=standings))


def add_other_files(
    draft: Draft, bundle: Bundle, uses: Sequence[Use], paths: Mapping[int, str], *, hung: bool
) -> Draft:
    """The draft with what these files show; counts of NCCL's monitor alone decide nothing.

    If the dumps decide whether the job hangs, what is wrong by these files is only a note. Ranks without a dump are
    not suspected of what their logs refute.
    """
    standings, decides = draft.rest.standings, draft.is_decided
    logs, monitor = _verdicts(bundle, hung=hung)
    found = [*logs, *(one for one in monitor if one.kind is not Kind.IN_FLIGHT)]
    conflicts, same_run = find_log_conflicts(standings, paths, bundle.reports)
    stacks = find_stack_conflicts(bundle.stacks, paths, _missed_calls(draft.verdicts))
    notes = [f"Watchdog lines: {one.sentence()}" for one in logs if decides]
    notes += [f"NCCL RAS: {one.sentence()}" for one in monitor if decides or one not in found]
    of_same_run = standings_of(bundle.reports) if same_run else ()
    places = {(one.group, rank): one for one in of_same_run for rank in one.ranks}
    verdicts = [_by_logs(verdict, found, places) for verdict in draft.verdicts]
    shown = Draft(verdicts if decides else [*found, *verdicts], draft.rest)
    return _shown(shown, bundle, uses, notes, [*conflicts, *stacks])


def _shown(
    draft: Draft, bundle: Bundle, uses: Sequence[Use], notes: Sequence[str], conflicts: Sequence[Conflict]
) -> Draft:
    """The draft with notes, findings and witnesses of these files."""
    answers = Answers(bundle.statuses) if bundle.statuses else None
    of_logs = notes_on_logs(bundle.reports, bundle.ranks_with_logs)
    of_monitor = [answers.note] if answers and answers.note else []
    kept = [finding for finding in draft.rest.findings if finding.source not in bundle.recognised]
    findings = [*fold_skips(kept), *bundle.findings, *(answers.newest.findings if answers else ())]
    rest = replace(
        draft.rest,
        notes=[*draft.rest.notes, *notes, *of_logs, *of_monitor],
        findings=findings,
        witnesses=bundle.witnesses(conflicts, uses),
    )
    return Draft(draft.verdicts, rest)


def _verdicts(bundle: Bundle, *, hung: bool) -> tuple[list[Verdict], list[OfMonitor]]:
    """What logs show, and what NCCL's monitor shows."""
    logs = verdicts_of_logs(bundle.reports, bundle.ranks_with_logs)
    return logs, verdicts_of_monitor(Answers(bundle.statuses), hung=hung) if bundle.statuses else []


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


def _missed_calls(verdicts: Sequence[Verdict]) -> dict[int, str]:
    """By culprit the collective that it did not join."""
    return {
        rank: verdict.call
        for verdict in verdicts
        if verdict.kind in (Kind.NEVER_JOINED, Kind.LAGGING, Kind.IN_FLIGHT) and verdict.proven
        if verdict.sequence is not None
        for rank in verdict.culprits
    }


SHOWN_SOURCES = 4


def find_stack_conflicts(
    stacks: Stacks, paths: Mapping[int, str], missing: Mapping[int, str]
) -> list[Conflict]:
    """Where ranks that did not make a call are in one.

    Args:
        stacks: Stacks of ranks.
        paths: The file from which it is known how far a rank is, by rank.
        missing: By culprit the call that it did not make, as the diagnosis says.
    """
    found = []
    for stack in stacks.folded:
        ranks = tuple(rank for rank in stack.ranks if rank in missing)
        frame = next(filter(is_in_call, stack.frames), None)
        if not ranks or frame is None:
            continue
        its = "their stacks are" if len(ranks) > 1 else "its stack is"
        line = f":{frame.line}" if frame.line else ""
        place = f"{name_in_words(frame.name)} ({name_in_words(frame.filename.rpartition('/')[2])}{line})"
        message = (
            f"{ranks_in_words(ranks)} did not join {missing[ranks[0]]}, and {its} in {place}: what was recorded is "
            "older than the stack, or this is another call."
        )
        sources = [path for rank in ranks for path in (paths.get(rank, ""), stacks.by_rank[rank].source)]
        found.append(Conflict(ranks, message, tuple(dict.fromkeys(filter(None, sources)))[:SHOWN_SOURCES]))
    return found


def find_log_conflicts(
    standings: Sequence[Standing], paths: Mapping[int, str], reports: Sequence[RankReport]
) -> tuple[list[Conflict], bool]:
    """Where watchdog lines and dumps differ in how far ranks got; and whether they are surely of the same run."""
    places = {(standing.group, rank): standing for standing in standings for rank in standing.ranks}
    last = {
        (one.group, one.rank): one
        for one in reports
        if one.sign is Sign.STATUS and one.group and one.enqueued is not None and one.rank in paths
    }
    apart: dict[tuple[str, str, int, int], list[RankReport]] = defaultdict(list)
    agree = False
    for (group, rank), one in last.items():
        place = places.get((group, rank or 0))
        if place is None or place.stage is Stage.UNKNOWN:
            continue
        recorded, enqueued = place.sequence or 0, max(one.enqueued or 0, 0)
        if enqueued == recorded:
            agree = True
        # a dump contains a call from its start, a log counts it from its end
        elif enqueued != recorded - 1 or place.stage is not Stage.WAITING:
            apart[group, place.description, recorded, enqueued].append(one)
    conflicts = [_apart(key, own, paths) for key, own in sorted(apart.items(), key=lambda item: item[0])]
    return conflicts, agree and not conflicts


def _apart(
    key: tuple[str, str, int, int], reports: Sequence[RankReport], paths: Mapping[int, str]
) -> Conflict:
    group, description, recorded, enqueued = key
    ranks = tuple(sorted(one.rank or 0 for one in reports))
    older, newer = ("dump", "log") if enqueued > recorded else ("log", "dump")
    dump, log = ("dumps end", "logs say") if len(ranks) > 1 else ("dump ends", "log says")
    message = (
        f"{ranks_in_words(ranks)}: the {dump} at #{recorded} of {group_in_words(group, description)}, the {log} that "
        f"#{enqueued} was enqueued. The {older} is older than the {newer}, or they are of different runs."
    )
    sources = [path for one in reports for path in (paths[one.rank or 0], one.source)]
    return Conflict(ranks, message, tuple(dict.fromkeys(sources))[:SHOWN_SOURCES])
