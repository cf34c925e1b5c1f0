"""The process groups that a dump describes, and those that its entries name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import orjson

from tracelink.converters.flight_recorder import schema
from tracelink.converters.flight_recorder.values import GroupName
from tracelink.findings import Finding, Severity
from tracelink.ranks import LARGEST_RANK
from tracelink.trace import ProcessGroup

Ranks = tuple[int, ...]

KEPT_LISTS = 64
"""All dumps of a job spell the same long lists of members: so many that were met last are not parsed again."""


def groups_of(config: Any, named: Sequence[GroupName], path: str) -> tuple[list[ProcessGroup], list[Finding]]:
    """Every group once: described by the dump, or only named by an entry, which alone knows descriptions."""
    descriptions: dict[str, str] = {}
    for name, text in named:
        descriptions[name] = descriptions.get(name) or text
    described, wrong = _described(config)
    groups = [
        _group(name, text or descriptions.get(name, ""), ranks) for name, (text, ranks) in described.items()
    ]
    groups += [_group(name, text, ()) for name, text in descriptions.items() if name not in described]
    if not wrong:
        return groups, []
    message = (
        f"{schema.GROUP_CONFIG} does not list the ranks of {len(wrong)} groups in a way that can be read"
    )
    return groups, [Finding(Severity.WARNING, "group-members", message, len(wrong), path, wrong[0])]


def _group(name: str, description: str, ranks: Ranks) -> ProcessGroup:
    return ProcessGroup(name, description, ranks, size=len(ranks))


def _described(config: Any) -> tuple[dict[str, tuple[str, Ranks]], list[str]]:
    """Description and ranks by name, and the names of groups whose ranks cannot be read."""
    if type(config) is not dict:
        return {}, []
    described: dict[str, tuple[str, Ranks]] = {}
    wrong: list[str] = []
    read: dict[int, Ranks | None] = {}
    for key, value in config.items():
        if type(key) not in (str, int):
            continue
        name, description, ranks = _spelt(key, value)
        if id(ranks) not in read:  # many groups may share one list, which is read once
            read[id(ranks)] = _ranks(ranks)
        members = read[id(ranks)]
        if members is None:
            wrong.append(name)
        if name or members:  # torch on gloo describes one group without a name and without ranks: no group
            described[name] = (description, members or ())
    return described, wrong


def _spelt(key: str | int, value: Any) -> tuple[str, str, Any]:
    """Name, description and ranks, whichever way they are written down."""
    if not isinstance(value, Mapping):
        return str(key), "", value
    name = value.get(schema.GROUP_NAME, key)
    description = value.get(schema.GROUP_DESCRIPTION, "")
    return (
        name if type(name) is str else str(key),
        description if type(description) is str else "",
        value.get(schema.GROUP_RANKS, ()),
    )


def _ranks(value: Any) -> Ranks | None:
    return _listed(value) if type(value) is str else _checked(value)


@lru_cache(maxsize=KEPT_LISTS)
def _listed(text: str) -> Ranks | None:
    try:
        return _checked(orjson.loads(text))
    except orjson.JSONDecodeError:
        return None


def _checked(value: Any) -> Ranks | None:
    if type(value) not in (list, tuple) or not all(
        type(rank) is int and 0 <= rank <= LARGEST_RANK for rank in value
    ):
        return None
    return tuple(value)
