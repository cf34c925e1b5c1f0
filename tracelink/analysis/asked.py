"""What requests ask for: the operation and, of messages, the ranks within the group."""

from __future__ import annotations

import numpy as np

from tracelink.communications import UNKNOWN
from tracelink.events import Bools, Int64s
from tracelink.journal import Journal
from tracelink.linking.coding import distinct
from tracelink.operations import POINT_TO_POINT, operation_of


def ask_for_messages(journal: Journal) -> Bools:
    """Which requests are for one end of a message."""
    return np.array([name in POINT_TO_POINT for name in _names(journal)], np.bool_)


def codes_of_requests(journal: Journal) -> Int64s:
    """For each request a number, equal where the operation is, and where the same ranks send and receive."""
    names = _names(journal)
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    operation = np.array([numbers[name] for name in names], np.int64)
    messages = ask_for_messages(journal)
    source, target = (
        np.where(messages, end, UNKNOWN) for end in (journal.requests.source, journal.requests.target)
    )
    return distinct(operation, source, target)[0]


def _names(journal: Journal) -> list[str]:
    return [operation_of(journal.texts[code]) for code in journal.requests.operation.tolist()]
