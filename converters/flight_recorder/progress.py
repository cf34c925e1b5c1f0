"""How far a process says it got in each group."""

from __future__ import annotations

from typing import Any

from tracelink.converters.flight_recorder.schema import (
    GROUP_CONFIG,
    LAST_COMPLETED,
    LAST_ENQUEUED,
    LAST_STARTED,
    Dump,
)
from tracelink.records import Progress


def progress_of(status: Any, dump: Dump) -> dict[str, Progress]:
    """By the name of the group, as far as an entry tells which name a number of the process stands for.

    A group has a status once it is used. So one that is described, and is none of those whose names were
    overwritten, was never used.
    """
    layout = dump.layout
    if type(status) is not dict or not layout.group:
        return {}
    names: dict[str, str] = {}
    for entry in reversed(dump.entries):
        if len(names) == len(status):
            break
        group = entry.get(layout.group) if type(entry) is dict else None
        if type(group) in (tuple, list) and group and type(group[0]) is str:
            names.setdefault(str(entry.get(layout.group_id)), group[0])
    told = {names[key]: _progress(value) for key, value in status.items() if key in names}
    nameless = [_progress(value) for key, value in status.items() if key not in names]
    if status and all(one.enqueued < 0 for one in nameless):
        config = dump.header.get(GROUP_CONFIG)
        described = config if type(config) is dict else {}
        told |= {name: Progress() for name in described if type(name) is str and name not in told}
    return told


def _progress(value: Any) -> Progress:
    said = value if type(value) is dict else {}
    return Progress(*(_number(said.get(name)) for name in (LAST_ENQUEUED, LAST_STARTED, LAST_COMPLETED)))


def _number(value: Any) -> int:
    """The JSON variant writes numbers as texts."""
    try:
        return max(int(value), -1) if type(value) in (int, str) else -1
    except ValueError:
        return -1
