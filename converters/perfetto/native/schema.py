"""Field numbers of Perfetto's native format, and the keys of tracelink's own packets."""

from __future__ import annotations

from enum import IntEnum, StrEnum

from tracelink._model.events import BYTES, COUNT

PACKET = 1
"""The only field of a trace."""


class Packet(IntEnum):
    """Fields of a packet."""

    CLOCK_SNAPSHOT = 6
    """Only in traces of other programs: viewers would show a group for it above all tracks."""
    TIME = 8
    """Nanoseconds after the base of the job."""
    SEQUENCE = 10
    TRACK_EVENT = 11
    INTERNED = 12
    FLAGS = 13
    BUNDLE = 50
    """Compressed packets."""
    TRACK = 60
    SERVICE = 69
    """Events of the tracing service while a trace is recorded."""
    TRACELINK = 1999
    """JSON for tracelink's own reader; Perfetto has no field with this number."""


class Fact(StrEnum):
    """Keys of the JSON before the tracks of a rank, or of all process groups."""

    RANK = "rank"
    """Missing for process groups."""
    TITLE = "title"
    """The rank and its host; of process groups, the number of ranks."""
    PROCESSES = "processes"
    """Number, name, label, and the number in the source if known."""
    THREADS = "threads"
    """Process, number, name, and the number in the source if known; tracks of events have these numbers."""
    COUNTERS = "counters"
    """Number of the track, process, name."""
    FIRST_FLOW = "first arrow"
    FLOWS = "arrows"
    """In the order of their numbers: name, how many, and how many of them, the last ones, run to an earlier event."""
    SCOPES = "scopes"
    """The scope in JSON of instants that concern more than their thread, by name."""


FIRST_VIEW_TRACK = 1 << 32
"""Tracks from this number on repeat for viewers what others contain: the reader skips them."""

CLOCK_TRACK, UNIX_TIME_TRACK = FIRST_VIEW_TRACK, FIRST_VIEW_TRACK + 1
"""The tracks of real time; the second is below the first: viewers show a track at the top level only if it has such."""

OVERVIEW_PROCESS, FIRST_OVERVIEW = FIRST_VIEW_TRACK + 2, FIRST_VIEW_TRACK + 16
"""The process of all ranks, and the number of the track of rank 0 in it."""


class Event(IntEnum):
    """Fields of an event on a track."""

    CATEGORY = 3
    ARGUMENT = 4
    TYPE = 9
    NAME = 10
    TRACK = 11
    DOUBLE_VALUE = 44
    FLOW = 47
    LAST_OF_FLOW = 48
    COLOUR = 52
    """Events with equal numbers have equal colours, whatever their names."""


class Type(IntEnum):
    """Types of events on a track."""

    BEGIN = 1
    END = 2
    INSTANT = 3
    COUNTER = 4


class Table(IntEnum):
    """Tables of interned strings."""

    CATEGORIES = 1
    NAMES = 2
    ARGUMENT_NAMES = 3


class Entry(IntEnum):
    """Fields of an interned string."""

    NUMBER = 1
    TEXT = 2


class Argument(IntEnum):
    """Fields of an argument."""

    NAME = 1
    JSON = 9


class Track(IntEnum):
    """Fields of a track."""

    NUMBER = 1
    NAME = 2
    PROCESS = 3
    THREAD = 4
    PARENT = 5
    COUNTER = 8
    CHILD_ORDERING = 11
    RANK = 12


class Process(IntEnum):
    """Fields of a track that is a process."""

    NUMBER = 1
    NAME = 6


class Thread(IntEnum):
    """Fields of a track that is a thread."""

    PROCESS = 1
    NUMBER = 2
    NAME = 5


class Counter(IntEnum):
    """Fields of a track that is a counter."""

    UNIT = 3
    UNIT_NAME = 6


UNITS = {COUNT: 2, BYTES: 3}
"""Units with a number of their own."""


RED = 262
"""Viewers draw this number in red, by its hash or by their palette."""


class Service(IntEnum):
    """Fields of an event of the tracing service."""

    FLUSHED = 3
    READ = 4


CLEARED = 1
"""Flag of the first packet of a sequence: everything before it is void."""

BY_RANK = 3
"""Children of a track are sorted by their ranks."""
