"""What a bundle of files shows by itself, and next to dumps: problems, notes, conflicts, and what was used for what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from tracelink._hang.model import Kind, Standing
from tracelink._hang.verdicts.base import Verdict
from tracelink._hang.verdicts.drafts import Draft
from tracelink._hang.verdicts.logs import notes_on_logs, verdicts_of_logs
from tracelink._hang.verdicts.monitor import OfMonitor, StacksAlone, verdicts_of_monitor
from tracelink._hang.witnesses.bundle import Bundle, with_folded_skips
from tracelink._hang.witnesses.communicators import Answers
from tracelink._hang.witnesses.conflicts import log_conflicts, stack_conflicts
from tracelink._hang.witnesses.watchdog import standings_of
from tracelink._model.errors import UnreadableError
from tracelink._model.text import counted
from tracelink._model.witnesses import Conflict, Use


def without_dumps(
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
    conflicts = stack_conflicts(bundle.stacks, paths, _missed_calls(logs))
    shown = _shown(Draft(found, draft.rest), bundle, uses, [_basis(bundle)], conflicts)
    return Draft(found, replace(shown.rest, standings=standings))


def next_to_dumps(
    draft: Draft, bundle: Bundle, uses: Sequence[Use], paths: Mapping[int, str], *, hung: bool
) -> Draft:
    """The draft with what these files show; counts of NCCL's monitor alone decide nothing.

    If the dumps decide whether the job hangs, what is wrong by these files is only a note. Ranks without a dump are
    not suspected of what their logs refute.
    """
    standings, decides = draft.rest.standings, draft.is_decided
    logs, monitor = _verdicts(bundle, hung=hung)
    found = [*logs, *(one for one in monitor if one.kind is not Kind.IN_FLIGHT)]
    conflicts, same_run = log_conflicts(standings, paths, bundle.reports)
    stacks = stack_conflicts(bundle.stacks, paths, _missed_calls(draft.verdicts))
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
    findings = [*with_folded_skips(kept), *bundle.findings, *(answers.newest.findings if answers else ())]
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
