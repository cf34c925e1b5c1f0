"""Profiles next to dumps: what they show of the calls that problems are about, and the roots that calls name.

Profiles are read only for ranks that problems are about, or for operations with a root.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from itertools import chain

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._hang.explain import MOST_CULPRITS
from tracelink._hang.facts.disagreements import Roots, mark_rooted_entries
from tracelink._hang.facts.journal import Journal
from tracelink._hang.facts.model import CallSeen, Kind, Role, Running, Sighting, Stretch, WorkSeen
from tracelink._hang.facts.recordings import find_profiles
from tracelink._hang.verdicts.base import Verdict
from tracelink._io.engine import Engine
from tracelink._io.sources import Discovery, Source
from tracelink._join.ranks import read_ranks
from tracelink._join.reading import Task
from tracelink._model.causes import callers
from tracelink._model.columns import NO_TIME, UNKNOWN, Bools, Int64s
from tracelink._model.communications import Calls, RankCalls
from tracelink._model.errors import TraceError
from tracelink._model.events import GPU_WORK, ON_THREAD, EventKind, Key, TrackKind
from tracelink._model.findings import Finding, Severity
from tracelink._model.graph import EventGraph, Excerpt
from tracelink._model.operations import COLLECTIVE_OPERATOR, ROOTED, operation_of
from tracelink._model.records import (
    OF_TORCH_IN_PROFILES,
    Frame,
    frame_of,
    is_code,
    of_program,
    starts_a_program,
)
from tracelink._model.text import duration
from tracelink.plugins import Content

MOST_PROBLEMS = 3
MOST_TRACKS = 3
MOST_BYTES = 1 << 30
"""Size of stored profiles above which roots are not compared: reading takes long and is rarely the cause."""
ABSENT = frozenset({Kind.NEVER_JOINED, Kind.LAGGING, Kind.STRAGGLER, Kind.IN_FLIGHT})
"""Problems for which it matters what the culprits did instead."""
ROOT = re.compile(r"^\[pytorch\|")
"""Nodes that represent a thread or a process."""
LAUNCH = re.compile(r"launch", re.IGNORECASE)
PROFILER = "torch/profiler/"
"""Frames of the profiler at the end of a profile."""


# From problems to sightings: only profiles of the ranks that problems are about are read.


def sightings_of(
    verdicts: Sequence[Verdict], journal: Journal, tasks: Sequence[Task], engine: Engine
) -> tuple[list[tuple[Sighting, ...]], list[Finding]]:
    """What profiles show of the ranks that the worst verdicts are about, for each verdict, and findings."""
    targets: dict[int, dict[int, TargetCall]] = defaultdict(dict)
    for number, verdict in enumerate(verdicts[:MOST_PROBLEMS]):
        for target in _targets(verdict, journal):
            targets[target.rank][number] = target
    sources = sources_of(targets, tasks, journal)
    outer, inner = engine.split(len(sources))

    def work(rank: int) -> tuple[dict[int, Sighting], list[Finding]]:
        return _sightings_of_rank(targets[rank], sources[rank], inner)

    results = outer.map(work, sorted(sources))
    findings = [*report_unranked(tasks), *chain.from_iterable(found for _, found in results)]
    sightings = [
        _culprits_first([shown[number] for shown, _ in results if number in shown])
        for number in range(len(verdicts))
    ]
    return sightings, findings


class TargetCall(Struct, frozen=True):
    """A call of a rank that a problem is about, according to the dumps."""

    rank: int
    role: Role
    group: str
    """The name of the group on this rank."""
    operation: str
    sequence: int | None
    point_to_point: bool = False
    index: int | None = None
    """Index of the entry in the dump; None if the rank has no entry that shows it."""
    created_ns: int | None = None
    with_activity: bool = False
    """True if it is the rank's last call, and what the rank did after it is requested as well."""


def _targets(verdict: Verdict, journal: Journal) -> list[TargetCall]:
    """The culprits first."""
    others = [rank for rank in verdict.rows if rank not in verdict.culprits]
    return [_target(verdict, journal, rank) for rank in [*verdict.culprits[:MOST_CULPRITS], *others]]


