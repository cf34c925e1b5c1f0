"""The fields of capture files (`capture_N.json`), version 1."""

from __future__ import annotations

from typing import Annotated

import msgspec

from tracelink._io.sources import LARGEST_RANK

VERSION = 1
LARGEST = 64 << 20
"""Bytes of a capture file: groups list all of their ranks."""

Text = Annotated[str, msgspec.Meta(max_length=4096)]
Time = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
"""Nanoseconds: since 1970 by the wall clock of the host, or since any moment by its monotonic clock."""
RankNumber = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_RANK)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Size = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_RANK + 1)]
"""Number of ranks."""


class Group(msgspec.Struct, omit_defaults=True):
    """A process group that the rank belongs to."""

    name: Text
    description: Text = ""
    ranks: list[RankNumber] = []
    """In the order of the group."""
    size: Size = 0
    backend: Text = ""


class Mesh(msgspec.Struct, omit_defaults=True):
    """A device mesh."""

    dimensions: list[Text] = []
    shape: list[Count] = []
    ranks: list[RankNumber] = []
    """Row by row."""


class Reading(msgspec.Struct):
    """Both clocks of the host, read at the same moment."""

    wall_ns: Time
    monotonic_ns: Time


class RoundTrip(msgspec.Struct):
    """A question to rank 0 over the store, which answers with its wall clock."""

    sent_ns: Time
    rank0_ns: Time
    received_ns: Time


class Window(msgspec.Struct):
    """Steps that were recorded."""

    first: Count
    last: Count
    start_ns: Time
    end_ns: Time = 0
    """0 while it is recorded."""
    complete: bool = False
    """False if the recording ended before the last step did."""


class File(msgspec.Struct):
    """A file that was written."""

    path: Text
    """Within the folder of the capture."""
    kind: Text
    """`kineto`, `execution-trace`, `flight-recorder`, `stacks` or `metrics`."""
    bytes: Count


class Dump(msgspec.Struct, omit_defaults=True):
    """When and why the recorder was dumped."""

    reason: Text
    """`end`, `exception`, `watchdog` or the name of a signal."""
    time_ns: Time
    step: Count
    """The step that was not over."""
    files: list[Text] = []


class Trouble(msgspec.Struct, omit_defaults=True):
    """What could not be recorded, or only in part."""

    subject: Text
    message: Text
    advice: Text = ""


class Capture(msgspec.Struct):
    """All of a capture file."""

    tracelink_capture: Annotated[int, msgspec.Meta(ge=1)]
    """The version of these fields."""
    tracelink: Text
    """The version of the program that wrote it."""
    rank: RankNumber
    rank_from: Text
    """`torch.distributed`, the name of a variable of the environment, or `assumed`."""
    world_size: Size
    host: Text
    pid: Count
    local_rank: RankNumber | None = None
    start_ns: Time = 0
    end_ns: Time = 0
    """0 while it is recorded, or if the process was killed."""
    outcome: Text = "running"
    """`running`, `finished`, `terminated`, or the type of the exception that left the block."""
    steps: Count = 0
    """Steps that ended."""
    groups: list[Group] = []
    meshes: list[Mesh] = []
    versions: dict[Text, Text] = {}
    environment: dict[Text, Text] = {}
    options: dict[Text, Text] = {}
    windows: list[Window] = []
    files: list[File] = []
    dumps: list[Dump] = []
    readings: list[Reading] = []
    round_trips: list[RoundTrip] = []
    troubles: list[Trouble] = []
