"""Flight-recorder dumps: entries as columns (`Records`, `Requests`), single entries (`Entry`), and frames of stacks."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import dropwhile
from pathlib import PurePath
from typing import Annotated

from msgspec import Struct, field

from tracelink._model.columns import UNKNOWN, Bools, Codes, Int8s, Int32s, Int64s, Table, Times
from tracelink._model.fields import Count, Doc, Row, Unit, UnixNanoseconds
from tracelink._model.findings import Finding
from tracelink._model.trace import NoPayloads, ProcessGroup, SourceInfo


class Frame(Row, frozen=True):
    """One frame of a Python stack."""

    name: str
    filename: str
    line: Count


Frames = tuple[Frame, ...]
STACK = "The Python stack, innermost first, without frames of torch"
"""What frames of the program are, for descriptions."""
Sizes = Annotated[Sequence[Sequence[int]], Doc("One list for each tensor.")]
SequenceNumber = Annotated[
    Count | None,
    Unit.NAME,
    Doc("Its number within the group; messages and collectives are numbered separately."),
]
Retired = Annotated[bool | None, Doc("True if it has left the list of work: finished, failed or timed out.")]
Created = Annotated[
    UnixNanoseconds | None, Doc("When it was requested, in ns since 1970 on the rank's own clock.")
]


COMPILER = re.compile(r"(?:^|/)torch/_(?:dynamo|inductor)/")
RUNS_COMPILED_CODE = re.compile(
    r"torch/_dynamo/(?:eval_frame|external_utils|compiled_autograd|decorators|guards|polyfills/\w+|utils"
    r"|backends/distributed)\.py$|torch/_inductor/(?:runtime/.*|output_code|utils|cudagraph_\w+)\.py$"
)
"""Files of the compiler that are also on the stack while compiled code runs."""
RUNS_COMPILED_GRAPHS = frozenset({"run", "__call__", "call"})
"""The same for functions of its other files."""


def compiler_frame(frames: Sequence[Frame]) -> Frame | None:
    """The innermost frame in torch's compiler, if a stack shows that it compiles; not if it runs compiled code."""
    inside = [
        frame
        for frame in frames
        if COMPILER.search(frame.filename) and not RUNS_COMPILED_CODE.search(frame.filename)
    ]
    compiles = [
        frame for frame in inside if "_dynamo" in frame.filename or frame.name not in RUNS_COMPILED_GRAPHS
    ]
    return inside[0] if compiles else None


class Entry(Row, frozen=True):
    """An entry of the flight recorder, as recorded."""

    group: str
    description: str
    sequence: SequenceNumber
    operation: Annotated[str, Doc("As recorded: `nccl:all_reduce`, `nccl:send 1->2`.")]
    input_sizes: Sizes
    output_sizes: Sizes
    input_types: Sequence[str]
    output_types: Sequence[str]
    state: Annotated[
        str,
        Doc("`scheduled`, `started` or `completed`; empty if not recorded. On gloo always `scheduled`."),
    ]
    retired: Retired
    created_ns: Created
    timeout_ms: Count | None
    frames: Annotated[Frames, Doc(f"{STACK}; empty if no stacks were recorded.")]


# Entries as columns


class State(IntEnum):
    """How far an entry got."""

    UNKNOWN = -1
    SCHEDULED = 0
    STARTED = 1
    COMPLETED = 2


class Requests(Table, frozen=True):
    """One row for each distinct request for communication."""

    operation: Codes
    """As recorded: `nccl:all_reduce`, `nccl:send 1->2`."""
    source: Int32s
    target: Int32s
    """The ranks within the group that send and receive a message, or UNKNOWN."""
    elements_in: Int64s
    elements_out: Int64s
    """Elements of all input and output tensors; UNKNOWN if no tensor is recorded."""
    shape_in: Int64s
    shape_out: Int64s
    """Hashes of the sizes of all tensors: equal if the sizes are equal."""
    type_in: Codes
    type_out: Codes
    """The type of the first tensor."""


class Records(Table, frozen=True):
    """One row for each entry, in the order of the dump."""

    group: Codes
    """The name of the group."""
    request: Int32s
    """Row of the requests."""
    sequence: Int64s
    """The sequence number within the group: of messages if `point_to_point`, else of collectives; or UNKNOWN."""
    number: Int64s
    """The number of the operation within the group, which also counts those that are not recorded; or UNKNOWN."""
    life: Int8s
    """How many groups of this name the process had before: one that is destroyed and made again counts from 1 again."""
    point_to_point: Bools
    state: Int8s
    retired: Int8s
    """Whether it was removed from the list of pending work: 1, 0, or UNKNOWN."""
    created: Times
    started: Times
    completed: Times
    """Unix time in ns. The last two are when a watchdog noticed it: late by design."""
    timeout_ms: Int64s
    """The timeout of the operation, or UNKNOWN."""
    place: Int64s
    """The index of the entry in its dump."""
    record: Int64s
    """Its number among all entries of the process, which also counts those that are not in the dump."""
    site: Int32s
    """Where it was called: a hash of its stack, equal on all ranks for equal lines; or UNKNOWN."""