def _target(verdict: Verdict, journal: Journal, rank: int) -> TargetCall:
    role = Role.CULPRIT if rank in verdict.culprits else Role.WAITING
    with_activity = role is Role.CULPRIT and verdict.kind in ABSENT
    found = TargetCall(
        rank, role, verdict.group, verdict.operation, verdict.sequence, with_activity=with_activity
    )
    row = verdict.rows.get(rank)
    if row is None:
        return found
    records = journal.records
    names = {group: name for (user, name), group in journal.group_rows.items() if user == rank}
    sequence, created = int(records.sequence[row]), int(records.created[row])
    last = journal.entries_of(rank).stop - 1
    return replace(
        found,
        group=names.get(int(records.group[row]), verdict.group),
        operation=journal.operation(row),
        sequence=None if sequence == UNKNOWN else sequence,
        point_to_point=bool(records.point_to_point[row]),
        index=int(records.place[row]),
        created_ns=None if created == NO_TIME else created,
        with_activity=with_activity and row == last,
    )


def _sightings_of_rank(
    targets: Mapping[int, TargetCall], sources: Sequence[Source], engine: Engine
) -> tuple[dict[int, Sighting], list[Finding]]:
    """What profiles of one rank show, by verdict; a profile that cannot be read is skipped and reported."""
    try:
        gathered = read_ranks(Discovery(list(sources)), engine)
    except TraceError as error:
        message = f"profiles of rank {sources[0].rank} are not used: {error}"
        return {}, [Finding(Severity.WARNING, "profile_unreadable", message, source=error.source)]
    (read,) = gathered.ranks
    assert read.graph, "events were requested"
    profile = Profile(gathered.store.get(read.graph), gathered.store.get(read.calls.calls))
    sightings = {number: find_sighting(profile, target) for number, target in targets.items()}
    return (
        {number: shown for number, shown in sightings.items() if shown.call or shown.end_ns is not None},
        [finding for finding in [*gathered.findings, *read.findings] if finding.severity is Severity.ERROR],
    )


def _culprits_first(sightings: Sequence[Sighting]) -> tuple[Sighting, ...]:
    return tuple(sorted(sightings, key=lambda shown: (shown.role is not Role.CULPRIT, shown.rank)))


def sources_of(ranks: Container[int], tasks: Sequence[Task], journal: Journal) -> dict[int, list[Source]]:
    """The profiles of each of these ranks together with its dump, with their ranks and formats."""
    by_path = {task.source.path: task for task in tasks}
    by_rank: dict[int, list[Source]] = {}
    for task in find_profiles(tasks):
        if task.likely_rank is not None and task.likely_rank in ranks:
            by_rank.setdefault(task.likely_rank, []).append(_with_rank(task, task.likely_rank))
    for rank, sources in by_rank.items():
        if rank in journal.recordings and (dump := by_path.get(journal.recordings[rank].source.path)):
            sources.append(_with_rank(dump, rank))
    return by_rank


def _with_rank(task: Task, rank: int) -> Source:
    return replace(task.source, format=task.format, rank=rank)


def report_unranked(tasks: Sequence[Task]) -> list[Finding]:
    """Profiles whose rank is unknown without reading them completely."""
    unknown = [task.source.path for task in find_profiles(tasks) if task.likely_rank is None]
    if not unknown:
        return []
    count = f"{len(unknown)} profiles were" if len(unknown) > 1 else "1 profile was"
    message = (
        f"{count} not read: neither the file name nor the first bytes contain the rank. "
        f"Give it with --rank {unknown[0]}=N."
    )
    return [Finding(Severity.WARNING, "unknown_rank", message, len(unknown), example=unknown[0])]


# What profiles of one rank show of a call.


