"""Field numbers."""

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
    """Packets, compressed."""
    CLOCK = 58
    DEFAULTS = 59
    TRACK = 60
    SERVICE = 69
    """What was done while the trace was recorded."""
    TRACELINK = 1999
    """JSON text for readers of tracelink's own; a number that Perfetto has no field for."""


class Fact(StrEnum):
    """Members of the JSON text that stands before the tracks of a rank, or of groups."""

    RANK = "rank"
    """Of groups there is none."""
    PROCESSES = "processes"
    """Number, name, label, and number in the source where there is one."""
    THREADS = "threads"
    """Process, number, name, and number in the source where there is one; tracks of events have these numbers."""
    COUNTERS = "counters"
    """Number of the track, process, name."""
    FIRST_ARROW = "first arrow"
    ARROWS = "arrows"
    """By their numbers: name, how many, and how many of those, the last, lead from the event that is met second."""


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
    """Events with the same number here have the same colour, whatever their names are."""


class Defaults(IntEnum):
    """Fields of what packets of a sequence do not say themselves."""

    CLOCK = 58


class Type(IntEnum):
    """What an event on a track is."""

    BEGIN = 1
    END = 2
    INSTANT = 3
    COUNTER = 4


class Table(IntEnum):
    """Tables of texts that events name by number."""

    CATEGORIES = 1
    NAMES = 2
    ARGUMENT_NAMES = 3


class Entry(IntEnum):
    """Fields of a table's entry."""

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
    """Fields of what a track has that is a counter."""

    UNIT = 3
    UNIT_NAME = 6


UNITS = {COUNT: 2, BYTES: 3}
"""Numbers of those units that have one."""


class Clock(IntEnum):
    """Fields of a clock's reading."""

    NUMBER = 1
    TIME = 2
    INCREMENTAL = 3


READING = 1
"""The field of a clock snapshot that holds a clock's reading."""

REAL_TIME, BOOT_TIME, OWN_CLOCK = 1, 6, 64
"""Clocks: since the Unix epoch; the one that traces are in; the first that a sequence has for itself."""

RED = 262
"""The number of which viewers make a red, be it by its hash or by their common palette."""


class Service(IntEnum):
    """Fields of what was done while a trace was recorded."""

    FLUSHED = 3
    READ = 4


CLEARED = 1
"""Flag of the first packet of a sequence: whatever came before does not count."""

BY_RANK = 3
"""Children of a track in the order of their ranks."""
