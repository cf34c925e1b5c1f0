"""Whether a browser has room for a trace."""

from __future__ import annotations

from tracelink.findings import Finding, Severity
from tracelink.handover.offer import Offer
from tracelink.handover.shown import Kind
from tracelink.sizes import about

GIGABYTE = 10**9
HEAP_PER_BYTE = {Kind.JSON: 1.6, Kind.NATIVE: 1.2}
"""Bytes of memory that the UI's engine takes for a byte of a trace, as measured on traces of GPU jobs.

It keeps a JSON until it has read all of it; of a native trace that is in order of time it keeps slices and texts.
"""

HEAP_PER_BARE_BYTE = {Kind.JSON: 1.6, Kind.NATIVE: 3.6}
"""The same of traces without most arguments, of which slices are a larger part."""

HEAP_PER_BUNDLED_BYTE = 9.0
"""The same of a native trace as it is stored: 6.5 with all arguments, 11.7 without any."""

MOST = 16 * GIGABYTE
"""What WebAssembly with addresses of 64 bits gives the engine."""

MOST_OF_32_BITS = 4 * GIGABYTE

REASON = "larger_than_a_browser_takes"

CUT = (
    "Fewer --ranks or --steps, a --window, or --only collectives,kernels with `tracelink merge` make it smaller; "
    "compression does not, for the UI decompresses it."
)
OUTSIDE = "Or load it outside of the browser: trace_processor_shell server http FILE"


def too_heavy(offer: Offer) -> list[Finding]:
    """What to know before the UI loads a trace that is larger than what some browsers take."""
    bundled = offer.kind is Kind.NATIVE and offer.size == offer.unpacked
    heap = int(offer.size * HEAP_PER_BUNDLED_BYTE) if bundled else heap_of(offer.kind, offer.unpacked)
    if not limit_passed(heap):
        return []
    return [heavy(f"{need(heap)}. {CUT} {OUTSIDE}", offer.path)]


def heap_of(kind: Kind, unpacked: int, *, bare: bool = False) -> int:
    """The memory that the UI needs for a trace of so many bytes; `bare`: without most arguments."""
    return int(unpacked * (HEAP_PER_BARE_BYTE if bare else HEAP_PER_BYTE).get(kind, 0))


def limit_passed(heap: int) -> int:
    """What browsers have that is less than what is needed, the most of it; 0 where all have enough."""
    return max((limit for limit in (MOST, MOST_OF_32_BITS) if heap > limit), default=0)


def need(heap: int) -> str:
    """In words, what a trace needs that is too large for some browsers."""
    needed = f"Perfetto's UI needs about {about(heap)} of memory for this file"
    if limit_passed(heap) == MOST:
        return f"{needed}, and can have {MOST // GIGABYTE} GB"
    return f"{needed}, where browsers without 64-bit WebAssembly stop at {MOST_OF_32_BITS // GIGABYTE} GB"


def heavy(message: str, path: str) -> Finding:
    """The finding on a trace that is too large for some browsers."""
    return Finding(Severity.WARNING, REASON, message, source=path)
