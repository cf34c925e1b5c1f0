"""What watchdog lines in logs show by themselves: which rank is behind in which group, and what they cannot show.

A rank is a culprit only if its own lines say that it is idle before the collective in which others timed out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct, field

from tracelink.diagnosis.model import Kind, Problem, Stage, Standing
from tracelink.diagnosis.witnesses.model import Testimony
from tracelink.model.columns import MILLISECOND, SECOND
from tracelink.model.operations import Operation, operation_of
from tracelink.model.text import (
    capitalized,
    collective_in_words,
    counted,
    duration,
    group_in_words,
    lowered,
    operation_in_words,
    rank_list,
    ranks_in_words,
)
from tracelink.model.trace import ProcessGroup
from tracelink.model.witnesses import RankReport, Report, Sign

EARLIEST = 60 * SECOND
"""A status this long before the last timeout may be out of date then."""
LATEST = 600 * SECOND
"""A status this long after the last timeout may be of a process that was started again."""
BEHIND = (
    "A collective is counted as enqueued when its call returns: a rank that is behind did not call, or is stuck in the "
    "call. It may also wait in another group, of which its log says nothing. Take its stack: py-spy dump --pid PID. "
    "Flight-recorder dumps show its last calls."
)
NOBODY_BEHIND = (
    "No log shows a rank that is behind. A rank without lines can be behind; or a device or the network does not "
    "finish the collective. Flight-recorder dumps show which, and so do stacks of all ranks (py-spy dump --pid PID)."
)
GLOO = (
    "Lines of gloo name neither group nor collective, and which ranks give up first depends on the algorithm: they do "
    "not show the culprit. Take the stacks of all ranks (py-spy dump --pid PID), or flight-recorder dumps: "
    "torch._C._distributed_c10d._dump_fr_trace(True, True, False)."
)
PROCESS_ENDED = (
    "No rank timed out, so a process ended while others were connected to it. Look for a rank that ended without such "
    "a line, in its log and in that of the kernel (out of memory)."
)
SAME_INPUT = frozenset({Operation.ALL_REDUCE, Operation.ALL_GATHER, Operation.BROADCAST, Operation.REDUCE})
SAME_OUTPUT = frozenset({Operation.ALL_REDUCE, Operation.REDUCE_SCATTER, Operation.BROADCAST})
"""Operations whose inputs, or outputs, have the same size on all ranks."""
MESSAGES = frozenset({Operation.SEND, Operation.RECV, Operation.COALESCED})
"""Operations that are counted apart from collectives."""
GIVEN_UP = frozenset({Sign.GAVE_UP, Sign.LOST, Sign.BARRIER, Sign.PASSED})


class _Group(Struct):
    """What ranks say of one group."""

    name: str
    description: str
    timed_out: dict[int, Report] = field(default_factory=dict)
    """The first collective that each rank gave up."""
    status: dict[int, Report] = field(default_factory=dict)
    """The last status of each rank."""

    @property
    def identity(self) -> ProcessGroup:
        """The group, for sentences."""
        return ProcessGroup(self.name, self.description)


def testimony_of(reports: Sequence[RankReport], ranks: Collection[int]) -> Testimony:
    """The problems that the lines show; `ranks` have a log."""
    groups = _groups(reports)
    blocked = {rank: group.name for group in groups for rank in group.timed_out}
    circle = _circle(groups, blocked)
    problems = [_deadlock(circle)] if circle else []
    problems += [
        problem
        for group in groups
        if group.timed_out and group not in circle
        for problem in _problems_of(group, blocked)
    ]
    problems.sort(key=lambda problem: (not problem.culprits, -len(problem.waiting)))
    problems += _without_group(reports, groups)
    gloo = [one for one in reports if one.sign in GIVEN_UP]
    if gloo:
        problems.append(_gloo(gloo, ranks))
    if not problems and reports:
        problems.append(_only_status(reports))
    notes = [_note_on_heartbeats(reports), _note_on_silent(reports, ranks)]
    return Testimony(problems, _standings(groups), [note for note in notes if note])


def group_names(reports: Sequence[RankReport]) -> dict[int, str]:
    """By `id` of a line the group of a collective that was given up, if a status of the rank names its number."""
    statuses = [one for one in reports if one.sign is Sign.STATUS]
    return {
        id(one): name
        for one in reports
        if one.sign is Sign.TIMED_OUT and (name := one.group or _group_at(one, statuses))
    }


# NCCL: groups, and what each rank says of them.


def _groups(reports: Sequence[RankReport]) -> list[_Group]:
    found: dict[str, _Group] = {}
    names = group_names(reports)
    for one in reports:
        report = one
        if report.sign is Sign.STATUS and report.group and one.rank is not None:
            group = found.setdefault(report.group, _Group(report.group, report.description))
            group.status[one.rank] = report
    for one in reports:
        if one.sign is not Sign.TIMED_OUT or one.rank is None:
            continue
        if name := names.get(id(one)):
            _give_up(found.setdefault(name, _Group(name, "")), one.rank, one)
    return list(found.values())


def _group_at(one: RankReport, statuses: Sequence[RankReport]) -> str:
    """The group of a collective that was given up, from the status that names the same number; empty if unclear."""
    names = {
        other.group
        for other in statuses
        if other.rank == one.rank and other.sequence == one.sequence is not None
    }
    return names.pop() if len(names) == 1 else ""


def _give_up(group: _Group, rank: int, report: Report) -> None:
    known = group.timed_out.get(rank)
    if known is None or (report.sequence or 0) < (known.sequence or 0):
        group.timed_out[rank] = report


def _problems_of(group: _Group, blocked: Mapping[int, str]) -> list[Problem]:
    first = min(report.sequence or 0 for report in group.timed_out.values())
    at_first = {rank: report for rank, report in group.timed_out.items() if report.sequence == first}
    if mismatch := _mismatch(group, first, at_first):
        return [mismatch]
    behind = [rank for rank in sorted(group.status) if _is_behind(rank, group, first)]
    free = [rank for rank in behind if blocked.get(rank, group.name) == group.name]
    operation = Counter(report.operation for report in at_first.values()).most_common(1)[0][0]
    if free and operation_of(operation) not in MESSAGES:
        few = len(free) < len(group.timed_out)
        return [_behind(group, first, operation, free) if few else _either(group, first, operation, free)]
    return [_timed_out(group, first, operation, behind, blocked)]


def _circle(groups: Sequence[_Group], blocked: Mapping[int, str]) -> list[_Group]:
    """Groups in each of which ranks wait for ranks that wait in the next one; the largest first; else nothing."""
    waits: dict[str, set[str]] = {}
    by_name = {group.name: group for group in groups if group.timed_out}
    for name, group in by_name.items():
        behind = _behind_in(group)
        waits[name] = {blocked[rank] for rank in behind if rank in blocked} - {name}
        if any(rank not in blocked for rank in behind):
            waits[name] = set()
    while ended := [name for name, others in waits.items() if not others & set(waits)]:
        for name in ended:
            del waits[name]
    while loose := [name for name in waits if not any(name in others for others in waits.values())]:
        for name in loose:
            del waits[name]
    return sorted(
        (by_name[name] for name in waits), key=lambda group: (-len(group.timed_out), group.description)
    )


def _behind_in(group: _Group) -> list[int]:
    first = min(report.sequence or 0 for report in group.timed_out.values())
    return [rank for rank in sorted(group.status) if _is_behind(rank, group, first)]


def _deadlock(circle: Sequence[_Group]) -> Problem:
    parts = []
    for group in circle:
        first = min(report.sequence or 0 for report in group.timed_out.values())
        operation = next(
            report.operation for report in group.timed_out.values() if (report.sequence or 0) == first
        )
        call = collective_in_words(operation, first, group.identity)
        missing = lowered(ranks_in_words(_behind_in(group)))
        parts.append(
            (first, operation, f"{_timed_out_in_words(group)} in {call}, which {missing} did not enqueue")
        )
    ranks = sorted({rank for group in circle for rank in group.timed_out})
    first, operation, _ = parts[0]
    return Problem(
        Kind.DEADLOCK,
        circle[0].name,
        circle[0].description,
        first,
        operation,
        (),
        tuple(ranks),
        f"Ranks wait for each other in {len(circle)} groups: {'; '.join(part for _, _, part in parts)}.",
        "They call the collectives of these groups in different orders, or one of them left one out: compare their "
        "stacks (py-spy dump --pid PID). Flight-recorder dumps show the calls before.",
        proven=True,
        waited_ns=max(filter(None, (_waited(group.timed_out) for group in circle)), default=None),
    )


def _is_behind(rank: int, group: _Group, first: int) -> bool:
    """True if the rank finished all that it enqueued, before the collective in which others timed out."""
    status = group.status[rank]
    if rank in group.timed_out or status.enqueued is None or status.enqueued != status.completed:
        return False
    times = [report.at_ns for report in group.timed_out.values() if report.at_ns is not None]
    after = None if status.at_ns is None or not times else status.at_ns - max(times)
    current = after is None or -EARLIEST <= after <= LATEST
    return status.enqueued < first and current


def _behind(group: _Group, first: int, operation: str, culprits: Sequence[int]) -> Problem:
    last = max(group.status[rank].enqueued or -1 for rank in culprits)
    queued = max((status.enqueued or first for status in group.status.values()), default=first)
    call = collective_in_words(operation, first, group.identity)
    several = len(culprits) > 1
    if last < 1:
        done = f"{'they' if several else 'it'} enqueued nothing in this group"
    elif several:
        done = f"what they enqueued, up to #{last}, is finished"
    else:
        done = f"its last one is #{last}, which is finished"
    others = capitalized(_timed_out_in_words(group))
    message = f"{ranks_in_words(culprits)} did not enqueue {call}: {done}. {others} in #{first}."
    return Problem(
        Kind.LAGGING if queued > first and last >= 1 else Kind.NEVER_JOINED,
        group.name,
        group.description,
        first,
        operation,
        tuple(culprits),
        tuple(sorted(group.timed_out)),
        message,
        BEHIND,
        proven=True,
        waited_ns=_waited(group.timed_out),
    )


def _either(group: _Group, first: int, operation: str, behind: Sequence[int]) -> Problem:
    """At least as many ranks are behind as wait: those that wait may have made a call too many."""
    call = collective_in_words(operation, first, group.identity)
    one, they = len(group.timed_out) == 1, "they" if len(behind) > 1 else "it"
    waited = duration(_waited(group.timed_out) or 0)
    message = (
        f"{ranks_in_words(sorted(group.timed_out))} timed out after {waited} in {call}, "
        f"which {lowered(ranks_in_words(behind))} did not enqueue: either {they} left it out, "
        f"or {'it is a call' if one else 'these are calls'} too many."
    )
    return Problem(
        Kind.NEVER_JOINED,
        group.name,
        group.description,
        first,
        operation,
        (),
        tuple(sorted(group.timed_out)),
        message,
        BEHIND,
        tie=True,
        proven=False,
        waited_ns=_waited(group.timed_out),
    )


def _timed_out(
    group: _Group, first: int, operation: str, behind: Sequence[int], blocked: Mapping[int, str]
) -> Problem:
    elsewhere = ""
    if behind:
        names = sorted({group_in_words(blocked[rank], "") for rank in behind if rank in blocked})
        elsewhere = f" {ranks_in_words(behind)} did not enqueue it, and timed out in {', '.join(names[:3])}."
    late = [rank for rank, report in group.timed_out.items() if report.sequence != first]
    apart = f" {ranks_in_words(sorted(late))} gave up a later one." if late else ""
    members = {report.member for report in group.status.values() if report.member is not None}
    silent = sorted(set(range(max(members, default=0))) - members)
    numbers = rank_list(silent)
    unreported = (
        f" No log has a line of member{'s' if len(silent) > 1 else ''} {numbers} of this group."
        if silent
        else ""
    )
    message = (
        f"{capitalized(_timed_out_in_words(group))} in {collective_in_words(operation, first, group.identity)}; "
        f"the logs do not show which rank is to blame.{elsewhere}{apart}{unreported}"
    )
    return Problem(
        Kind.TIMED_OUT,
        group.name,
        group.description,
        first,
        operation,
        (),
        tuple(sorted(group.timed_out)),
        message,
        NOBODY_BEHIND,
        proven=False,
        waited_ns=_waited(group.timed_out),
    )


def _timed_out_in_words(group: _Group) -> str:
    """`7 ranks timed out after 10 min`."""
    waited = _waited(group.timed_out)
    after = f" after {duration(waited)}" if waited else ""
    ranks = sorted(group.timed_out)
    who = f"rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks)} ranks"
    return f"{who} timed out{after}"


def _waited(reports: Mapping[int, Report]) -> int | None:
    """How long the first of them ran."""
    longest = max((report.ran_ms or report.timeout_ms or 0 for report in reports.values()), default=0)
    return longest * MILLISECOND or None


def _mismatch(group: _Group, first: int, reports: Mapping[int, Report]) -> Problem | None:
    """The same number in the same group is another operation, or of another size, on different ranks."""
    operations = {rank: operation_of(report.operation) for rank, report in reports.items()}
    if MESSAGES & set(operations.values()):
        return None
    if len(set(operations.values())) > 1:
        return _deviation(Kind.OPERATION_MISMATCH, group, first, reports, operations)
    operation = next(iter(operations.values()))
    for same, column in ((SAME_INPUT, "elements_in"), (SAME_OUTPUT, "elements_out")):
        sizes = {rank: getattr(report, column) for rank, report in reports.items()}
        known = {rank: size for rank, size in sizes.items() if size is not None}
        if operation in same and len(set(known.values())) > 1:
            texts = {rank: f"{size:,} elements" for rank, size in known.items()}
            return _deviation(
                Kind.SIZE_MISMATCH, group, first, {rank: reports[rank] for rank in known}, texts
            )
    return None


def _deviation(
    kind: Kind, group: _Group, first: int, reports: Mapping[int, Report], requested: Mapping[int, str]
) -> Problem:
    """The ranks that request something else than most; empty without a majority."""
    counts = Counter(requested.values()).most_common()
    most, votes = counts[0]
    clear = 2 * votes > len(requested)
    culprits = tuple(sorted(rank for rank, text in requested.items() if text != most)) if clear else ()
    operation = next(report.operation for rank, report in reports.items() if requested[rank] == most)
    by_text = defaultdict(list)
    for rank, text in sorted(requested.items()):
        by_text[text].append(rank)
    parts = [f"{ranks_in_words(by_text[text])}: {text}" for text, _ in counts[:4]]
    what = "operations" if kind is Kind.OPERATION_MISMATCH else "sizes"
    return Problem(
        kind,
        group.name,
        group.description,
        first,
        operation,
        culprits,
        tuple(sorted(set(requested) - set(culprits))),
        f"Ranks timed out in different {what} as #{first} of {group_in_words(group.name, group.description)}: "
        f"{'; '.join(parts)}.",
        "A rank took another way through the program, or passed another tensor. Compare the stacks of one rank of each "
        "kind; flight-recorder dumps show the calls before.",
        tie=not clear,
        proven=clear,
        waited_ns=_waited(reports),
    )


def _without_group(reports: Sequence[RankReport], groups: Sequence[_Group]) -> list[Problem]:
    """Collectives that were given up in groups that no line names: they cannot be compared."""
    used = {id(report) for group in groups for report in group.timed_out.values()}
    named = {(rank, report.sequence) for group in groups for rank, report in group.timed_out.items()}
    left = [
        one
        for one in reports
        if one.sign is Sign.TIMED_OUT
        and id(one) not in used
        and (one.rank, one.sequence) not in named
        and not (one.rank is not None and any(one.rank in group.timed_out for group in groups))
    ]
    if not left:
        return []
    ranks = sorted({one.rank for one in left if one.rank is not None})
    calls = Counter(
        f"{operation_in_words(one.operation)} #{one.sequence}"
        if one.sequence is not None
        else operation_in_words(one.operation)
        for one in left
    )
    named_calls = ", ".join(f"{call} ({count})" for call, count in calls.most_common(4))
    who = ranks_in_words(ranks) if ranks else counted(len(left), "rank")
    first = left[0]
    return [
        Problem(
            Kind.TIMED_OUT,
            "",
            "",
            first.sequence if len(calls) == 1 else None,
            first.operation if len(calls) == 1 else "",
            (),
            tuple(ranks),
            f"{who} timed out in collectives of groups that the lines do not name: {named_calls}. "
            "The logs do not show which rank is to blame.",
            NOBODY_BEHIND,
            proven=False,
            waited_ns=_waited(dict(enumerate(left))),
        )
    ]


def _only_status(reports: Sequence[RankReport]) -> Problem:
    """Another rank signalled a timeout, or the watchdog of this one is stuck; no line says in which collective."""
    ranks = tuple(sorted({one.rank for one in reports if one.rank is not None}))
    who = ranks_in_words(ranks) if ranks else "Ranks"
    return Problem(
        Kind.TIMED_OUT,
        "",
        "",
        None,
        "",
        (),
        ranks,
        f"{who} reported a timeout elsewhere, or a stuck watchdog; no log says which collective timed out.",
        f"Add the logs of the other ranks. {NOBODY_BEHIND}",
        proven=False,
    )


def _standings(groups: Sequence[_Group]) -> list[Standing]:
    """How far each rank is in each group, as its log says."""
    places: dict[tuple[str, str, int | None, str, Stage], list[int]] = defaultdict(list)
    for group in groups:
        for rank in sorted({*group.timed_out, *group.status}):
            places[group.name, group.description, *_place(group, rank)].append(rank)
    return [
        Standing(name, description, sequence, operation, stage, tuple(ranks))
        for (name, description, sequence, operation, stage), ranks in sorted(
            places.items(), key=lambda item: (item[0][0], item[0][2] or -1)
        )
    ]


def _place(group: _Group, rank: int) -> tuple[int | None, str, Stage]:
    if given_up := group.timed_out.get(rank):
        return given_up.sequence, given_up.operation, Stage.WAITING
    status = group.status[rank]
    enqueued, completed = status.enqueued or 0, status.completed or 0
    if enqueued < 1:
        return None, "", Stage.NEVER_JOINED
    return (
        (enqueued, "", Stage.FINISHED)
        if enqueued == completed
        else (max(completed, 0) + 1, "", Stage.WAITING)
    )


# gloo.


def _gloo(reports: Sequence[RankReport], ranks: Collection[int]) -> Problem:
    barriers = [one for one in reports if one.sign is Sign.BARRIER]
    if barriers:
        return _barrier(barriers, reports, ranks)
    signs: dict[Sign, set[int]] = defaultdict(set)
    for one in reports:
        if one.rank is not None:
            signs[one.sign].add(one.rank)
    gave_up, lost = sorted(signs[Sign.GAVE_UP]), sorted(signs[Sign.LOST] - signs[Sign.GAVE_UP])
    timeouts = [one.timeout_ms for one in reports if one.timeout_ms is not None]
    parts = []
    if gave_up or timeouts:
        who = ranks_in_words(gave_up) if gave_up else "A rank of unknown number"
        parts.append(
            f"{who} gave up a gloo operation after {duration(max(timeouts, default=0) * MILLISECOND)}"
        )
    if lost or not parts:
        who = ranks_in_words(lost) if lost else "Ranks of unknown number"
        parts.append(f"{who if not parts else lowered(who)} lost a connection of gloo")
    silent = sorted(set(ranks) - set(gave_up) - set(lost))
    without = f" {ranks_in_words(silent)}: no such line." if silent else ""
    return Problem(
        Kind.TIMED_OUT if timeouts else Kind.FAILED,
        "",
        "",
        None,
        "",
        (),
        tuple(sorted({*gave_up, *lost})),
        f"{'; '.join(parts)}. The logs do not show which rank is to blame.{without}",
        GLOO if timeouts else f"{PROCESS_ENDED} {GLOO}",
        proven=False,
        waited_ns=max(timeouts, default=0) * MILLISECOND or None,
    )


def _barrier(
    barriers: Sequence[RankReport], reports: Sequence[RankReport], ranks: Collection[int]
) -> Problem:
    failed = sorted({member for one in barriers for member in one.members})
    timeout = max(one.timeout_ms or 0 for one in barriers)
    passed = {(one.member, one.rank) for one in reports if one.sign is Sign.PASSED and one.rank is not None}
    by_rank_0 = {(0, one.rank) for one in barriers if one.rank is not None}
    culprits = _ranks_of_members(failed, passed | by_rank_0, ranks)
    waiting = {rank for _, rank in passed | by_rank_0 if rank is not None} - set(culprits)
    who = ranks_in_words(culprits or failed)
    of = "" if culprits else " (numbers within their group)"
    return Problem(
        Kind.NEVER_JOINED,
        "",
        "",
        None,
        "gloo:monitored_barrier",
        tuple(culprits),
        tuple(sorted(waiting)),
        f"{who}{of} did not pass a monitored barrier within {duration(timeout * MILLISECOND)}, as rank 0 of "
        "the group says.",
        "Its other lines are consequences. Take the stack of that rank: py-spy dump --pid PID.",
        tie=not culprits,
        proven=bool(culprits),
        waited_ns=timeout * MILLISECOND,
    )


def _ranks_of_members(
    members: Sequence[int], known: Collection[tuple[int | None, int | None]], ranks: Collection[int]
) -> list[int]:
    """The ranks in the job of members of a group; empty unless lines show that both numbers are the same.

    Members are sorted by rank: if member 7 is rank 7, so are all before it. The last one may be any later rank.
    """
    if not known or any(member != rank for member, rank in known):
        return []
    proven = max(rank for _, rank in known if rank is not None)
    last = max(ranks, default=-1)
    return list(members) if all(member < proven or member == last for member in members) else []


# Notes.


def _note_on_heartbeats(reports: Sequence[RankReport]) -> str:
    ranks = sorted({one.rank for one in reports if one.sign is Sign.HEARTBEAT and one.rank is not None})
    if not ranks:
        return ""
    return (
        f"The watchdog of {lowered(ranks_in_words(ranks))} got stuck itself: a call of CUDA or NCCL hangs there, "
        "or another thread holds the GIL in one."
    )


def _note_on_silent(reports: Sequence[RankReport], ranks: Collection[int]) -> str:
    silent = sorted(set(ranks) - {one.rank for one in reports if one.rank is not None})
    if not silent or not reports:
        return ""
    has = "has" if len(silent) == 1 else "have"
    return f"{ranks_in_words(silent)} {has} a log without any watchdog line. That alone proves nothing."
