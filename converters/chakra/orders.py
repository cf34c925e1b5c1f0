"""Every order that is known of a rank's events, by the name of the question that told it."""

from __future__ import annotations

from collections.abc import Mapping

from tracelink.analysis.ordering.host_waits import host_waits
from tracelink.analysis.ordering.launched import launched_work
from tracelink.analysis.ordering.order import Order
from tracelink.analysis.ordering.stream_waits import stream_waits
from tracelink.analysis.ordering.streams import stream_order
from tracelink.analysis.ordering.synchronizations import Synchronizations
from tracelink.excerpt import Excerpt

STREAM, STREAM_WAIT, HOST_WAIT = "stream", "stream wait", "host wait"


def orders_of(part: Excerpt, *, by_time: bool) -> Mapping[str, Order]:
    """What had to wait for what; the order of streams only where order in time counts."""
    launched = launched_work(part)
    recorded = Synchronizations.empty()
    orders = {
        STREAM_WAIT: stream_waits(part, launched, recorded),
        HOST_WAIT: host_waits(part, launched, recorded),
    }
    return {STREAM: stream_order(part), **orders} if by_time else orders
