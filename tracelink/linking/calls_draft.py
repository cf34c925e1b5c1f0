"""Calls in the making: which events belong together, before anything is known of what they did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from tracelink.events import NO_TIME, Int64s
from tracelink.linking.joins import NONE


@dataclass(slots=True)
class Draft:
    """One row for each call: rows of its events, or NONE."""

    record: Int64s
    operator: Int64s
    issuer: Int64s
    """The place of the operator among the innermost ones."""
    node: Int64s
    annotation: Int64s
    kernel: Int64s
    kernels_end: Int64s
    """When the last kernel ends, or NO_TIME."""

    def __len__(self) -> int:
        return len(self.record)

    @classmethod
    def of(cls, count: int, **columns: Int64s) -> Draft:
        """`count` calls; what is not given is not there."""
        return cls(
            *(
                columns[f.name]
                if f.name in columns
                else np.full(count, NO_TIME if f.name == "kernels_end" else NONE, np.int64)
                for f in fields(cls)
            )
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Draft]) -> Draft:
        """All calls of all parts, in order."""
        parts = [part for part in parts if len(part)] or parts[:1]
        if len(parts) == 1:
            return parts[0]
        return cls(*(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(cls)))

    def take(self, rows: Any) -> Draft:
        """Some of the calls; a call can be taken more than once."""
        return Draft(*(getattr(self, f.name)[rows] for f in fields(self)))


def first_of_each(owner: Int64s, count: int, rows: Int64s) -> Int64s:
    """For each of `count` owners the first of its rows, or NONE; `owner` is NONE where a row has none."""
    first = np.full(count + 1, NONE, np.int64)
    first[owner[::-1]] = rows[::-1]
    return first[:-1]


def latest_of_each(owner: Int64s, count: int, times: Int64s) -> Int64s:
    """For each of `count` owners the latest of its times, or NO_TIME."""
    latest = np.full(count + 1, NO_TIME, np.int64)
    np.maximum.at(latest, owner, times)
    return latest[:-1]
