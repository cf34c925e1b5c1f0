"""Dumps of the recorder of torchcomms: the same layout, but one count of operations for all communicators of a process.

Input: the fields of a dump. Output: the same fields with numbers within each group, as c10d counts them. A message
names no peer, so it gets no number. An entry retires when its call returns, not when its work ends.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._model.columns import UNKNOWN, Bools, Int64s, StringTable
from tracelink._model.findings import Finding, Severity
from tracelink._model.operations import POINT_TO_POINT, operation_of
from tracelink._model.text import subject
from tracelink.converters.flight_recorder.entries import Fields

_BATCH_OF_MESSAGES = "batch_op_issue"
"""Sends and receives that are issued together, and are recorded as one operation of the rank alone."""


class Numbered(Struct, frozen=True):
    """Fields with numbers within each group, and what is not numbered."""

    fields: Fields
    findings: tuple[Finding, ...]


def numbered(fields: Fields, strings: StringTable, described: int, path: str) -> Numbered | None:
    """The fields of a dump whose header describes so many groups; None if torchcomms did not write it."""
    if not _is_of_torchcomms(fields, strings):
        return None
    message = _messages(fields, strings)
    counted = _counted(fields, message)
    if counted is None and max(described, len(fields.groups)) == 1 and not message.any():
        counted = fields.collective + 1
    unnumbered = 0 if counted is not None else int(np.count_nonzero(~message))
    collective = np.full(len(fields), UNKNOWN) if counted is None else np.where(message, UNKNOWN, counted)
    found = replace(
        fields,
        collective=collective,
        p2p=np.full(len(fields), UNKNOWN),
        is_message=fields.is_message | message,
    )
    return Numbered(found, tuple(_findings(unnumbered, path)))


def _is_of_torchcomms(fields: Fields, strings: StringTable) -> bool:
    """Whether each group is described by the backend of its operations, and one count runs through all groups."""
    if not len(fields) or (fields.p2p > 0).any() or fields.is_message.any():
        return False
    names = strings.texts()
    operation = fields.requests.distinct.operation[fields.requests.request]
    pairs = np.unique(fields.group << 32 | operation.astype(np.int64)).tolist()
    described = all(
        (backend := fields.groups[pair >> 32][1]) and names[pair & 0xFFFFFFFF].startswith(f"{backend}:")
        for pair in pairs
    )
    numbers = fields.collective
    counts_from_1 = len(fields.groups) == 1 and int(numbers[0]) == fields.first_record + 1
    return described and not counts_from_1 and bool((np.diff(numbers) > 0).all())


def _messages(fields: Fields, strings: StringTable) -> Bools:
    names = strings.texts()
    of_messages = (*POINT_TO_POINT, _BATCH_OF_MESSAGES)
    distinct = [
        operation_of(names[code]) in of_messages for code in fields.requests.distinct.operation.tolist()
    ]
    found: Bools = np.array(distinct, np.bool_)[fields.requests.request]
    return found


def _counted(fields: Fields, message: Bools) -> Int64s | None:
    """The number of each collective within its group, from 1; None if earlier entries are not in the dump."""
    if fields.first_record or int(fields.collective[0]) or fields.skipped:
        return None
    order = np.argsort(fields.group, kind="stable")
    counts = np.cumsum(~message[order])
    first = np.searchsorted(fields.group[order], fields.group[order])
    before = np.where(first > 0, counts[first - 1], 0)
    numbers = np.empty(len(fields), np.int64)
    numbers[order] = counts - before
    return numbers


def _findings(unnumbered: int, path: str) -> list[Finding]:
    if not unnumbered:
        return []
    text = (
        f"{subject(unnumbered, 'collective', 'are')} not matched with other ranks: torchcomms counts the operations of "
        "all communicators together, and earlier ones are not in the dump. Set a larger TORCHCOMM_FR_BUFFER_SIZE."
    )
    return [Finding(Severity.WARNING, "unnumbered", text, unnumbered, path)]