class Profile:
    """The event graph of one rank, by its own clock, and its calls."""

    def __init__(self, graph: EventGraph, calls: RankCalls) -> None:
        self.graph = graph
        self.calls: Calls = calls.calls
        self.strings = calls.strings
        self._caller = callers(Excerpt(graph))
        self._has_device = bool(graph.events.of_kind(*GPU_WORK).any())
        events = graph.events
        timed = events.timed & events.of_kind(*ON_THREAD, *GPU_WORK)
        self.start = int(events.start[timed].min()) if timed.any() else None
        self.end = int(events.end[timed].max()) if timed.any() else None

    @property
    def sources(self) -> tuple[str, ...]:
        """The files that show more than a recording."""
        records = set(self.graph.events.source[self.graph.events.kind == EventKind.RECORD].tolist())
        return tuple(source.path for number, source in enumerate(self.graph.sources) if number not in records)

    def shown_calls(self) -> Bools:
        """The calls that a profile or an execution trace shows."""
        shown: Bools = (self.calls.operator != UNKNOWN) | (self.calls.node != UNKNOWN)
        return shown

    def of_group(self, target: TargetCall) -> Bools:
        """The calls of the target's group that are numbered together with it."""
        group = self.strings.index(target.group) if target.group in self.strings else UNKNOWN - 1
        counted: Bools = (self.calls.group == group) & (self.calls.point_to_point == target.point_to_point)
        return counted

    def of_operation(self, operation: str) -> Bools:
        """The calls of the same operation."""
        wanted = [code for code, name in enumerate(self.strings) if name == operation_of(operation)]
        return np.isin(self.calls.operation, wanted)

    def text(self, code: int) -> str:
        """The string of a code; empty if unknown."""
        return "" if code == UNKNOWN else self.strings[code]

    def node_number(self, node: int) -> int | None:
        """The id of a node of the execution trace."""
        numbers = self.graph.key(Key.NODE_ID)
        found = numbers.values[numbers.rows == node]
        return int(found[0]) if node != UNKNOWN and len(found) else None

    def where(self, row: int) -> str:
        """The thread or stream of an event."""
        return track_in_words(self.graph, int(self.graph.events.track[row]))

    def callers(self, row: int) -> list[int]:
        """The events that called it, innermost first."""
        found: list[int] = []
        while (row := int(self._caller[row])) != UNKNOWN and row not in found:
            found.append(row)
        return found

    def outermost_wrapper(self, operator: int) -> int:
        """The outermost of the operators that only forward a call."""
        wrappers = [operator, *self.callers(operator)]
        return [
            row for row in wrappers if row == operator or COLLECTIVE_OPERATOR.match(self.graph.name(row))
        ][-1]

    def operators_above(self, row: int) -> tuple[str, ...]:
        """Names of operators, modules and annotations around it, outermost first."""
        names = [
            self.graph.name(callers) for callers in reversed(self.callers(row)) if not self._is_code(callers)
        ]
        return tuple(name for name in names if not ROOT.match(name))

    def frames(self, row: int) -> tuple[Frame, ...]:
        """The Python stack, innermost first, without torch and without Python's start-up frames."""
        frames = [
            frame_of(self.graph.name(callers)) for callers in self.callers(row) if self._is_code(callers)
        ]
        return of_program([frame for frame in frames if frame])

    def work(self, operator: int, annotation: int, kernel: int) -> WorkSeen | None:
        """The kernel of a call, else what another thread does for it."""
        track = self.graph.events.track
        if kernel != UNKNOWN:
            return self._work(kernel)
        if annotation == UNKNOWN or (operator != UNKNOWN and track[annotation] == track[operator]):
            return None
        return self._work(annotation)

    def launched(self, operator: int, work: WorkSeen | None, kernel: int) -> bool | None:
        """True if a call launched work on a device, including work that did not end within the profile."""
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
        """True if it is a line of Python, or a function without one."""
        return bool(self.graph.events.kind[row] == EventKind.PYTHON) and is_code(self.graph.name(row))


def track_in_words(graph: EventGraph, number: int) -> str:
    """`stream 7`, `thread 1854 (pt_gloo_runloop)`."""
    track = graph.tracks[number]
    return track.label or f"{'stream' if track.kind is TrackKind.STREAM else 'thread'} {track.identity}"


def find_sighting(profile: Profile, target: TargetCall) -> Sighting:
    """What profiles show of a call."""
    index = _target_call(profile, target)
    shown = (
        index if index is not None and profile.shown_calls()[index] else _call_before(profile, target, index)
    )
    exact = shown is not None and shown == index
    sequence = UNKNOWN if shown is None else int(profile.calls.sequence[shown])
    unknown = target.sequence is None or sequence < 0
    before = 0 if exact else None if unknown else (target.sequence or 0) - sequence
    later = _call_after(profile, target) if target.with_activity else None
    return Sighting(
        target.rank,
        target.role,
        profile.sources,
        profile.start,
        profile.end,
        None if shown is None else _call_seen(profile, shown, before),
        None if later is None else _call_seen(profile, later, None),
        _activity(profile, target, shown if exact else None, later) if target.with_activity else (),
        _note(profile, target, exact=exact),
    )


