"""Field numbers of Perfetto's native format, and the keys and numbers that tracelink has in its own traces."""

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
    """In traces of tracelink: nanoseconds after the base of the job."""
    SEQUENCE = 10
    TRACK_EVENT = 11
    INTERNED = 12
    FLAGS = 13
    CLEARED = 41
    """The flag as a field of its own, in old traces."""
    BUNDLE = 50
    """Compressed packets."""
    GPU_COUNTERS = 52
    GPU_STAGE = 53
    CLOCK = 58
    DEFAULTS = 59
    TRACK = 60
    SERVICE = 69
    """Events of the tracing service while a trace is recorded."""
    ZSTD_BUNDLE = 133
    TRACELINK = 1999
    """JSON for tracelink's own reader; Perfetto has no field with this number."""


CLEARED, NEEDS_STATE = 1, 2
"""Flags of a packet: everything before it in its sequence is void; it refers to an earlier one."""


class Event(IntEnum):
    """Fields of an event on a track."""

    CATEGORY = 3
    ANNOTATION = 4
    TYPE = 9
    NAME = 10
    TRACK = 11
    EXTRA_VALUE = 12
    CATEGORY_TEXT = 22
    NAME_TEXT = 23
    VALUE = 30
    OLD_FLOW = 36
    OLD_LAST_OF_FLOW = 42
    DOUBLE_VALUE = 44
    EXTRA_DOUBLE_VALUE = 46
    FLOW = 47
    LAST_OF_FLOW = 48
    COLOUR = 52
    """Events with equal numbers have equal colours, whatever their names."""
    GPU = 3000
    """The stages on a GPU that the event submitted."""


class Type(IntEnum):
    """Types of events on a track."""

    BEGIN = 1
    END = 2
    INSTANT = 3
    COUNTER = 4


class TextTable(IntEnum):
    """Tables of interned texts; the numbers of each are its own."""

    CATEGORIES = 1
    NAMES = 2
    ANNOTATION_NAMES = 3
    STAGES = 24
    STRINGS = 29
    COUNTERS = 47
    KERNELS = 1000
    ARGUMENTS = 1001


class Entry(IntEnum):
    """Fields of an interned text."""

    NUMBER = 1
    TEXT = 2


class Annotation(IntEnum):
    """Fields of an argument of an event; those of tracelink are JSON."""

    NAME = 1
    BOOL = 2
    UNSIGNED = 3
    INTEGER = 4
    DOUBLE = 5
    STRING = 6
    POINTER = 7
    NESTED = 8
    JSON = 9
    NAME_TEXT = 10
    ENTRIES = 11
    VALUES = 12
    STRING_NUMBER = 17


class Stage(IntEnum):
    """Fields of a stage on a GPU."""

    NUMBER = 1
    DURATION = 2
    QUEUE_BEFORE_2020 = 3
    CONTEXT = 5
    EXTRA = 6
    GPU = 11
    QUEUE = 13
    STAGE = 14
    NAME_TEXT = 17
    WAITS_FOR = 18
    KERNEL = 19
    NAME = 20
    LAUNCH = 21


class Track(IntEnum):
    """Fields of a track."""

    NUMBER = 1
    NAME = 2
    PROCESS = 3
    THREAD = 4
    PARENT = 5
    COUNTER = 8
    STATIC_NAME = 10
    CHILD_ORDERING = 11
    RANK = 12
    ATRACE_NAME = 13


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


UNITS = {1: "ns", 2: COUNT, 3: BYTES}
"""Units of counters by their numbers."""


class Service(IntEnum):
    """Fields of an event of the tracing service."""

    FLUSHED = 3
    READ = 4


REALTIME, BOOTTIME = 1, 6
"""Clocks; packets without one are of BOOTTIME."""
FIRST_LOCAL, LAST_LOCAL = 64, 127
"""Clocks of one sequence only."""

BY_RANK = 3
"""Children of a track are sorted by their ranks."""

RED = 262
"""Viewers draw this number in red, by its hash or by their palette."""

# Traces of tracelink.


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
