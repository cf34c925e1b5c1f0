"""Field numbers of Perfetto's native format, and the keys of tracelink's own packets."""

from __future__ import annotations

from enum import IntEnum, StrEnum

from tracelink.model.events import BYTES, COUNT

PACKET = 1
"""The only field of a trace."""


class Packet(IntEnum):
    """Fields of a packet."""

    CLOCK_SNAPSHOT = 6
    TIME = 8
    SEQUENCE = 10
    TRACK_EVENT = 11
    INTERNED = 12
    FLAGS = 13
    BUNDLE = 50
    """Compressed packets."""
    CLOCK = 58
    DEFAULTS = 59
    TRACK = 60
    SERVICE = 69
    """Events of the tracing service while a trace is recorded."""
    TRACELINK = 1999
    """JSON for tracelink's own reader; Perfetto has no field with this number."""


class Fact(StrEnum):
    """Keys of the JSON before the tracks of a rank, or of all process groups."""

    RANK = "rank"
    """Missing for process groups."""
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


class Defaults(IntEnum):
    """Fields of the defaults of a sequence."""

    CLOCK = 58


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
    PARENT = 5
    COUNTER = 8
    CHILD_ORDERING = 11
    RANK = 12


class Counter(IntEnum):
    """Fields of a track that is a counter."""

    UNIT = 3
    UNIT_NAME = 6


UNITS = {COUNT: 2, BYTES: 3}
"""Units with a number of their own."""


class Clock(IntEnum):
    """Fields of a reading of a clock."""

    NUMBER = 1
    TIME = 2
    INCREMENTAL = 3


READING = 1
"""The field of a clock snapshot that contains a reading."""

REAL_TIME, BOOT_TIME, OWN_CLOCK = 1, 6, 64
"""Clocks: since the Unix epoch; the clock of traces; the first one that a sequence can define for itself."""

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
