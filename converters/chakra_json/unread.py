"""What a linked trace says that cannot be used, or does not say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from tracelink.converters.chakra_json.linked_nodes import START, UNUSABLE
from tracelink.converters.chakra_json.schema import BASE_TIME
from tracelink.converters.chakra_json.stated import Stated
from tracelink.events import NO_TIME, Int64s
from tracelink.findings import Finding, Severity


def unread_findings(
    path: str, table: Mapping[str, Int64s], stated: Stated, header: Mapping[str, object], base: int | None
) -> Iterator[Finding]:
    """One finding for each kind of thing, beside those that every execution trace can have."""
    if unusable := int(np.count_nonzero(table[UNUSABLE])):
        text = f"{path}: {unusable} nodes have a time or a duration that is none; they count as without."
        yield Finding(Severity.WARNING, "unusable_time", text, unusable, path)
    if stated.without_launch:
        text = f"{path}: {stated.without_launch} kernels, copies and memsets name no node that launched them."
        yield Finding(Severity.WARNING, "without_launch", text, stated.without_launch, path)
    if stated.unknown:
        text = f"{path}: {stated.unknown} times a node waits for a node that is not in the file."
        yield Finding(Severity.WARNING, "unknown_dependency", text, stated.unknown, path)
    timed = bool((table[START] != NO_TIME).any())
    if base is None:
        text = f"{path}: {BASE_TIME} is no time, but {str(header[BASE_TIME])[:40]!r}; times are without it."
        yield Finding(Severity.WARNING, "unusable_base_time", text, source=path)
    elif timed and BASE_TIME not in header:
        text = (
            f"{path}: its times count from what the profile's times count from, which the file does not say; "
            "they are used as they are."
        )
        yield Finding(Severity.INFO, "no_base_time", text, source=path)
    if not timed:
        text = f"{path}: no node has a time. Was the execution trace linked to the profile of the same run?"
        yield Finding(Severity.WARNING, "without_times", text, source=path)
