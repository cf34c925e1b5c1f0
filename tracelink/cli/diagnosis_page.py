"""The verdict for people."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tracelink.cli.terminal import NOTHING, Page, show_findings
from tracelink.diagnosis.explain import line_in_words, readable_name
from tracelink.diagnosis.model import (
    CallSeen,
    Diagnosis,
    Evidence,
    Lateness,
    Problem,
    Role,
    Sighting,
    Stage,
    Standing,
    Stretch,
)
from tracelink.errors import Finding
from tracelink.model.columns import SECOND
from tracelink.model.operations import POINT_TO_POINT, Operation, operation_of
from tracelink.model.records import Entry, Frame
from tracelink.ranges import Numbers
from tracelink.text import (
    counted,
    duration,
    group_in_words,
    lowered,
    number,
    operation_in_words,
    ranks_in_words,
    time_of_day,
)

# Ranks without a whole dump, and what the dumps of the others prove about them.


MOST_PLACES = 4
"""Collectives that are named of those that absent ranks joined."""


def show_absent(page: Page, diagnosis: Diagnosis, *, verbose: bool) -> None:
    """A line for missing dumps, and one for those that cannot be read; one for each if everything is asked for."""
    if diagnosis.missing:
        page.line(
            f"No dump of {lowered(ranks_in_words(diagnosis.missing))}. {_proof(diagnosis, diagnosis.missing)}",
            "yellow",
        )
    damaged = list(diagnosis.unreadable)
    if len(damaged) > 1 and not verbose:
        page.line(
            f"The dumps of {lowered(ranks_in_words(damaged))} are damaged. {_proof(diagnosis, damaged)} "
            f"The first: {diagnosis.unreadable[damaged[0]]}",
            "yellow",
        )
        return
    for rank in damaged:
        why = diagnosis.unreadable[rank]
        page.line(f"The dump of rank {rank} is damaged: {why} {_proof(diagnosis, [rank])}", "yellow")


def _proof(diagnosis: Diagnosis, ranks: Sequence[int]) -> str:
    they, them = ("they", "them") if len(ranks) > 1 else ("it", "it")
    if any(not set(problem.culprits).isdisjoint(ranks) for problem in diagnosis.problems):
        return f"What the other dumps prove about {them} stands above."
    reached = _reached(diagnosis.standings, ranks)
    if not reached:
        return f"The other dumps do not tell how far {they} came."
    return f"The other dumps prove that {they} joined {', '.join(reached)}; not what came after."


def _reached(standings: Sequence[Standing], ranks: Sequence[int]) -> list[str]:
    """The last collectives that they must have joined, for others have left them."""
    found: dict[str, int] = {}
    for standing in standings:
        unknown = standing.stage is Stage.UNKNOWN and not set(standing.ranks).isdisjoint(ranks)
        if unknown and standing.sequence is not None:
            label = group_in_words(standing.group, standing.description)
            found[label] = max(found.get(label, 0), standing.sequence)
    return [f"#{sequence} of {label}" for label, sequence in found.items()][:MOST_PLACES]


# Where each rank stands in each group: what it did last, and whether it finished that.


HEADER_DIAGNOSIS_STANDINGS = ("group", "ranks", "last", "")
MOST_GROUPS = 8
"""Groups that are shown unless everything is asked for: those of the problems first."""
LONGEST_NAME = 24
LONGEST_LIST = 28
"""Letters of a group and of a list of ranks; more is cut."""


def show_standings(page: Page, diagnosis: Diagnosis, *, verbose: bool) -> None:
    """Those groups in which ranks stand at different places, or that a problem names."""
    groups: dict[tuple[str, str], list[Standing]] = {}
    for standing in diagnosis.standings:
        groups.setdefault((standing.group, standing.description), []).append(standing)
    named = _named(diagnosis)
    telling = [
        group
        for group, those in groups.items()
        if _apart(those) or (group[0] in named and any(one.sequence is not None for one in those))
    ]
    chosen = list(groups) if verbose else telling
    chosen.sort(
        key=lambda group: (named.index(group[0]) if group[0] in named else len(named), _natural(*group))
    )
    chosen = chosen if verbose else chosen[:MOST_GROUPS]
    rows = [row for group in chosen for row in _rows_diagnosis_standings(group, groups[group])]
    if rows:
        page.table(HEADER_DIAGNOSIS_STANDINGS, rows)
    if verbose:
        return
    if rest := len(telling) - len(chosen):
        page.line(f"{counted(rest, 'more group')} in which ranks differ; -v lists them", "dim")
    if alike := len(groups) - len(telling):
        others = "other " if rows else ""
        page.line(f"{counted(alike, f'{others}group')}: everybody at the same place", "dim")


def _named(diagnosis: Diagnosis) -> list[str]:
    """The groups that problems name, in their order."""
    names: dict[str, None] = {}
    for problem in diagnosis.problems:
        names.update(dict.fromkeys([problem.group, *(link.group for link in problem.cycle)]))
    return list(names)


def _natural(name: str, description: str) -> tuple[int, str, str]:
    """Sorts 9 before 10."""
    return len(name) if name.isdigit() else LONGEST_NAME, name, description


def _apart(standings: Sequence[Standing]) -> bool:
    """Whether those of whom something is known stand at different places."""
    return sum(standing.stage is not Stage.UNKNOWN for standing in standings) > 1


def _rows_diagnosis_standings(group: tuple[str, str], standings: Sequence[Standing]) -> list[tuple[str, ...]]:
    """The furthest behind first."""
    front = max(one.sequence or 0 for one in standings)
    return [
        (group_cell(*group) if not place else "", ranks_cell(one.ranks), _last(one), _stage(one, front))
        for place, one in enumerate(standings)
    ]


def _last(standing: Standing) -> str:
    if standing.sequence is None:
        return NOTHING
    operation = operation_in_words(standing.operation) if standing.operation else ""
    return f"{operation} #{standing.sequence}".strip()


def _stage(standing: Standing, front: int) -> str:
    match standing.stage:
        case Stage.NEVER_JOINED:
            return "never joined" if front else "in no collective"
        case Stage.WAITING:
            return "joined, not finished"
        case Stage.FINISHED:
            number = standing.sequence or 0
            return f"finished, not in #{number + 1}" if number < front else "finished"
        case Stage.UNKNOWN:
            return "joined it at least" if standing.sequence is not None else "not known"


def group_cell(name: str, description: str) -> str:
    """`0 (default_pg)`."""
    label = f"{name} ({description})" if description not in ("", name) else name
    return label if len(label) <= LONGEST_NAME else f"{label[: LONGEST_NAME - 1]}…"


def ranks_cell(ranks: Sequence[int]) -> str:
    """`0-2, 4-7`; `256: 0, 2, 4, 6, 8, …` where that is long."""
    listed = str(Numbers.of(ranks))
    if len(listed) <= LONGEST_LIST:
        return listed
    head = f"{number(len(ranks))}: "
    return f"{head}{listed[: LONGEST_LIST - len(head)].rpartition(', ')[0]}, …"


# The last calls of those to blame, and where the others wait, with their stacks.


HEADER = ("time (UTC)", "group", "call", "sizes", "type", "state", "called at", "in")
OPTIONAL = ("time (UTC)", "type", "state", "in")
"""What is left out where there is no room, the first of them first."""
AGAIN = 2
"""Calls of each culprit after the first."""
MOST_FRAMES = 4
MOST_NAMES = 2
"""Of calls that were issued as one."""
LONGEST = 24
"""Letters of a cell."""
OF_PYTHON = re.compile(r"/python3(?:\.\d+)?/(?!.*(?:site|dist)-packages)|^<")
"""Files that come with Python: they start a program and tell nothing of it."""


def show_evidence(page: Page, problem: Problem, *, verbose: bool) -> None:
    """The culprits first."""
    for place, one in enumerate(problem.evidence):
        page.gap()
        if one.role is Role.CULPRIT:
            calls = _calls(one.entries)
            _show_culprit(page, one.rank, calls if verbose or not place else calls[-AGAIN:], verbose=verbose)
        else:
            _show_other(page, one, problem, verbose=verbose)


def _calls(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Entries that were issued as one stand together."""
    calls: list[list[Entry]] = []
    for entry in entries:
        if not calls or not _belongs(entry, calls[-1][0]):
            calls.append([])
        calls[-1].append(entry)
    return calls


