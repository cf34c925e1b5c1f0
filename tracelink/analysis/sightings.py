"""What the profiles of one rank show of a call that its recorder holds, and of what the rank did after it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.analysis.stretches import stretches_of
from tracelink.analysis.surroundings import Surroundings
from tracelink.analysis.wording import duration
from tracelink.collectives import RankCalls
from tracelink.communications import UNKNOWN, Calls
from tracelink.diagnosis import CallSeen, Role, Sighting, Stretch
from tracelink.events import GPU_WORK, ON_THREAD, Bools, EventKind, Key
from tracelink.graph import EventGraph
from tracelink.operations import operation_of


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