def _target_call(profile: Profile, target: TargetCall) -> int | None:
    """The call of this entry; for an entry that closes others one of these."""
    if target.index is None:
        return None
    events, calls = profile.graph.events, profile.calls
    record = np.flatnonzero((events.kind == EventKind.RECORD) & (events.payload == target.index))
    found = np.flatnonzero(np.isin(calls.record, record))
    if not len(found) and target.sequence is not None:
        found = np.flatnonzero(profile.of_group(target) & (calls.sequence == target.sequence))
    return int(found[-1]) if len(found) else None


def _call_before(profile: Profile, target: TargetCall, index: int | None) -> int | None:
    """The last earlier call of the same group and operation that profiles show; of the same size if possible."""
    calls = profile.calls
    known = profile.shown_calls() & profile.of_group(target) & profile.of_operation(target.operation)
    if target.sequence is not None:
        known &= calls.sequence < target.sequence
    similar = known if index is None else known & (calls.elements_in == calls.elements_in[index])
    rows = np.flatnonzero(similar if similar.any() else known)
    return int(rows[-1]) if len(rows) else None


def _call_after(profile: Profile, target: TargetCall) -> int | None:
    """The next call that the profile shows and the dump does not contain."""
    calls = profile.calls
    if target.created_ns is None:
        return None
    after = (calls.operator != UNKNOWN) & (calls.record == UNKNOWN) & (calls.enqueued > target.created_ns)
    rows = np.flatnonzero(after)
    return int(rows[calls.enqueued[rows].argmin()]) if len(rows) else None


def _call_seen(profile: Profile, index: int, before: int | None) -> CallSeen:
    calls, events = profile.calls, profile.graph.events
    operator, node, kernel = (int(column[index]) for column in (calls.operator, calls.node, calls.kernel))
    row = operator if operator != UNKNOWN else node
    work = profile.work(operator, int(calls.annotation[index]), kernel)
    sequence, length = int(calls.sequence[index]), int(events.duration[row])
    return CallSeen(
        operation=profile.text(calls.operation[index]),
        group=profile.text(calls.group[index]),
        sequence=sequence if sequence >= 0 else None,
        before=before,
        operator=profile.graph.name(row),
        thread=profile.where(row),
        start_ns=int(events.start[row]) if events.timed[row] else None,
        duration_ns=length if events.timed[row] and length >= 0 else None,
        around=profile.operators_above(row),
        frames=profile.frames(row),
        node=profile.node_number(node),
        work=work,
        launched=profile.launched(operator, work, kernel),
    )


def _note(profile: Profile, target: TargetCall, *, exact: bool) -> str:
    """Why the call itself is not shown."""
    start, end, created = profile.start, profile.end, target.created_ns
    if start is None or end is None:
        return "it has no times: its calls are matched by their order"
    if exact or (created is None and target.index is not None):
        return ""
    if created is None:
        return "this rank has no dump: its last call of this kind is shown"
    if created > end:
        return f"it ends {duration(created - end)} before this call"
    if created < start:
        return f"it starts {duration(start - created)} after this call"
    return "it does not contain this call"


def _activity(
    profile: Profile, target: TargetCall, shown: int | None, later: int | None
) -> tuple[Stretch, ...]:
    """From its last call until the next one, or until the end of the profile."""
    calls, events = profile.calls, profile.graph.events
    issued = calls.operator[calls.operator != UNKNOWN]
    if profile.end is None or not len(issued):
        return ()
    last = int(calls.operator[shown]) if shown is not None else UNKNOWN
    if last == UNKNOWN and target.created_ns is None:
        last = int(issued[events.end[issued].argmax()])
    start, end = target.created_ns or profile.end, profile.end
    if last != UNKNOWN:
        start = int(events.end[profile.outermost_wrapper(last)])
    if later is not None:
        end = int(events.start[profile.outermost_wrapper(int(calls.operator[later]))])
    track = int(events.track[last if last != UNKNOWN else issued[-1]])
    device_work = calls.annotation[calls.annotation != UNKNOWN]
    return find_activity(profile.graph, start, end, track, device_work) if end > start else ()


