"""What profiles beside dumps show; roots they name."""

from __future__ import annotations

import re
import sys
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, dropwhile
from pathlib import PurePath

import numpy as np

from tracelink.diagnosis.disagreements import Roots, rooted_entries
from tracelink.diagnosis.explain import MOST_CULPRITS, own_frames
from tracelink.diagnosis.journal import Journal
from tracelink.diagnosis.model import (
    CallSeen,
    Diagnosis,
    Kind,
    Problem,
    Role,
    Running,
    Sighting,
    Stretch,
    WorkSeen,
)
from tracelink.engine import Engine
from tracelink.errors import Finding, Severity, TraceError
from tracelink.io.sources import Discovery, Source
from tracelink.model.collectives import RankCalls
from tracelink.model.columns import NO_TIME, UNKNOWN, Bools, Int64s
from tracelink.model.communications import Calls
from tracelink.model.events import GPU_WORK, ON_THREAD, EventKind, Key, Relation, TrackKind
from tracelink.model.graph import EventGraph
from tracelink.model.operations import COLLECTIVE_OPERATOR, ROOTED, operation_of
from tracelink.model.records import Frame
from tracelink.pipeline.gathering import gather
from tracelink.pipeline.reading import Task
from tracelink.plugins import Recorder, Unpacking
from tracelink.text import duration

# How profiles name Python functions, and which of these are of the program itself.


PYTHON_FRAME = re.compile(r"(?P<file>.+)\((?P<line>\d{1,9})\): (?P<name>.+)")
"""How a profile names a Python function; modules and built-in functions have other names."""
BUILT_IN = re.compile(r"<built-in (?:method|function) (?P<name>\w+)\b.*>")
OF_TORCH = re.compile(r"^(?:torch/|typing_extensions\.py)")
"""Files of torch, as a profile names them: without the folder that they are installed in."""


def frame_of(name: str) -> Frame | None:
    """The line of a Python stack that a profile names so."""
    match = PYTHON_FRAME.fullmatch(name)
    return Frame(match["name"], match["file"], int(match["line"])) if match else None


def called(name: str) -> str:
    """`step (train.py:20)`, `run_backward`: what a profile calls `train.py(20): step`, `<built-in method ...>`."""
    if frame := frame_of(name):
        return f"{frame.name} ({PurePath(frame.filename).name}:{frame.line})"
    built_in = BUILT_IN.fullmatch(name)
    return built_in["name"] if built_in else name


def is_code(name: str) -> bool:
    """Whether it is a line of Python, or a function without one; modules have other names."""
    return bool(PYTHON_FRAME.fullmatch(name) or BUILT_IN.fullmatch(name))


def starts_a_program(filename: str) -> bool:
    """Whether it comes with Python."""
    first = filename.partition("/")[0]
    return first.startswith("<") or first.removesuffix(".py") in sys.stdlib_module_names


