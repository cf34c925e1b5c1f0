"""What entries say of communication: whom with, in which order, and how much of what."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import orjson

from tracelink.communications import UNKNOWN, Communications
from tracelink.converters.flight_recorder.requests import Asked
from tracelink.events import Int32s
from tracelink.records import Records
from tracelink.strings import StringTable
from tracelink.trace import ProcessGroup

SHAPED = ("gloo:", "mpi:", "ucc:")
"""Backends whose other records name no group: there only the shapes tell operations apart."""


def communications_of(
    records: Records, asked: Asked, groups: Sequence[ProcessGroup], strings: StringTable
) -> Communications:
    """One row for each record."""
    requests = asked.requests.take(asked.request)
    return Communications.of(
        np.arange(len(records)),
        operation=requests.operation,
        group=records.group,
        sequence=records.sequence,
        point_to_point=records.point_to_point,
        source=requests.source,
        target=requests.target,
        elements_in=requests.elements_in,
        elements_out=requests.elements_out,
        type=requests.type_in,
        size=_group_sizes(groups, strings)[records.group],
        shape=_shapes(asked, strings)[records.request],
    )


def _group_sizes(groups: Sequence[ProcessGroup], strings: StringTable) -> Int32s:
    """How many ranks a group has, by the code of its name."""
    size = np.full(len(strings), UNKNOWN, np.int32)
    for group in groups:
        if group.size and (code := strings.find(group.name)) != UNKNOWN:
            size[code] = group.size
    return size


def _shapes(asked: Asked, strings: StringTable) -> Int32s:
    """The sizes of each request as text, where they are needed."""
    texts = strings.texts()
    requests = asked.requests
    shapes = np.full(len(requests), UNKNOWN, np.int32)
    for row, (code, sizes) in enumerate(zip(requests.operation.tolist(), asked.sizes, strict=True)):
        if requests.elements_in[row] != UNKNOWN and texts[code].startswith(SHAPED):
            shapes[row] = strings[orjson.dumps(sizes).decode()]
    return shapes