def find_activity(
    graph: EventGraph, start: int, end: int, track: int, without: Int64s
) -> tuple[Stretch, ...]:
    """What ran for more than half of the time, by thread and stream; `track` comes first.

    Events that overlap this long on one track are nested: each is called by the one that starts before it.
    """
    events = graph.events
    shown = events.timed & events.of_kind(*ON_THREAD, *GPU_WORK)
    shown[without] = False
    rows = np.flatnonzero(shown)
    ends = np.where(events.duration[rows] < 0, end, events.end[rows])
    overlap = np.minimum(ends, end) - np.maximum(events.start[rows], start)
    long = overlap * 2 > end - start
    rows, overlap = rows[long], overlap[long]
    order = np.lexsort((-events.duration[rows], events.start[rows]))
    rows, overlap = rows[order], overlap[order]
    tracks = dict.fromkeys(events.track[rows].tolist())
    stretches = []
    for number in sorted(tracks, key=lambda number: number != track)[:MOST_TRACKS]:
        own = events.track[rows] == number
        running = _running(graph, rows[own], overlap[own])
        if running:
            stretches.append(Stretch(track_in_words(graph, number), start, end - start, running))
    return tuple(stretches)


def _running(graph: EventGraph, rows: Int64s, overlap: Int64s) -> tuple[Running, ...]:
    running: list[Running] = []
    for row, time in zip(rows.tolist(), overlap.tolist(), strict=True):
        name = graph.name(row)
        if name.startswith(PROFILER):
            break
        frame = frame_of(name)
        if not OF_TORCH_IN_PROFILES.match(name) and (
            running or not frame or not starts_a_program(frame.filename)
        ):
            running.append(Running(name, time))
    return tuple(running)


# Roots that profiles name in broadcasts, reduces, gathers and scatters.


def roots_of(journal: Journal, tasks: Sequence[Task], engine: Engine) -> tuple[Roots, list[Finding]]:
    """The roots that profiles name; no profile is read unless an operation has a root."""
    timed = {task.likely_rank for task in find_profiles(tasks) if task.content is not Content.NODES}
    with_roots = set(np.unique(journal.rank[mark_rooted_entries(journal)]).tolist())
    by_rank = sources_of(with_roots & timed, tasks, journal)
    sources = [source for own in by_rank.values() for source in own]
    if len(by_rank) < 2:
        return Roots.empty(), []
    if (size := sum(source.bytes for source in sources)) > MOST_BYTES:
        message = (
            f"roots of collectives were not compared: profiles of {len(by_rank)} ranks have {size / 1e9:.1f} GB. "
            "Give only the profiles of the ranks in question."
        )
        return Roots.empty(), [Finding(Severity.INFO, "roots_unchecked", message, len(by_rank))]
    try:
        gathered = read_ranks(Discovery(sources), engine, with_events=False)
    except TraceError as error:
        message = f"roots of collectives were not compared: {error}"
        return Roots.empty(), [Finding(Severity.WARNING, "roots_unreadable", message, source=error.source)]
    calls = (gathered.store.get(rank.calls.calls) for rank in gathered.ranks)
    rows = [row for own in calls for row in _root_rows(own, journal)]
    return Roots.of_rows(rows), [
        finding for finding in gathered.findings if finding.severity is Severity.ERROR
    ]


def _root_rows(calls: RankCalls, journal: Journal) -> list[tuple[int, int, int, int]]:
    """Group, sequence number, rank and root of calls that a profile shows at the time of their entry."""
    table = calls.calls
    rooted = [code for code, text in enumerate(calls.strings) if text in ROOTED]
    known = np.isin(table.operation, rooted) & (table.record != UNKNOWN) & (table.operator != UNKNOWN)
    known &= (table.source != UNKNOWN) & (table.sequence != UNKNOWN) & ~table.point_to_point
    rows: list[tuple[int, int, int, int]] = []
    for row in np.flatnonzero(known).tolist():
        code = int(table.group[row])
        name = calls.strings[code] if code != UNKNOWN else ""
        group = journal.group_rows.get((calls.rank, name), UNKNOWN)
        root = int(table.source[row])
        if table.global_ranks[row] and group != UNKNOWN:
            members = journal.groups[group].ranks
            root = members.index(root) if root in members else UNKNOWN
        if UNKNOWN not in (group, root):
            rows.append((group, int(table.sequence[row]), calls.rank, root))
    return rows