def of_program(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """The stack without what starts a program and without torch, unless nothing else is left."""
    started = dropwhile(lambda frame: starts_a_program(frame.filename), reversed(frames))
    own = [frame for frame in reversed(list(started)) if not OF_TORCH.match(frame.filename)]
    return own_frames(own or frames)


# What stands around an event of one rank: who called it, from where in the program, and what carries it out.


ROOT = re.compile(r"^\[pytorch\|")
"""Nodes that stand for a thread or a process."""
LAUNCH = re.compile(r"launch", re.IGNORECASE)


class Surroundings:
    """Of the events of one rank."""

    def __init__(self, graph: EventGraph) -> None:
        self.graph = graph
        calls = graph.edges.where(Relation.CALLS)
        self._caller = np.full(len(graph), UNKNOWN, np.int64)
        self._caller[calls.target] = calls.source
        self._has_device = bool(graph.events.of_kind(*GPU_WORK).any())

    def above(self, row: int) -> list[int]:
        """The events that it was called in, innermost first."""
        found: list[int] = []
        while (row := int(self._caller[row])) != UNKNOWN and row not in found:
            found.append(row)
        return found

    def whole(self, operator: int) -> int:
        """The outermost of the operators that only pass a call on."""
        chain = [operator, *self.above(operator)]
        return [row for row in chain if row == operator or COLLECTIVE_OPERATOR.match(self.graph.name(row))][
            -1
        ]

    def operators_above(self, row: int) -> tuple[str, ...]:
        """Names of operators, modules and annotations that it was called in, outermost first."""
        names = [self.graph.name(above) for above in reversed(self.above(row)) if not self._is_code(above)]
        return tuple(name for name in names if not ROOT.match(name))

    def frames(self, row: int) -> tuple[Frame, ...]:
        """The Python stack, innermost first, without torch and without what starts a program."""
        frames = [frame_of(self.graph.name(above)) for above in self.above(row) if self._is_code(above)]
        return of_program([frame for frame in frames if frame])

    def where(self, row: int) -> str:
        """The thread or stream of an event."""
        return self.track_in_words(int(self.graph.events.track[row]))

    def track_in_words(self, number: int) -> str:
        """`stream 7`, `thread 1854 (pt_gloo_runloop)`."""
        track = self.graph.tracks[number]
        if track.label:
            return track.label
        return f"{'stream' if track.kind is TrackKind.STREAM else 'thread'} {track.identity}"

    def work(self, operator: int, annotation: int, kernel: int) -> WorkSeen | None:
        """The kernel of a call, else what another thread than its own does for it."""
        track = self.graph.events.track
        if kernel != UNKNOWN:
            return self._work(kernel)
        if annotation == UNKNOWN or (operator != UNKNOWN and track[annotation] == track[operator]):
            return None
        return self._work(annotation)

    def launched(self, operator: int, work: WorkSeen | None, kernel: int) -> bool | None:
        """Whether a call launched anything on a device, also what did not end while the profile was taken."""
        if kernel != UNKNOWN:
            return True
        if work or operator == UNKNOWN or not self._has_device:
            return None
        events = self.graph.events
        start, end = events.start[operator], events.end[operator]
        inside = events.of_kind(EventKind.RUNTIME) & (events.track == events.track[operator])
        inside &= (events.start >= start) & (events.start <= end)
        return any(LAUNCH.search(self.graph.name(row)) for row in np.flatnonzero(inside).tolist())

    def _work(self, row: int) -> WorkSeen:
        events = self.graph.events
        length = int(events.duration[row])
        return WorkSeen(
            self.graph.name(row), self.where(row), int(events.start[row]), length if length >= 0 else None
        )

    def _is_code(self, row: int) -> bool:
        """Whether it is a line of Python, or a function without one."""
        return bool(self.graph.events.kind[row] == EventKind.PYTHON) and is_code(self.graph.name(row))


# What the threads and streams of a rank did for most of a stretch of time.


MOST_TRACKS = 3
PROFILER = "torch/profiler/"
"""What takes a profile stands at its end and tells nothing of the program."""


def stretches_of(
    around: Surroundings, first: int, last: int, track: int, without: Int64s
) -> tuple[Stretch, ...]:
    """What ran for more than half of the time, thread by thread and stream by stream; `track` comes first.

    Of events that overlap so long, and lie on one track, each is called by the one that begins before it.
    """
    events = around.graph.events
    shown = events.timed & events.of_kind(*ON_THREAD, *GPU_WORK)
    shown[without] = False
    rows = np.flatnonzero(shown)
    end = np.where(events.duration[rows] < 0, last, events.end[rows])
    overlap = np.minimum(end, last) - np.maximum(events.start[rows], first)
    long = overlap * 2 > last - first
    rows, overlap = rows[long], overlap[long]
    order = np.lexsort((-events.duration[rows], events.start[rows]))
    rows, overlap = rows[order], overlap[order]
    tracks = dict.fromkeys(events.track[rows].tolist())
    found = []
    for number in sorted(tracks, key=lambda number: number != track)[:MOST_TRACKS]:
        mine = events.track[rows] == number
        running = _running(around, rows[mine], overlap[mine])
        if running:
            found.append(Stretch(around.track_in_words(number), first, last - first, running))
    return tuple(found)


def _running(around: Surroundings, rows: Int64s, overlap: Int64s) -> tuple[Running, ...]:
    running: list[Running] = []
    for row, time in zip(rows.tolist(), overlap.tolist(), strict=True):
        name = around.graph.name(row)
        if name.startswith(PROFILER):
            break
        frame = frame_of(name)
        if not OF_TORCH.match(name) and (running or not frame or not starts_a_program(frame.filename)):
            running.append(Running(name, time))
    return tuple(running)


# What the profiles of one rank show of a call that its recorder holds, and of what the rank did after it.


@dataclass(frozen=True, slots=True)
class Asked:
    """A call of a rank that a problem is about, as the dumps tell of it."""

    problem: int
    """Which of the problems."""
    rank: int
    role: Role
    group: str
    """As this rank calls it."""
    operation: str
    sequence: int | None
    point_to_point: bool = False
    place: int | None = None
    """The entry's number in the dump; None where the rank has no entry that tells."""
    created_ns: int | None = None
    followed: bool = False
    """Whether it is the rank's last one, and what the rank did after it is asked too."""


class Profile:
    """The graph of one rank by its own clock, and its calls."""

    def __init__(self, graph: EventGraph, calls: RankCalls) -> None:
        self.graph = graph
        self.calls: Calls = calls.calls
        self.texts = calls.strings
        self.around = Surroundings(graph)
        events = graph.events
        shown = events.timed & events.of_kind(*ON_THREAD, *GPU_WORK)
        self.start = int(events.start[shown].min()) if shown.any() else None
        self.end = int(events.end[shown].max()) if shown.any() else None

    @property
    def sources(self) -> tuple[str, ...]:
        """The files that show more than a recorder holds."""
        records = set(self.graph.events.source[self.graph.events.kind == EventKind.RECORD].tolist())
        return tuple(one.path for number, one in enumerate(self.graph.sources) if number not in records)

    def seen(self) -> Bools:
        """The calls that more than a recorder tells of."""
        seen: Bools = (self.calls.operator != UNKNOWN) | (self.calls.node != UNKNOWN)
        return seen

    def of_group(self, asked: Asked) -> Bools:
        """The calls of the same group that are counted together with what is asked for."""
        group = self.texts.index(asked.group) if asked.group in self.texts else UNKNOWN - 1
        counted: Bools = (self.calls.group == group) & (self.calls.point_to_point == asked.point_to_point)
        return counted

    def of_operation(self, operation: str) -> Bools:
        """The calls that do the same."""
        wanted = [code for code, text in enumerate(self.texts) if text == operation_of(operation)]
        return np.isin(self.calls.operation, wanted)

    def text(self, code: int) -> str:
        """Of calls; empty where nothing is said."""
        return "" if code == UNKNOWN else self.texts[code]

    def node_number(self, node: int) -> int | None:
        """The number that the execution trace gives a node."""
        numbers = self.graph.key(Key.NODE_ID)
        found = numbers.values[numbers.rows == node]
        return int(found[0]) if node != UNKNOWN and len(found) else None


def sighting(profile: Profile, asked: Asked) -> Sighting:
    """What profiles show of it."""
    place = _call_asked_for(profile, asked)
    shown = place if place is not None and profile.seen()[place] else _call_before(profile, asked, place)
    exact = shown is not None and shown == place
    later = _call_after(profile, asked) if asked.followed else None
    return Sighting(
        asked.rank,
        asked.role,
        profile.sources,
        profile.start,
        profile.end,
        None
        if shown is None
        else _call_seen(profile, shown, 0 if exact else _distance(profile, asked, shown)),
        None if later is None else _call_seen(profile, later, None),
        _stretches(profile, asked, shown if exact else None, later) if asked.followed else (),
        _note(profile, asked, exact=exact),
    )


def _call_asked_for(profile: Profile, asked: Asked) -> int | None:
    """The call of this entry; of an entry that closes others one of these."""
    if asked.place is None:
        return None
    events, calls = profile.graph.events, profile.calls
    record = np.flatnonzero((events.kind == EventKind.RECORD) & (events.payload == asked.place))
    found = np.flatnonzero(np.isin(calls.record, record))
    if not len(found) and asked.sequence is not None:
        found = np.flatnonzero(profile.of_group(asked) & (calls.sequence == asked.sequence))
    return int(found[-1]) if len(found) else None


def _call_before(profile: Profile, asked: Asked, place: int | None) -> int | None:
    """The last one of the same group and operation before it that is shown; of the same size, where there is one."""
    calls = profile.calls
    known = profile.seen() & profile.of_group(asked) & profile.of_operation(asked.operation)
    if asked.sequence is not None:
        known &= calls.sequence < asked.sequence
    alike = known if place is None else known & (calls.elements_in == calls.elements_in[place])
    rows = np.flatnonzero(alike if alike.any() else known)
    return int(rows[-1]) if len(rows) else None


def _call_after(profile: Profile, asked: Asked) -> int | None:
    """The next call that the profile shows and the dump does not know."""
    calls = profile.calls
    if asked.created_ns is None:
        return None
    after = (calls.operator != UNKNOWN) & (calls.record == UNKNOWN) & (calls.enqueued > asked.created_ns)
    rows = np.flatnonzero(after)
    return int(rows[calls.enqueued[rows].argmin()]) if len(rows) else None


def _call_seen(profile: Profile, place: int, before: int | None) -> CallSeen:
    calls, events, around = profile.calls, profile.graph.events, profile.around
    operator, node, kernel = (int(column[place]) for column in (calls.operator, calls.node, calls.kernel))
    row = operator if operator != UNKNOWN else node
    work = around.work(operator, int(calls.annotation[place]), kernel)
    sequence, length = int(calls.sequence[place]), int(events.duration[row])
    return CallSeen(
        operation=profile.text(calls.operation[place]),
        group=profile.text(calls.group[place]),
        sequence=sequence if sequence >= 0 else None,
        before=before,
        operator=profile.graph.name(row),
        thread=around.where(row),
        start_ns=int(events.start[row]) if events.timed[row] else None,
        duration_ns=length if events.timed[row] and length >= 0 else None,
        around=around.operators_above(row),
        frames=around.frames(row),
        node=profile.node_number(node),
        work=work,
        launched=around.launched(operator, work, kernel),
    )


def _distance(profile: Profile, asked: Asked, place: int) -> int | None:
    sequence = int(profile.calls.sequence[place])
    return None if asked.sequence is None or sequence < 0 else asked.sequence - sequence


def _stretches(profile: Profile, asked: Asked, shown: int | None, later: int | None) -> tuple[Stretch, ...]:
    """From its last call on, until the next one or until the profile ends."""
    calls, events = profile.calls, profile.graph.events
    issued = calls.operator[calls.operator != UNKNOWN]
    if profile.end is None or not len(issued):
        return ()
    last = int(calls.operator[shown]) if shown is not None else UNKNOWN
    if last == UNKNOWN and asked.created_ns is None:
        last = int(issued[events.end[issued].argmax()])
    around = profile.around
    first = int(events.end[around.whole(last)]) if last != UNKNOWN else asked.created_ns or profile.end
    end = profile.end if later is None else int(events.start[around.whole(int(calls.operator[later]))])
    track = int(events.track[last if last != UNKNOWN else issued[-1]])
    carried_out = calls.annotation[calls.annotation != UNKNOWN]
    return stretches_of(profile.around, first, end, track, carried_out) if end > first else ()


def _note(profile: Profile, asked: Asked, *, exact: bool) -> str:
    if profile.end is None:
        return "it has no times: which of its calls these are rests on their order"
    return "" if exact else _why_not_shown(profile, asked)


def _why_not_shown(profile: Profile, asked: Asked) -> str:
    if asked.place is None:
        return "without a dump of this rank its last such call is shown"
    if profile.start is None or profile.end is None or asked.created_ns is None:
        return ""
    if asked.created_ns > profile.end:
        return f"it ends {duration(asked.created_ns - profile.end)} before this call"
    if asked.created_ns < profile.start:
        return f"it begins {duration(profile.start - asked.created_ns)} after this call"
    return "this call is not in it"


# Profiles and execution traces that lie beside dumps: which of them are of which rank.


def profiles_among(tasks: Sequence[Task]) -> list[Task]:
    """Those that are no dumps, nor timelines of several ranks."""
    return [task for task in tasks if not isinstance(task.reader, Recorder | Unpacking)]


def sources_of(ranks: Container[int], tasks: Sequence[Task], journal: Journal) -> dict[int, list[Source]]:
    """The profiles of each of these ranks that has some, and its dump; all with what is known of them."""
    by_path = {task.source.path: task for task in tasks}
    found: dict[int, list[Source]] = {}
    for task in profiles_among(tasks):
        if task.likely_rank is not None and task.likely_rank in ranks:
            found.setdefault(task.likely_rank, []).append(_said(task, task.likely_rank))
    for rank, sources in found.items():
        if rank in journal.recordings and (dump := by_path.get(journal.recordings[rank].source.path)):
            sources.append(_said(dump, rank))
    return found


def unranked(tasks: Sequence[Task]) -> list[Finding]:
    """Profiles of which nobody can say whose they are without reading them whole."""
    unknown = [task.source.path for task in profiles_among(tasks) if task.likely_rank is None]
    if not unknown:
        return []
    many = f"{len(unknown)} profiles were" if len(unknown) > 1 else "1 profile was"
    message = (
        f"{many} not read: neither name nor first bytes say the rank. Say it with --rank {unknown[0]}=N."
    )
    return [Finding(Severity.WARNING, "unknown_rank", message, len(unknown), example=unknown[0])]


def _said(task: Task, rank: int) -> Source:
    return replace(task.source, format=task.reader.name, rank=rank)


# Problems to sightings: of the ranks that a problem is about, and of no others, the profiles are read.


MOST_PROBLEMS = 3
ABSENT = frozenset({Kind.NEVER_JOINED, Kind.LAGGING, Kind.STRAGGLER})
"""Problems in which it matters what the culprits did instead."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """What was seen of one rank, by the number of the problem."""

    seen: Sequence[tuple[int, Sighting]]
    findings: Sequence[Finding] = ()


def with_sightings(
    diagnosis: Diagnosis, journal: Journal, tasks: Sequence[Task], engine: Engine
) -> Diagnosis:
    """The same, with what profiles show of the ranks that its worst problems are about."""
    asked: dict[int, list[Asked]] = {}
    for number, problem in enumerate(diagnosis.problems[:MOST_PROBLEMS]):
        for one in _asked(number, problem, journal):
            asked.setdefault(one.rank, []).append(one)
    sources = sources_of(asked, tasks, journal)
    outer, inner = engine.split(len(sources))

    def work(rank: int) -> _Answer:
        return _of_rank(rank, asked[rank], sources[rank], inner)

    answers = outer.map(work, sorted(sources))
    seen = list(chain.from_iterable(answer.seen for answer in answers))
    problems = [
        replace(problem, sightings=_in_order(problem, [one for of, one in seen if of == number]))
        for number, problem in enumerate(diagnosis.problems)
    ]
    found = [*unranked(tasks), *chain.from_iterable(answer.findings for answer in answers)]
    return replace(diagnosis, problems=problems, findings=[*diagnosis.findings, *found])


def _asked(number: int, problem: Problem, journal: Journal) -> list[Asked]:
    """The culprits first."""
    others = [rank for rank in problem.rows if rank not in problem.culprits]
    return [
        _asked_of(number, problem, journal, rank, Role.CULPRIT if rank in problem.culprits else Role.WAITING)
        for rank in [*problem.culprits[:MOST_CULPRITS], *others]
    ]


def _asked_of(number: int, problem: Problem, journal: Journal, rank: int, role: Role) -> Asked:
    followed = role is Role.CULPRIT and problem.kind in ABSENT
    row = problem.rows.get(rank)
    if row is None:
        return Asked(
            number, rank, role, problem.group, problem.operation, problem.sequence, followed=followed
        )
    records = journal.records
    names = {of: name for (who, name), of in journal.group_rows.items() if who == rank}
    sequence, created = int(records.sequence[row]), int(records.created[row])
    end = int(journal.bounds[int(journal.ranks.searchsorted(rank)) + 1])
    return Asked(
        number,
        rank,
        role,
        names.get(int(records.group[row]), problem.group),
        journal.operation(row),
        None if sequence == UNKNOWN else sequence,
        bool(records.point_to_point[row]),
        int(records.place[row]),
        None if created == NO_TIME else created,
        followed and row == end - 1,
    )


def _of_rank(rank: int, asked: Sequence[Asked], sources: Sequence[Source], engine: Engine) -> _Answer:
    """A profile that cannot be read, or that is not what its name says, costs only what it would have shown."""
    try:
        gathered = gather(Discovery(list(sources)), engine)
    except TraceError as error:
        message = f"what the profiles of rank {rank} show is left out: {error}"
        return _Answer((), [Finding(Severity.WARNING, "profile_unreadable", message, source=error.source)])
    (one,) = gathered.ranks
    assert one.graph, "events were asked for"
    profile = Profile(gathered.keeper.get(one.graph), one.calls)
    serious = [
        finding for finding in [*gathered.findings, *one.findings] if finding.severity is Severity.ERROR
    ]
    seen = [(each.problem, sighting(profile, each)) for each in asked]
    return _Answer([(of, shown) for of, shown in seen if shown.call or shown.end_ns is not None], serious)


def _in_order(problem: Problem, sightings: Sequence[Sighting]) -> tuple[Sighting, ...]:
    """The culprits first, as in the evidence."""
    return tuple(sorted(sightings, key=lambda one: (one.role is not Role.CULPRIT, one.rank)))


# Profiles to roots: what ranks that broadcast, reduce, gather or scatter said of the one that gives or gets.


MOST_BYTES = 1 << 30
"""Of profiles, as stored: more of them would keep a user waiting for what is seldom the cause."""

WITHOUT_TIMES = "execution-trace"
"""Which entry is which of its nodes is known only with a profile beside it."""


def roots_of(journal: Journal, tasks: Sequence[Task], engine: Engine) -> tuple[Roots, list[Finding]]:
    """What all profiles tell; none is read unless there is something that has a root."""
    timed = {task.likely_rank for task in profiles_among(tasks) if task.reader.name != WITHOUT_TIMES}
    found = sources_of(_ranks_with_roots(journal) & timed, tasks, journal)
    sources = [source for of_rank in found.values() for source in of_rank]
    if len(found) < 2:
        return Roots.of(), []
    if (size := sum(source.bytes for source in sources)) > MOST_BYTES:
        return Roots.of(), [_too_large(size, len(found))]
    try:
        gathered = gather(Discovery(sources), engine, with_events=False)
    except TraceError as error:
        message = f"whether ranks name the same root is not checked: {error}"
        return Roots.of(), [Finding(Severity.WARNING, "roots_unreadable", message, source=error.source)]
    rows = [row for one in gathered.ranks for row in _told(one.calls, journal)]
    return Roots.of(rows), [one for one in gathered.findings if one.severity is Severity.ERROR]


def _ranks_with_roots(journal: Journal) -> set[int]:
    """The ranks that do something together that has a root."""
    return set(np.unique(journal.rank[rooted_entries(journal)]).tolist())


def _told(calls: RankCalls, journal: Journal) -> list[tuple[int, int, int, int]]:
    """Group, number, rank and root of calls that a profile shows at the time of their entry."""
    table = calls.calls
    rooted = [code for code, text in enumerate(calls.strings) if text in ROOTED]
    known = np.isin(table.operation, rooted) & (table.record != UNKNOWN) & (table.operator != UNKNOWN)
    known &= (table.source != UNKNOWN) & (table.sequence != UNKNOWN) & ~table.point_to_point
    rows: list[tuple[int, int, int, int]] = []
    for row in np.flatnonzero(known).tolist():
        group = _group(journal.group_rows, calls, int(table.group[row]))
        root = int(table.source[row])
        if table.global_ranks[row] and group != UNKNOWN:
            members = journal.groups[group].ranks
            root = members.index(root) if root in members else UNKNOWN
        if UNKNOWN not in (group, root):
            rows.append((group, int(table.sequence[row]), calls.rank, root))
    return rows


def _group(rows: Mapping[tuple[int, str], int], calls: RankCalls, code: int) -> int:
    return UNKNOWN if code == UNKNOWN else rows.get((calls.rank, calls.strings[code]), UNKNOWN)


def _too_large(size: int, ranks: int) -> Finding:
    message = (
        f"whether ranks name the same root is not checked: the profiles of {ranks} ranks have "
        f"{size / 1e9:.1f} GB. Give those of the ranks in doubt."
    )
    return Finding(Severity.INFO, "roots_unchecked", message, ranks)
