"""The table of messages, out of the ends that ranks recorded of them."""

from __future__ import annotations

import numpy as np

from tracelink.communications import UNKNOWN
from tracelink.converters.flight_database import schema
from tracelink.converters.flight_database.numbering import Numbering
from tracelink.converters.flight_database.rows import Batch, listed
from tracelink.events import Bools, Int64s


def messages_table(numbering: Numbering) -> Batch:
    """Every message, also those of which only one end was recorded."""
    ends = numbering.ends
    count = int(numbering.message.max(initial=-1)) + 1

    def of_message(values: Int64s, told_by: Bools) -> Int64s:
        column = np.full(count, UNKNOWN, np.int64)
        column[numbering.message[told_by]] = values[told_by]
        return column

    every = np.ones(len(ends), np.bool_)
    return Batch(
        schema.MESSAGES.name,
        {
            "id": list(range(count)),
            "group_id": of_message(ends.group.astype(np.int64), every).tolist(),
            "source_rank": listed(of_message(np.where(ends.sends, ends.rank, ends.peer), every)),
            "target_rank": listed(of_message(np.where(ends.sends, ends.peer, ends.rank), every)),
            "send_entry_id": listed(of_message(ends.row, ends.sends)),
            "receive_entry_id": listed(of_message(ends.row, ~ends.sends)),
        },
    )