class Progress(Struct, frozen=True):
    """The last collectives of a process in one group, by sequence number; UNKNOWN if there were none."""

    enqueued: int = UNKNOWN
    started: int = UNKNOWN
    completed: int = UNKNOWN


class EntryPayloads(NoPayloads):
    """Payloads of a recording, of which entries can be read again; here, of a format that has no such parts."""

    def entries(self, places: Collection[int]) -> Mapping[int, Entry]:
        """The entries at these indices of the dump, without those that cannot be used."""
        return {}

    def details(self) -> Iterator[Details]:
        """Parts of all entries that records do not contain, some entries at a time, in the order of the dump."""
        return iter(())


class Recording(Struct, frozen=True):
    """One dump: its entries, its groups, and what is known about entries that it does not contain."""

    source: SourceInfo
    strings: Sequence[str]
    records: Records
    requests: Requests
    groups: Sequence[ProcessGroup] = ()
    progress: Mapping[str, Progress] = field(default_factory=dict)
    """By the name of the group."""
    numbers: Mapping[str, int] = field(default_factory=dict)
    """The number of groups among those that the process made, counted from 0, by their names; not of all groups."""
    made: int = UNKNOWN
    """How many groups the process made."""
    overwritten: int = 0
    """Number of entries that were overwritten before the dump."""
    only_active: bool = False
    """Whether the dump leaves out completed calls: all calls of a group before its first one here are completed."""
    skipped: int = 0
    """Number of entries with invalid fields, which are not in `records`."""
    last_skipped: int = UNKNOWN
    """The index of the last of them in the dump."""
    broken_off: bool = False
    """Whether the file is truncated: there may be more entries."""
    retires_early: bool = False
    """Whether entries retire when their call returns, so that a retired entry may be unfinished on any backend."""
    payloads: EntryPayloads = field(default_factory=EntryPayloads)
    findings: Sequence[Finding] = ()


# Parts of entries that records do not contain


class Texts(Struct, frozen=True):
    """A value of each entry as JSON, `null` without one; what many entries have is there once."""

    distinct: Sequence[bytes]
    row: Int64s
    """The text of each entry; UNKNOWN if it is too large to be written."""


class Details(Struct, frozen=True):
    """Parts of consecutive entries of a dump."""

    first: int
    """The index of the first entry in the dump."""
    input_sizes: Texts
    input_types: Texts
    output_sizes: Texts
    output_types: Texts
    stack: Texts
    duration_ms: Sequence[float | None]

    def __len__(self) -> int:
        return len(self.duration_ms)


# Frames of stacks: how dumps and profiles name the lines of a program, and which frames are its own


OF_TORCH = re.compile(
    r"(?:site|dist)-packages/(?:torch/|typing_extensions\.py)|/torch/(?:distributed|_\w+)/|^(?:\?\?)?$"
    r"|\.(?:c|cc|cpp|cu|h|hpp)$"
)
"""Files of torch itself, and of compiled code."""
OF_TORCH_IN_PROFILES = re.compile(r"^(?:torch/|typing_extensions\.py)")
"""Files of torch, as a profile names them: without the installation directory."""
PYTHON_FRAME = re.compile(r"(?P<file>.+)\((?P<line>\d{1,9})\): (?P<name>.+)")
"""How a profile names a Python function; modules and built-in functions have other names."""
BUILT_IN = re.compile(r"<built-in (?:method|function) (?P<name>\w+)\b.*>")


def line_in_words(frame: Frame) -> str:
    """`train.py:65`."""
    return f"{PurePath(frame.filename).name or '?'}:{frame.line}"


def own_frames(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """The stack without frames of torch, unless there are no others."""
    own = tuple(frame for frame in frames if not OF_TORCH.search(frame.filename))
    return own or tuple(frames)


def frame_of(name: str) -> Frame | None:
    """The stack frame with this name in a profile, if it is one."""
    match = PYTHON_FRAME.fullmatch(name)
    return Frame(match["name"], match["file"], int(match["line"])) if match else None


def readable_name(name: str) -> str:
    """`step (train.py:20)` for `train.py(20): step`, `run_backward` for `<built-in method run_backward of ...>`."""
    if frame := frame_of(name):
        return f"{frame.name} ({PurePath(frame.filename).name}:{frame.line})"
    built_in = BUILT_IN.fullmatch(name)
    return built_in["name"] if built_in else name


def is_code(name: str) -> bool:
    """Whether it names a Python function or a built-in function; modules have other names."""
    return bool(PYTHON_FRAME.fullmatch(name) or BUILT_IN.fullmatch(name))


def starts_a_program(filename: str) -> bool:
    """Whether the file is part of Python."""
    first = filename.partition("/")[0]
    return first.startswith("<") or first.removesuffix(".py") in sys.stdlib_module_names


def of_program(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """The stack without Python's start-up frames and without torch, unless there are no others."""
    started = dropwhile(lambda frame: starts_a_program(frame.filename), reversed(frames))
    own = [frame for frame in reversed(list(started)) if not OF_TORCH_IN_PROFILES.match(frame.filename)]
    return own_frames(own or frames)
