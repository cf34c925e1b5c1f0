"""Every order that is known of a rank's events, by the name of the question that told it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tracelink.analysis.ordering.hand_overs import hand_overs
from tracelink.analysis.ordering.host_waits import host_waits
from tracelink.analysis.ordering.launched import launched_work
from tracelink.analysis.ordering.order import Order
from tracelink.analysis.ordering.resumptions import resumptions
from tracelink.analysis.ordering.stream_waits import stream_waits
from tracelink.analysis.ordering.streams import stream_order
from tracelink.communications import UNKNOWN
from tracelink.converters.chakra.communications import Communicating
from tracelink.converters.kineto.synchronizations import recorded_synchronizations
from tracelink.events import GPU_WORK, EventKind
from tracelink.excerpt import Excerpt

STREAM, STREAM_WAIT, HOST_WAIT, HAND_OVER = "stream", "stream wait", "host wait", "hand-over"
ISSUE, RESUMPTION, TENSOR = "issue", "resumption", "tensor"


def orders_of(part: Excerpt, told: Communicating, *, by_time: bool) -> Mapping[str, Order]:
    """What had to wait for what; the order of streams only where order in time counts."""
    orders = {
        **waits_for_devices(part),
        HAND_OVER: hand_overs(part),
        ISSUE: _issues(part, told),
        RESUMPTION: _resumptions(part, told),
    }
    return {STREAM: stream_order(part), **orders} if by_time else orders


def waits_for_devices(part: Excerpt) -> Mapping[str, Order]:
    """Waits for devices; what was written as linked nodes has none of the calls that tell of them, but the waits."""
    if not len(part.rows(EventKind.RUNTIME)):
        return {}
    launched, recorded = launched_work(part), recorded_synchronizations(part.graph)
    return {
        STREAM_WAIT: stream_waits(part, launched, recorded),
        HOST_WAIT: host_waits(part, launched, recorded),
    }


def _resumptions(part: Excerpt, told: Communicating) -> Order:
    """What threads do after communication that ran on other threads; for what is on a device they say if they wait."""
    on_host = np.flatnonzero(~part.events.of_kind(*GPU_WORK)[told.row])
    return resumptions(part, told.operator[on_host], told.row[on_host])


def _issues(part: Excerpt, told: Communicating) -> Order:
    """Communication on a thread of its own after the operator that asked for it; what is on a device is launched."""
    asked = (told.operator != UNKNOWN) & (told.operator != told.row)
    asked[asked] &= ~part.events.of_kind(*GPU_WORK)[told.row[asked]]
    return Order.of(told.operator[asked], told.row[asked])