def _belongs(entry: Entry, first: Entry) -> bool:
    """Whether an entry was issued as one with the one before; messages and collectives have numbers of their own."""
    same = entry.sequence is not None and (entry.group, entry.sequence) == (first.group, first.sequence)
    closes = operation_of(entry.operation) == Operation.COALESCED
    return same and (closes or _is_message(entry) == _is_message(first))


def _is_message(entry: Entry) -> bool:
    return operation_of(entry.operation) in POINT_TO_POINT


def _show_culprit(page: Page, rank: int, calls: Sequence[Sequence[Entry]], *, verbose: bool) -> None:
    page.line(f"What rank {rank} did last:", "bold")
    rows = [_cells(call) for call in calls]
    known = [place for place, name in enumerate(HEADER) if name == "call" or _told(rows, place)]
    page.table(
        [HEADER[place] for place in known],
        [[row[place] for place in known] for row in rows],
        optional=[name for name in OPTIONAL if HEADER.index(name) in known],
    )
    _show_stack(page, calls[-1][-1].frames, verbose=verbose)


def _told(rows: Sequence[Sequence[str]], place: int) -> bool:
    return any(row[place] != NOTHING for row in rows)


def _show_other(page: Page, evidence: Evidence, problem: Problem, *, verbose: bool) -> None:
    entry = evidence.entries[-1]
    waits = evidence.rank in problem.waiting
    more = len(problem.waiting) - 1 if waits else 0
    others = f" (one of {more + 1} that wait)" if more > 0 else ""
    verb = "waits in" if waits else "called"
    where = group_in_words(entry.group, entry.description)
    end = ":" if entry.frames else "."
    page.line(
        f"Rank {evidence.rank}{others} {verb} {_calls_as_one(evidence.entries)} of {where}{end}", "bold"
    )
    _show_stack(page, entry.frames, verbose=verbose)


