"""Numbers for processes, threads and arrows that no two ranks share, though no rank knows of the others."""

from __future__ import annotations

from dataclasses import dataclass

from tracelink.job import Job

STRIDE = 10_000
"""Numbers of each block: more than a rank has threads, and few enough that all stay below 2^31."""

ARROWS = 1 << 28
"""Arrows of each block."""

BINDINGS = 1 << 40
"""The engine counts other arrows from 0 and takes the numbers that slices carry for its own."""


@dataclass(frozen=True, slots=True)
class Numbering:
    """The block of one rank, or of what ranks do together, among `blocks` of them."""

    block: int = 0
    blocks: int = 1
    digits: int = 1
    """Of the highest rank."""

    def rank(self, rank: int) -> str:
        """A rank as names have it: viewers sort names as texts."""
        return f"{rank:0{self.digits}}"

    def seat(self, number: int) -> int:
        """The process or thread that is `number` (1 and up) of its block; what does not fit stands behind all."""
        if number < STRIDE:
            return self.block * STRIDE + number
        return self.blocks * STRIDE + (number - STRIDE) * self.blocks + self.block

    @property
    def first_arrow(self) -> int:
        """Arrows with ends of their own have the numbers from here on."""
        return self.block * ARROWS + 1

    @property
    def first_binding(self) -> int:
        """Arrows that slices carry have the numbers from here on."""
        return BINDINGS + self.block * ARROWS


def rank_digits(job: Job) -> int:
    """How many digits the highest rank of a job has."""
    return len(str(max((part.rank for part in job.parts), default=0)))
