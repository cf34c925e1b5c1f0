"""Writes the program of one rank of a recorded job, call by call."""

from __future__ import annotations

from functools import lru_cache
from random import Random

from tracelink.samples.generate.job import Group
from tracelink.samples.generate.recorded_plan import Plan
from tracelink.samples.generate.recorded_program import COALESCED, Call, Compute, Item, Part, Settle, Shapes

WIDTH = 128
LAYER_NS = 4_000_000
MOST_ROWS = 9


class Author:
    """Calls are left out where the rank has no group for them."""

    def __init__(self, plan: Plan, rank: int) -> None:
        self.plan, self.rank = plan, rank
        self.groups = plan.groups(rank)
        self.items: list[Item] = []

    def compute(self, ns: int = LAYER_NS) -> None:
        """Keeps the GPU busy."""
        self.items.append(Compute(ns))

    def settle(self) -> None:
        """Ends a step."""
        self.items.append(Settle())

    def place(self, role: str) -> int:
        """The number of this rank in a group."""
        return self.groups[role].ranks.index(self.rank)

    def reduce(self, role: str, shape: tuple[int, ...], *, site: str, waits: bool = True) -> None:
        """An all_reduce."""
        self._collective(role, Part("all_reduce", (shape,), (shape,)), site, waits)

    def same(self, role: str, operation: str, shape: tuple[int, ...], *, site: str) -> None:
        """An operation whose input is as large as its output: broadcast, barrier, or one that nobody knows."""
        self._collective(role, Part(operation, (shape,), (shape,), "Float"), site, True)

    def gather(self, role: str, rows: int, *, site: str, waits: bool = True) -> None:
        """An all_gather into one tensor."""
        if role in self.groups:
            self._collective(role, gathering(self.groups[role], rows), site, waits)

    def scatter(self, role: str, rows: int, *, site: str, waits: bool = False) -> None:
        """A reduce_scatter of one tensor."""
        if role in self.groups:
            self._collective(role, scattering(self.groups[role], rows), site, waits)

    def several(self, role: str, rows: tuple[int, ...], *, site: str) -> None:
        """Several all_gathers in one call of a coalescing manager."""
        if role in self.groups:
            parts = tuple(gathering(self.groups[role], each) for each in rows)
            self.items.append(Call(self.groups[role], parts, site, COALESCED))

    def fused(self, role: str, operation: str, rows: tuple[int, ...], *, site: str) -> None:
        """One entry of several tensors."""
        if role in self.groups:
            whole = Part(operation, *_tensors(operation, rows, len(self.groups[role].ranks)))
            self._collective(role, whole, site, True)

    def uneven(self, role: str, member: str, closing: str, *, site: str) -> None:
        """An all_gather or reduce_scatter of tensors of different sizes: one operation for each member."""
        if role in self.groups:
            shapes = [((3 + place, WIDTH),) for place in range(len(self.groups[role].ranks))]
            parts = tuple(Part(member, shape, shape) for shape in shapes)
            self.items.append(Call(self.groups[role], parts, site, closing))

    def exchange(self, role: str, step: int, *, site: str, listed: bool = False, back: bool = False) -> None:
        """An uneven all_to_all; `back` sends the rows to where they came from."""
        if role not in self.groups:
            return
        group, me = self.groups[role], self.place(role)
        rows = matrix(group, self.plan.seed, step)
        given, gotten = rows[me], tuple(line[me] for line in rows)
        if back:
            given, gotten = gotten, given
        self._collective(
            role, Part("all_to_all", _pieces(given, listed), _pieces(gotten, listed)), site, True
        )

    def send(self, role: str, peer: int, shape: tuple[int, ...], *, site: str) -> None:
        """A message to a rank of a group."""
        self.messages(role, [message("send", peer, shape)], site=site)

    def receive(self, role: str, peer: int, shape: tuple[int, ...], *, site: str) -> None:
        """A message from a rank of a group."""
        self.messages(role, [message("recv", peer, shape)], site=site)

    def batch(self, role: str, parts: list[Part], *, site: str, waits: bool = True) -> None:
        """Messages that start and end together."""
        if parts and role in self.groups:
            self.items.append(Call(self.groups[role], tuple(parts), site, COALESCED, waits))

    def messages(self, role: str, parts: list[Part], *, site: str) -> None:
        """Messages one after the other."""
        if role in self.groups:
            self.items += [Call(self.groups[role], (part,), site) for part in parts]

    def _collective(self, role: str, part: Part, site: str, waits: bool) -> None:
        if role in self.groups:
            self.items.append(Call(self.groups[role], (part,), site, waits=waits))


def message(operation: str, peer: int, shape: tuple[int, ...]) -> Part:
    """One end of a message."""
    return Part(operation, (shape,), (shape,), peer=peer)


def gathering(group: Group, rows: int) -> Part:
    """Everybody gives `rows`."""
    return Part("_all_gather_base", ((rows, WIDTH),), ((rows * len(group.ranks), WIDTH),))


def scattering(group: Group, rows: int) -> Part:
    """Everybody gets `rows`."""
    return Part("_reduce_scatter_base", ((rows * len(group.ranks), WIDTH),), ((rows, WIDTH),))


@lru_cache(maxsize=512)
def matrix(group: Group, seed: int, step: int) -> tuple[tuple[int, ...], ...]:
    """How many rows each member has for each other."""
    random = Random(f"experts {seed} {step} {group.name}")
    size = range(len(group.ranks))
    return tuple(tuple(random.randint(1, MOST_ROWS) for _ in size) for _ in size)


def _pieces(rows: tuple[int, ...], listed: bool) -> Shapes:
    return tuple((each, WIDTH) for each in rows) if listed else ((sum(rows), WIDTH),)


def _tensors(operation: str, rows: tuple[int, ...], size: int) -> tuple[Shapes, Shapes]:
    small = tuple((each, WIDTH) for each in rows)
    large = tuple((each * size, WIDTH) for each in rows)
    if operation.startswith("all_gather"):
        return small, large
    return (large, small) if operation.startswith("reduce_scatter") else (small, small)
