"""What a bundle of files shows by itself, and next to dumps: claims, notes, conflicts, and what was used for what."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from tracelink.diagnosis.witnesses.bundle import Bundle
from tracelink.diagnosis.witnesses.communicators import answers_of
from tracelink.diagnosis.witnesses.communicators import testimony_of as testimony_of_monitor
from tracelink.diagnosis.witnesses.conflicts import log_conflicts, stack_conflicts
from tracelink.diagnosis.witnesses.model import Claim, Position, Testimony
from tracelink.diagnosis.witnesses.watchdog import group_names, missed_calls
from tracelink.diagnosis.witnesses.watchdog import testimony_of as testimony_of_logs
from tracelink.model.columns import UNKNOWN, StringTable
from tracelink.model.errors import UnreadableError
from tracelink.model.findings import Finding
from tracelink.model.records import Entry, Recording, Records, Requests, State
from tracelink.model.text import counted, lowered, name_in_words, ranks_in_words
from tracelink.model.trace import NoPayloads, ProcessGroup, SourceInfo
from tracelink.model.witnesses import FoldedStack, RankReport, Report, Sign, Witnesses

MOST_STACKS = 3
"""Stacks that a sentence names."""


class Shown(Struct, frozen=True):
    """What a diagnosis takes from a bundle."""

    claims: Sequence[Claim]
    positions: Sequence[Position]
    """How far ranks are by their logs; next to dumps only if they are of the same run."""
    notes: Sequence[str]
    findings: Sequence[Finding]
    witnesses: Witnesses


def without_dumps(bundle: Bundle, error: UnreadableError, *, hung: bool) -> Shown:
    """What these files show by themselves; raises an error that names what was searched if it is nothing."""
    logs = testimony_of_logs(bundle.reports, bundle.ranks_with_logs)
    monitor = testimony_of_monitor(answers_of(bundle.statuses), hung=hung)
    claims = _ordered(logs, monitor)
    if not claims and bundle.stacks.folded:
        claims = [_of_stacks(bundle.stacks.folded, hung=hung)]
    if not claims:
        raise _nothing(bundle, error)
    paths = {one.rank: one.source for one in bundle.reports if one.rank is not None}
    conflicts = stack_conflicts(bundle.stacks, logs.positions, paths, missed_calls(logs.claims))
    return Shown(
        claims,
        logs.positions,
        [_basis(bundle), *logs.notes, *monitor.notes],
        [*bundle.findings, *logs.findings, *monitor.findings],
        bundle.witnesses(conflicts),
    )


def next_to_dumps(
    bundle: Bundle,
    positions: Sequence[Position],
    paths: Mapping[int, str],
    missing: Mapping[int, str],
    *,
    hung: bool,
    decides: bool,
) -> Shown:
    """What these files add to a diagnosis of dumps; counts of NCCL's monitor alone decide nothing.

    If the dumps decide whether the job hangs, what these files claim is only a note.
    """
    logs = testimony_of_logs(bundle.reports, bundle.ranks_with_logs)
    monitor = testimony_of_monitor(answers_of(bundle.statuses), hung=hung)
    decided = [claim for claim in monitor.claims if claim.kind != "in_flight"]
    compared = log_conflicts(positions, paths, bundle.reports)
    conflicts = [*compared.conflicts, *stack_conflicts(bundle.stacks, positions, paths, missing)]
    notes = [f"NCCL RAS: {claim.message}" for claim in monitor.claims if decides or claim not in decided]
    if decides:
        notes = [*(f"Watchdog lines: {claim.message}" for claim in logs.claims), *notes]
    return Shown(
        [*logs.claims, *decided],
        logs.positions if compared.same_run else (),
        [*notes, *compared.notes, *logs.notes, *monitor.notes],
        [*bundle.findings, *logs.findings, *monitor.findings],
        bundle.witnesses(conflicts),
    )


def _ordered(logs: Testimony, monitor: Testimony) -> list[Claim]:
    """Logs first: they show that a collective timed out; what is only in flight adds nothing to that."""
    if logs.claims:
        return [*logs.claims, *(claim for claim in monitor.claims if claim.kind != "in_flight")]
    return list(monitor.claims)


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


def _of_stacks(stacks: Sequence[FoldedStack], *, hung: bool) -> Claim:
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
    return Claim(
        "timed_out" if hung else "in_flight",
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
