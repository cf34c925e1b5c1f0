"""Sizes as people read them."""

from __future__ import annotations

UNITS = ("B", "kB", "MB", "GB", "TB")
KILO = 1000


def about(count: int) -> str:
    """A size in two digits: 310 MB, 1.2 GB."""
    value, unit = float(f"{count:.2g}"), 0
    while value >= KILO and unit < len(UNITS) - 1:
        value, unit = value / KILO, unit + 1
    return f"{value:.1f} {UNITS[unit]}" if unit and value < 10 else f"{value:.0f} {UNITS[unit]}"
