"""A clock that is wrong: it is off by something, runs too fast or too slow, and may be set while it runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HostClock:
    """A clock against the true time."""

    offset_ns: int = 0
    """What it shows more than the true time, at the true time `reference_ns`."""
    drift_ppm: float = 0.0
    """How much faster than true time it goes."""
    reference_ns: int = 0
    step_ns: int = 0
    """By how much it is set forward at the true time `step_at_ns`."""
    step_at_ns: int = 0

    def shown(self, true_ns: int) -> int:
        """What it shows at a true time."""
        drifted = round((true_ns - self.reference_ns) * self.drift_ppm * 1e-6)
        stepped = self.step_ns if self.step_ns and true_ns >= self.step_at_ns else 0
        return true_ns + self.offset_ns + drifted + stepped

    def offset_at(self, true_ns: int) -> int:
        """What it shows more than the true time, then."""
        return self.shown(true_ns) - true_ns