def _show_stack(page: Page, frames: Sequence[Frame], *, verbose: bool) -> None:
    shown = frames if verbose else _of_program(frames)[:MOST_FRAMES]
    page.beneath([(f"{frame.filename}:{frame.line}", frame.name) for frame in shown])


def _of_program(frames: Sequence[Frame]) -> Sequence[Frame]:
    return [frame for frame in frames if not OF_PYTHON.search(frame.filename)] or frames


def _cells(call: Sequence[Entry]) -> list[str]:
    first, last = call[0], call[-1]
    frame = last.frames[0] if last.frames else None
    return [
        NOTHING if first.created_ns is None else time_of_day(first.created_ns, digits=3),
        group_cell(first.group, first.description) or NOTHING,
        _calls_as_one(call),
        _sizes(call),
        _types(first),
        _state(last),
        line_in_words(frame) if frame else NOTHING,
        frame.name if frame else NOTHING,
    ]


def _calls_as_one(call: Sequence[Entry]) -> str:
    """The name of what closes them; where that says nothing, the names of the first of them."""
    last = call[-1]
    if len(call) < 2 or operation_of(last.operation) != Operation.COALESCED:
        return _call(last)
    names = list(dict.fromkeys(operation_in_words(entry.operation) for entry in call[:-1]))
    more = f" + {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    first = ", ".join(map(_cut, names[:MOST_NAMES]))
    return f"{first}{more}{_numbered(last)}"


