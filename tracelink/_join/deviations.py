"""Ranks whose GPU runs at other clocks, power or temperature than those of the other ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tracelink._join.quantities import Quantity, gauges_of
from tracelink._model.columns import Float64s
from tracelink._model.events import Counters, Track
from tracelink._model.findings import Finding, Severity
from tracelink._model.text import lowered, ranks_in_words

DIFFERENT = 0.1
"""A median that differs by less from that of the other ranks is not reported."""
FEWEST = 3
"""Samples of a rank of which a median is taken."""
MOST = 4
"""Groups of ranks of a quantity that are reported."""

SENTENCES = {
    Quantity.SM_CLOCK: ("runs at {} MHz", "{} MHz", True),
    Quantity.MEMORY_CLOCK: ("has its memory at {} MHz", "{} MHz", True),
    Quantity.POWER: ("draws {} W", "{} W", None),
    Quantity.TEMPERATURE: ("is at {} °C", "{} °C", False),
}
"""The verbs for a GPU and for the others; True if only lower values are reported, False if only higher ones."""


def deviating(
    tracks: Sequence[Track], counters: Counters, span: tuple[int, int] | None = None
) -> list[Finding]:
    """A finding for each quantity in which GPUs of some ranks are outside of the spread of all others.

    Medians of each rank are compared, over `span` if that has enough samples.
    """
    medians: dict[Quantity, dict[int, float]] = {}
    for gauges in gauges_of(tracks):
        for quantity, track in gauges.tracks.items():
            values = _values(counters, track, span)
            if len(values) >= FEWEST:
                medians.setdefault(quantity, {})[gauges.rank] = float(np.median(values))
    return [
        _finding(quantity, outliers, medians[quantity])
        for quantity in SENTENCES
        if quantity in medians and (outliers := _outliers(medians[quantity], SENTENCES[quantity][2]))
    ]


def _values(counters: Counters, track: int, span: tuple[int, int] | None) -> Float64s:
    rows = np.flatnonzero(counters.track == track)
    if span is not None:
        times = counters.time[rows]
        inside = rows[(times >= span[0]) & (times <= span[1])]
        rows = inside if len(inside) >= FEWEST else rows
    return counters.value[rows]


def _outliers(medians: Mapping[int, float], lower: bool | None) -> list[int]:
    """The ranks that are more than a tenth away from the others, and further than these are from each other.

    Fewer than half of the ranks can be outliers; of two ranks the one with the unusual side is.
    """
    ordered = sorted(medians, key=lambda rank: medians[rank])
    if len(ordered) == 2 and lower is not None:
        low, high = ordered
        return [low if lower else high] if _differ(medians[low], medians[high]) else []
    found: list[int] = []
    most = (len(ordered) - 1) // 2
    if lower is not False:
        found = _cut(ordered, medians, most)
    if lower is not True and not found:
        found = _cut(ordered[::-1], medians, most)
    return sorted(found)


def _cut(ordered: Sequence[int], medians: Mapping[int, float], most: int) -> list[int]:
    """The first ranks, up to a gap that is larger than the spread of all behind it."""
    for count in range(most, 0, -1):
        rest = [medians[rank] for rank in ordered[count:]]
        gap = abs(rest[0] - medians[ordered[count - 1]])
        if gap > max(rest) - min(rest) and _differ(medians[ordered[count - 1]], float(np.median(rest))):
            return list(ordered[:count])
    return []


def _differ(value: float, others: float) -> bool:
    return abs(value - others) > DIFFERENT * max(abs(others), abs(value) if not others else 0)


def _finding(quantity: Quantity, outliers: Sequence[int], medians: Mapping[int, float]) -> Finding:
    verb, unit, _ = SENTENCES[quantity]
    others = [median for rank, median in medians.items() if rank not in outliers]
    own = [medians[rank] for rank in outliers]
    if len(outliers) == 1:
        who = f"Rank {outliers[0]}'s GPU {verb.format(_range(own))}"
    else:
        plural = {"runs": "run", "has its": "have their", "draws": "draw", "is": "are"}
        word = next(word for word in plural if verb.startswith(word))
        does = verb.replace(word, plural[word], 1).format(_range(own))
        who = f"The GPUs of {lowered(ranks_in_words(outliers))} {does}"
    rest = f"the {'other' if len(others) == 1 else 'others'} at {unit.format(_range(others))}"
    if quantity is Quantity.POWER:
        rest = f"the {'other' if len(others) == 1 else 'others'} {unit.format(_range(others))}"
    message = f"{who}, {rest} (medians)."
    return Finding(Severity.WARNING, "gpu_differs", message, len(outliers))


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):,.0f}", f"{max(values):,.0f}"
    return low if low == high else f"{low} to {high}"
