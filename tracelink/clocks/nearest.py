"""The nearest point to zero that meets demands, or violates them least: an interior-point method."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.clocks.segments import Floats
from tracelink.events import Int64s

PENALTY = 1e6
"""How much worse a violation is than as large a distance from zero: so high that none is accepted that need not be."""
STEPS = 80
EXACT = 1e-9
STIFFEST = 1e12
"""Rows are not held more firmly than this: beyond it, what else decides is lost in rounding."""
CENTRE = 0.1
SHORT_OF_EDGE = 0.99


@dataclass(frozen=True, slots=True)
class Demands:
    """Rows that say: excess + (weights of the variables in `index`) <= 0."""

    index: Int64s
    weight: Floats
    excess: Floats

    def of(self, point: Floats) -> Floats:
        """What the variables add to each row."""
        result: Floats = (self.weight * point[self.index]).sum(axis=1)
        return result

    def back(self, force: Floats, variables: int) -> Floats:
        """The transpose of `of`."""
        pushed = (self.weight * force[:, None]).ravel()
        return np.bincount(self.index.ravel(), pushed, minlength=variables).astype(np.float64)

    def squared(self, force: Floats, variables: int) -> Floats:
        """The identity and the rows' squares, each times its force."""
        cell = self.index[:, :, None] * variables + self.index[:, None, :]
        value = self.weight[:, :, None] * (self.weight * force[:, None])[:, None, :]
        flat = np.bincount(cell.ravel(), value.ravel(), minlength=variables**2)
        result: Floats = flat.reshape(variables, variables) + np.eye(variables)
        return result


def nearest(demands: Demands, variables: int) -> Floats:
    """The point that minimises half its squared length, plus a penalty for each violation."""
    scale = max(float(np.abs(demands.excess).max(initial=0)), 1.0)
    search = _Search(Demands(demands.index, demands.weight, demands.excess / scale), variables)
    for _ in range(STEPS):
        if search.gap < EXACT:
            break
        search.step()
    return search.point * scale


class _Search:
    """A point, its violations and rooms, and the forces with which rows hold it; all inside their limits."""

    def __init__(self, demands: Demands, variables: int) -> None:
        self.demands = demands
        self.point = np.zeros(variables)
        self._violation = np.maximum(demands.excess, 0) + 1
        self._room = self._violation - demands.excess
        self._force = np.ones(len(demands.excess))

    @property
    def gap(self) -> float:
        """How far rows are from either not holding or being met exactly, on average."""
        spare = (PENALTY - self._force) * self._violation
        return float((self._force * self._room + spare).mean()) / 2

    def step(self) -> None:
        """One Newton step towards the centre of what is left."""
        target = CENTRE * self.gap
        force, room, violation, spare = self._force, self._room, self._violation, PENALTY - self._force
        missing = violation - self.demands.of(self.point) - self.demands.excess - room
        give = np.maximum(violation / spare + room / force, 1 / STIFFEST)
        pull = target / force - room - target / spare + violation - missing
        slope = -(self.point + self.demands.back(force, len(self.point)))
        matrix = self.demands.squared(1 / give, len(self.point))
        pushed = slope - self.demands.back(pull / give, len(self.point))
        move = np.linalg.solve(matrix, pushed).astype(np.float64)
        force_move = (pull + self.demands.of(move)) / give
        violation_move = (target - spare * violation + violation * force_move) / spare
        room_move = (target - force * room - room * force_move) / force
        reach = min(
            _reach(force, force_move),
            _reach(spare, -force_move),
            _reach(violation, violation_move),
            _reach(room, room_move),
        )
        self.point = np.asarray(self.point + reach * move, np.float64)
        self._force = force + reach * force_move
        self._violation = violation + reach * violation_move
        self._room = room + reach * room_move


def _reach(value: Floats, move: Floats) -> float:
    """How much of the move keeps all values positive."""
    falling = move < 0
    if not falling.any():
        return 1.0
    return min(1.0, SHORT_OF_EDGE * float((-value[falling] / move[falling]).min()))