def _call(entry: Entry) -> str:
    return f"{_cut(operation_in_words(entry.operation))}{_numbered(entry)}"


def _numbered(entry: Entry) -> str:
    return "" if entry.sequence is None else f" #{entry.sequence}"


def _sizes(call: Sequence[Entry]) -> str:
    """What goes in, and what comes out where that is something else and there is room to say it."""
    given = _listed([sizes for entry in call for sizes in entry.input_sizes])
    got = _listed([sizes for entry in call for sizes in entry.output_sizes])
    both = f"{given} → {got}"
    if given == NOTHING:
        return got
    return given if got in (NOTHING, given) or len(both) > LONGEST else both


def _listed(sizes: Sequence[Sequence[int]]) -> str:
    if not sizes:
        return NOTHING
    return f"{_cut(str(list(sizes[0])))}{f' + {len(sizes) - 1} more' if len(sizes) > 1 else ''}"


def _types(entry: Entry) -> str:
    return _cut(", ".join(dict.fromkeys([*entry.input_types, *entry.output_types]))) or NOTHING


def _state(entry: Entry) -> str:
    if entry.retired and entry.state != "completed":
        return "retired"
    return entry.state or NOTHING


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


# Who came late to collectives: one who stands out, or everybody.


HEADER_DIAGNOSIS_LATENESS = ("rank", "last in", "of", "others waited", "at most", "in")
STANDS_OUT = 4
"""So many times as long as for anybody else others have waited for one who stands out."""


def show_lateness(page: Page, lateness: Sequence[Lateness], *, verbose: bool) -> None:
    """Nothing where all come late alike, unless everything is asked for."""
    if lateness and verbose:
        page.gap()
        page.line("Who came last, and how long the others waited for it, all together:", "bold")
        page.table(
            HEADER_DIAGNOSIS_LATENESS, [_row(one) for one in lateness], numbers=HEADER_DIAGNOSIS_LATENESS[:-1]
        )
    elif lateness and _stands_out(lateness):
        first = lateness[0]
        page.line(
            f"Latest: rank {first.rank} came last to {number(first.collectives)} of "
            f"{counted(first.of, 'collective')}; the others waited {duration(first.total_ns)} for it, all together, "
            f"at most {duration(first.worst_ns)} ({_place(first)})."
        )


def _stands_out(lateness: Sequence[Lateness]) -> bool:
    first, *others = lateness
    return first.total_ns >= SECOND and all(first.total_ns >= STANDS_OUT * one.total_ns for one in others[:1])


def _row(one: Lateness) -> tuple[str, ...]:
    return (
        str(one.rank),
        number(one.collectives),
        number(one.of),
        duration(one.total_ns),
        duration(one.worst_ns),
        _place(one),
    )


def _place(one: Lateness) -> str:
    return f"#{one.sequence} of {group_in_words(one.group, '')}"


# What profiles show under a problem: the operators and kernels of a call, and what a rank did instead of the next.


MOST_AROUND = 4
MOST_RUNNING = 3
LONGEST_DIAGNOSIS_SIGHTINGS = 72
"""Letters of a name."""
ARROW = " > "


def show_sightings(page: Page, problem: Problem, *, verbose: bool) -> None:
    """Rank by rank, in the order of the evidence."""
    for one in problem.sightings:
        page.gap()
        page.line(_heading(one), "bold")
        page.beneath(list(_rows(one, problem, verbose=verbose)))


def _heading(sighting: Sighting) -> str:
    what = "profile" if sighting.end_ns is not None else "execution trace"
    note = f" ({sighting.note})" if sighting.note else ""
    return f"In the {what} of rank {sighting.rank}{note}:"


