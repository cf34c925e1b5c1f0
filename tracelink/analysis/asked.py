"""What requests ask for: the operation and, of messages, the ranks within the group."""

from __future__ import annotations

import numpy as np

from tracelink.communications import UNKNOWN
from tracelink.events import Bools, Int64s
from tracelink.journal import Journal
from tracelink.linking.coding import distinct
from tracelink.operations import POINT_TO_POINT, Operation, operation_of


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


def answers_of_requests(journal: Journal) -> Int64s:
    """For each request for an end of a message the code of what asks for the other end; UNKNOWN where nothing does."""
    codes, requests, names = codes_of_requests(journal), journal.requests, _names(journal)
    keys = list(zip(names, requests.source.tolist(), requests.target.tolist(), strict=True))
    known = dict(zip(keys, codes.tolist(), strict=True))
    other = {Operation.SEND.value: Operation.RECV.value, Operation.RECV.value: Operation.SEND.value}
    return np.array(
        [known.get((other.get(name, ""), source, target), UNKNOWN) for name, source, target in keys], np.int64
    )


def _names(journal: Journal) -> list[str]:
    return [operation_of(journal.texts[code]) for code in journal.requests.operation.tolist()]
