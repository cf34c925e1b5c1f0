"""How far a process says it got in each group."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracelink.converters.flight_recorder.fields import Fields
from tracelink.converters.flight_recorder.schema import (
    GROUP_CONFIG,
    GROUP_STATUS,
    LAST_COMPLETED,
    LAST_ENQUEUED,
    LAST_STARTED,
    Dump,
)
from tracelink.records import Progress


def progress_of(dump: Dump, fields: Fields) -> dict[str, Progress]:
    """By the name of the group, as far as an entry tells which name a number of the process stands for.

    A group has a status once it is used. So one that is described, and is none of those whose names were
    overwritten, was never used.
    """
    status = dump.header.get(GROUP_STATUS)
    if type(status) is not dict or not dump.layout.group:
        return {}
    names = _names(fields)
    told = {names[key]: _progress(value) for key, value in status.items() if key in names}
    nameless = [_progress(value) for key, value in status.items() if key not in names]
    if status and all(one.enqueued < 0 for one in nameless):
        config = dump.header.get(GROUP_CONFIG)
        described = config if type(config) is dict else {}
        told |= {name: Progress() for name in described if type(name) is str and name not in told}
    return told


def _names(fields: Fields) -> dict[str, str]:
    """The name of each group by its number as text; the last entry with a number tells."""
    numbers, last = np.unique(fields.group_id[::-1], return_index=True)
    groups = fields.group[::-1][last]
    pairs = zip(numbers.tolist(), groups.tolist(), strict=True)
    return {str(number): fields.groups[group][0] for number, group in pairs}


def _progress(value: Any) -> Progress:
    said = value if type(value) is dict else {}
    return Progress(*(_number(said.get(name)) for name in (LAST_ENQUEUED, LAST_STARTED, LAST_COMPLETED)))


def _number(value: Any) -> int:
    """The JSON variant writes numbers as texts."""
    try:
        return max(int(value), -1) if type(value) in (int, str) else -1
    except ValueError:
        return -1