def _rows(sighting: Sighting, problem: Problem, *, verbose: bool) -> Iterator[tuple[str, str]]:
    call = sighting.call
    if call:
        operators = _chain([*call.around, call.operator], MOST_AROUND, verbose=verbose)
        yield _which(call), f"{operators}, on {call.thread}"
        if call.frames and (verbose or not _has_stack(problem, sighting.rank)):
            yield (
                "in",
                ", ".join(f"{frame.name} ({line_in_words(frame)})" for frame in call.frames[:MOST_FRAMES]),
            )
        if work := _work(call):
            yield "carried out by", work
        if call.node is not None:
            yield "node", f"{call.node} of the execution trace"
    for stretch in sighting.stretches:
        yield "then", _stretch(stretch, verbose=verbose)
    if sighting.later:
        yield "then", f"{_which(sighting.later)}: the profile goes on after the dump was written"


def _has_stack(problem: Problem, rank: int) -> bool:
    """Whether the recorder has told it already."""
    return any(one.rank == rank and one.entries[-1].frames for one in problem.evidence)


def _which(call: CallSeen) -> str:
    number = "" if call.sequence is None else f" #{call.sequence}"
    return f"{call.operation}{number}{f', {call.before} before' if call.before else ''}"


def _chain(names: Sequence[str], most: int, *, verbose: bool) -> str:
    """The innermost last."""
    shown = names if verbose else names[-most:]
    cut = ["…"] if len(shown) < len(names) else []
    return ARROW.join([*cut, *(_cut_diagnosis_sightings(readable_name(name)) for name in shown)])


def _cut_diagnosis_sightings(name: str) -> str:
    return name if len(name) <= LONGEST_DIAGNOSIS_SIGHTINGS else f"{name[: LONGEST_DIAGNOSIS_SIGHTINGS - 1]}…"


def _work(call: CallSeen) -> str:
    if call.work:
        length = "no end" if call.work.duration_ns is None else duration(call.work.duration_ns)
        return f"{_cut_diagnosis_sightings(call.work.name)} on {call.work.where}, {length}"
    if call.launched is None:
        return ""
    return (
        "a kernel that did not end before the profile" if call.launched else "nothing: it launched no kernel"
    )


def _stretch(stretch: Stretch, *, verbose: bool) -> str:
    names = _chain([one.name for one in stretch.running], MOST_RUNNING, verbose=verbose)
    part, whole = duration(stretch.running[-1].duration_ns), duration(stretch.duration_ns)
    for_ = f"for {whole}" if part == whole else f"for {part} of {whole}"
    return f"{for_} {names}, on {stretch.where}"


# What `tracelink diagnose` tells a person: the verdict first, and under it what it rests on.


MOST_PROBLEMS = 10
MOST_EXPLAINED = 3
"""Problems that are named, and those of them that are explained, unless everything is asked for."""

MOST_NOTES = 3
"""Shown of a job in which nothing is wrong; beside a problem they are only counted."""

WRAPPED = "wrapped"
"""The reason of the finding that a ring buffer no longer holds everything."""


def diagnosis_page(diagnosis: Diagnosis, *, verbose: bool, limit: int | None = None) -> str:
    """The diagnosis on one screen; at most `limit` problems, 0 for all."""
    page = Page()
    shown = most_problems(diagnosis, limit, verbose=verbose)
    for line in _headlines(diagnosis, shown) or [_healthy(diagnosis)]:
        page.line(line, "bold red" if diagnosis.problems else "bold green")
    if diagnosis.problems or verbose:
        page.gap()
        show_standings(page, diagnosis, verbose=verbose)
    _explain(page, diagnosis.problems[:shown], verbose=verbose)
    page.gap()
    show_absent(page, diagnosis, verbose=verbose)
    show_lateness(page, diagnosis.lateness, verbose=verbose)
    page.gap()
    for note in _wrapped(diagnosis.findings):
        page.line(f"Note: {note}")
    beside = 0 if diagnosis.problems else MOST_NOTES
    _show_notes(page, diagnosis.notes, len(diagnosis.notes) if verbose else beside)
    _show_findings(page, diagnosis, verbose=verbose)
    return page.text


