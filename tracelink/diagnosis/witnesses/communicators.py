"""What NCCL's monitor (RAS) shows: which rank launched fewer collectives, and which process does not answer.

Counts are taken at one moment: a job that runs has different counts, too. Only two answers show that ranks do not move.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from tracelink.diagnosis.model import Kind, Problem
from tracelink.diagnosis.witnesses.model import Testimony
from tracelink.model.errors import printable
from tracelink.model.text import counted, ranks_in_words
from tracelink.model.witnesses import CommunicatorStatus, MemberStatus, MonitorAnswer

AGAIN = (
    "Query twice, a minute apart, and give both files: ncclras -f json > ras_1.json. Counts that stay the same show "
    "that the job hangs; --hung says that it does. Take the stack of a rank that is behind: py-spy dump --pid PID."
)
GONE = "Look at the end of its log and at the log of the kernel (out of memory, a lost device) on its host."
_Process = tuple[str, int | None]
_Places = Mapping[_Process, int]


class Answers(Struct, frozen=True):
    """The newest answer, and what changed since the one before."""

    newest: MonitorAnswer
    still: bool
    """Whether no rank launched anything in between."""
    note: str


def answers_of(reports: Sequence[MonitorAnswer]) -> Answers | None:
    """The newest of these answers, by time, else by name; None if there are none."""
    if not reports:
        return None
    ordered = sorted(reports, key=lambda report: (report.time, report.source))
    newest = ordered[-1]
    before = next((report for report in ordered[-2::-1] if report.time != newest.time), None)
    still = before is not None and bool(newest.time) and _counts(before) == _counts(newest)
    note = ""
    if before is not None and newest.time:
        moved = "no rank launched a collective" if still else "ranks launched collectives"
        note = f"NCCL RAS: {moved} between {printable(before.time)} and {printable(newest.time)}."
    elif len(ordered) > 1:
        note = f"NCCL RAS: {counted(len(ordered), 'answer')} were read; {newest.source} was used."
    return Answers(newest, still, note)


def testimony_of(answers: Answers | None, *, hung: bool) -> Testimony:
    """The problems that the newest answer shows; without a sign that ranks do not move, they are in flight."""
    if answers is None:
        return Testimony()
    newest, stuck = answers.newest, hung or answers.still
    places = _places(newest)
    ahead = {process for one in newest.communicators for process in _processes_ahead(one)}
    problems = [*_dead(newest, places)]
    for one in newest.communicators:
        problems += _problems_of(one, places, ahead, stuck=stuck)
    if not problems:
        problems.append(_nothing_to_see(newest, stuck=stuck))
    problems.sort(key=lambda problem: (problem.kind is Kind.IN_FLIGHT, not problem.culprits))
    return Testimony(problems, (), [answers.note] if answers.note else [], newest.findings)


def _counts(report: MonitorAnswer) -> dict[tuple[str, int], dict[str, int]]:
    return {
        (one.name, member.rank): dict(member.counts) for one in report.communicators for member in one.members
    }


def _places(report: MonitorAnswer) -> _Places:
    """The rank in the job of each process: its rank in the communicator that has all processes; empty if none has."""
    sized = [one for one in report.communicators if one.size is not None]
    if not sized:
        return {}
    largest = max(sized, key=lambda one: one.size or 0)
    places = {(member.host, member.pid): member.rank for member in largest.members}
    everybody = {(member.host, member.pid) for one in sized for member in one.members}
    complete = len(places) == len(largest.members) == largest.size and everybody <= set(places)
    return places if complete else {}


def _processes_ahead(one: CommunicatorStatus) -> set[_Process]:
    """The processes that launched more of an operation than others: they wait in this communicator."""
    found = set()
    for operation in _operations(one):
        counts = {member.counts[operation] for member in one.members if operation in member.counts}
        found |= {
            (member.host, member.pid)
            for member in one.members
            if len(counts) > 1 and member.counts.get(operation) == max(counts)
        }
    return found


def _problems_of(
    one: CommunicatorStatus, places: _Places, ahead: Collection[_Process], *, stuck: bool
) -> list[Problem]:
    problems = []
    silent = [member for member in one.members if member.state in ("unresponsive", "missing")]
    if silent:
        problems.append(_silent(one, silent, places, stuck=stuck))
    uneven = (_uneven(one, operation, places, ahead, stuck=stuck) for operation in _operations(one))
    problems += [problem for problem in uneven if problem]
    failed = [member for member in one.members if member.state in ("error", "aborted")]
    if failed:
        ranks = _job_ranks(failed, places)
        problems.append(
            _problem(
                Kind.FAILED,
                one,
                "",
                (),
                ranks or (),
                f"{_who(failed, places)} reported an error or aborted in {_name(one)}. The monitor does "
                "not show the cause.",
                "The lines with NCCL WARN in the logs of these ranks name the error.",
            )
        )
    return problems


def _operations(one: CommunicatorStatus) -> list[str]:
    names = dict.fromkeys(name for member in one.members for name in member.counts)
    return list({**names, **dict.fromkeys(part.operation for part in one.launched)})


def _uneven(
    one: CommunicatorStatus, operation: str, places: _Places, ahead: Collection[_Process], *, stuck: bool
) -> Problem | None:
    """Ranks that launched fewer of an operation than the others.

    They are culprits only if most are ahead, all ranks answered, and none of them waits in another communicator.
    """
    listed = {member.rank: member for member in one.members if operation in member.counts}
    groups = Counter(member.counts[operation] for member in listed.values())
    if stated := {part.count: part.ranks for part in one.launched if part.operation == operation}:
        groups = Counter(stated)
    if len(groups) < 2:
        return None
    front = max(groups)
    behind = [member for member in listed.values() if member.counts[operation] < front]
    total = sum(groups.values())
    few = 2 * sum(ranks for count, ranks in groups.items() if count < front) < total
    complete = len(behind) == sum(ranks for count, ranks in groups.items() if count < front)
    answered = all(member.state not in ("unresponsive", "missing", "dead") for member in one.members)
    free = [member for member in behind if (member.host, member.pid) not in ahead]
    culprits = _job_ranks(free, places) if few and complete and answered else None
    waiting = _job_ranks([member for member in listed.values() if member.counts[operation] == front], places)
    counts = ", ".join(
        f"{counted(ranks, 'rank')} launched {count:,}"
        for count, ranks in sorted(groups.items(), reverse=True)[:4]
    )
    named = f" Behind: {_who(behind, places)}." if complete and behind else ""
    end = "They do not move." if stuck else "The counts alone do not show whether the job still runs."
    start = "" if stuck else "Running or hung? "
    return _problem(
        (Kind.NEVER_JOINED if culprits else Kind.TIMED_OUT) if stuck else Kind.IN_FLIGHT,
        one,
        operation,
        culprits or (),
        waiting or (),
        f"{start}{operation} in {_name(one)}: {counts}.{named} {end}",
        AGAIN,
        sequence=front if front <= 1 << 53 else None,
    )


def _silent(
    one: CommunicatorStatus, silent: Sequence[MemberStatus], places: _Places, *, stuck: bool
) -> Problem:
    unresponsive = [member for member in silent if member.state == "unresponsive"]
    ranks = _job_ranks(silent, places) if unresponsive else None
    what = (
        "did not answer NCCL's monitor: its process is stopped, or its host cannot be reached"
        if unresponsive
        else "gave no data on it: it left the communicator, or did not enter it, or its process is stuck"
    )
    return _problem(
        Kind.ABSENT if stuck and unresponsive else Kind.IN_FLIGHT,
        one,
        "",
        ranks or (),
        (),
        f"{_who(silent, places)} of {_name(one)} {what}.",
        AGAIN,
    )


def _dead(report: MonitorAnswer, places: _Places) -> list[Problem]:
    """Processes that the monitor could not reach for a minute."""
    processes = {(member.host, member.pid): member for member in report.dead}
    if not processes:
        return []
    dead = list(processes.values())
    ranks = _job_ranks(dead, places)
    if ranks is None and all(member.rank >= 0 for member in dead):
        who = _who(dead, places)
    elif ranks is None:
        who = counted(len(dead), "process")
    else:
        who = ranks_in_words(ranks)
    where = ", ".join(f"process {member.pid} on {printable(member.host)}" for member in dead[:4]) + (
        ", …" if len(dead) > 4 else ""
    )
    verb = "is" if len(dead) == 1 else "are"
    problem = Problem(
        Kind.ABSENT,
        "",
        "",
        None,
        "",
        tuple(ranks or ()),
        (),
        f"{who} {verb} dead, as NCCL's monitor says ({where}).",
        GONE,
        proven=False,
    )
    return [problem]


def _nothing_to_see(report: MonitorAnswer, *, stuck: bool) -> Problem:
    count = counted(len(report.communicators), "communicator")
    message = (
        f"In all of {count} of NCCL, all ranks launched the same number of collectives: whether they finished them is "
        "not known."
        if report.communicators
        else "NCCL's monitor lists no communicator that differs from the others."
    )
    return Problem(
        Kind.TIMED_OUT if stuck else Kind.IN_FLIGHT,
        "",
        "",
        None,
        "",
        (),
        (),
        message if stuck else f"Running or hung? {message}",
        AGAIN,
        proven=False,
    )


def _problem(
    kind: Kind,
    one: CommunicatorStatus,
    operation: str,
    culprits: Sequence[int],
    waiting: Sequence[int],
    message: str,
    advice: str,
    *,
    sequence: int | None = None,
) -> Problem:
    return Problem(
        kind,
        printable(one.name),
        "",
        sequence if culprits else None,
        f"nccl:{operation}" if operation else "",
        tuple(culprits),
        tuple(waiting),
        message,
        advice,
        proven=False,
    )


def _job_ranks(members: Sequence[MemberStatus], places: _Places) -> list[int] | None:
    """Their ranks in the job; None if one of them is unknown."""
    ranks = [places.get((member.host, member.pid)) for member in members]
    return sorted({rank for rank in ranks if rank is not None}) if None not in ranks else None


def _who(members: Sequence[MemberStatus], places: _Places) -> str:
    ranks = _job_ranks(members, places)
    if ranks is not None:
        return ranks_in_words(ranks)
    words = ranks_in_words(sorted({member.rank for member in members}))
    return f"{words} (within the communicator)"


def _name(one: CommunicatorStatus) -> str:
    size = f" of {counted(one.size, 'rank')}" if one.size is not None else ""
    return f"communicator {printable(one.name)}{size}"
