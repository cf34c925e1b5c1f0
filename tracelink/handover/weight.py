"""Whether a browser has room for a trace."""

from __future__ import annotations

from tracelink.findings import Finding, Severity
from tracelink.handover.offer import Offer
from tracelink.handover.shown import Kind

GIGABYTE = 10**9
HEAP_PER_BYTE = {Kind.JSON: 1.6, Kind.NATIVE: 3.0}
"""Bytes of memory that the UI's engine takes for a byte of a trace, as measured on traces of GPU jobs."""

MOST = 16 * GIGABYTE
"""What WebAssembly with addresses of 64 bits gives the engine."""

MOST_OF_32_BITS = 4 * GIGABYTE

CUT = (
    "Fewer --ranks or --steps, a --window, or --only collectives,kernels with `tracelink merge` make it smaller; "
    "compression does not, for the UI decompresses it."
)
OUTSIDE = "Or load it outside of the browser: trace_processor_shell server http FILE"


def too_heavy(offer: Offer) -> list[Finding]:
    """What to know before the UI loads a trace that is larger than what some browsers take."""
    heap = int(offer.unpacked * HEAP_PER_BYTE.get(offer.kind, 0))
    if heap <= MOST_OF_32_BITS:
        return []
    need = f"Perfetto's UI needs about {heap / GIGABYTE:.0f} GB of memory for this file"
    if heap > MOST:
        limit = f"and can have {MOST // GIGABYTE} GB"
    else:
        limit = f"where browsers without 64-bit WebAssembly stop at {MOST_OF_32_BITS // GIGABYTE} GB"
    message = f"{need}, {limit}. {CUT} {OUTSIDE}"
    return [Finding(Severity.WARNING, "larger_than_a_browser_takes", message, source=offer.path)]