def _wrapped(findings: Sequence[Finding]) -> list[str]:
    count = sum(finding.reason == WRAPPED for finding in findings)
    ranks = "1 rank" if count == 1 else f"{number(count)} ranks"
    return [f"The buffers of {ranks} had wrapped: what they did first is no longer known."] if count else []


def _show_notes(page: Page, notes: Sequence[str], most: int) -> None:
    for note in notes[:most]:
        page.line(f"Note: {note}")
    if (rest := len(notes) - most) > 0:
        page.line(
            f"{counted(rest, 'more note' if most else 'note')}; -v shows {'it' if rest == 1 else 'them'}.",
            "dim",
        )


def _show_findings(page: Page, diagnosis: Diagnosis, *, verbose: bool) -> None:
    """Those that nothing above tells of."""
    told = set(diagnosis.unreadable.values())
    untold = [
        one for one in diagnosis.findings if one.message not in told and (verbose or one.reason != WRAPPED)
    ]
    show_findings(page, untold, verbose=verbose)


def verdict(diagnosis: Diagnosis, limit: int | None = None) -> str:
    """A line for each problem; for at most `limit` of them, 0 for all."""
    return "\n".join(_headlines(diagnosis, most_problems(diagnosis, limit, verbose=False)))


def most_problems(diagnosis: Diagnosis, limit: int | None, *, verbose: bool) -> int:
    """How many problems to name; `limit` is what the user says."""
    everything = len(diagnosis.problems)
    if limit is None:
        return everything if verbose else MOST_PROBLEMS
    return limit or everything


def _headlines(diagnosis: Diagnosis, most: int) -> list[str]:
    messages = [problem.message for problem in diagnosis.problems]
    if len(messages) < 2:
        return messages
    lines = [f"{place}. {message}" for place, message in enumerate(messages[:most], 1)]
    rest = len(messages) - most
    return lines + ([f"{counted(rest, 'more problem')}; --limit 0 lists all."] if rest > 0 else [])


def _healthy(diagnosis: Diagnosis) -> str:
    checked = diagnosis.checked
    everybody = len({*diagnosis.present, *diagnosis.missing, *diagnosis.unreadable})
    of = f" of {number(everybody)}" if everybody > checked.ranks else ""
    known = f"{number(checked.ranks)}{of} rank{'s' if everybody != 1 else ''}"
    if not checked.entries:
        return f"Nothing can be said: what {known} recorded holds no entry."
    together = [counted(checked.collectives, "collective")]
    if checked.messages:
        together.append(counted(checked.messages, "message"))
    return (
        f"Nothing is wrong in what {known} recorded: "
        f"{' and '.join(together)} of {counted(checked.groups, 'group')}, "
        f"{'1 entry' if checked.entries == 1 else number(checked.entries) + ' entries'} checked: "
        f"{_compared(checked.ranks, everybody)}."
    )


def _compared(ranks: int, everybody: int) -> str:
    if ranks == 1 < everybody:
        return "no other dump is there to compare it with"
    return "everybody joined; operations, types and sizes agree"


def _explain(page: Page, problems: Sequence[Problem], *, verbose: bool) -> None:
    """What problems rest on and what to do about them; the same advice once."""
    given = set()
    for place, problem in enumerate(problems[: None if verbose else MOST_EXPLAINED], 1):
        if len(problems) > 1:
            page.gap()
            page.line(f"{place}. {problem.message}", "bold")
        show_evidence(page, problem, verbose=verbose)
        show_sightings(page, problem, verbose=verbose)
        if problem.advice and problem.advice not in given:
            page.gap()
            page.line(f"Next: {problem.advice}")
        given.add(problem.advice)
