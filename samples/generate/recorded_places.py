"""Where in the programs of a recorded job a fault can be put."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from tracelink.samples.generate.recorded_backend import recorded
from tracelink.samples.generate.recorded_plan import Plan, Truth
from tracelink.samples.generate.recorded_program import Call, Item, Part, Program, Settle


@dataclass(frozen=True, slots=True)
class Place:
    """A call in the program of a rank."""

    rank: int
    index: int
    call: Call
    number: int
    """Among the collectives of its group, or among its messages."""
    step: int

    @property
    def others(self) -> tuple[int, ...]:
        """The other members of the group."""
        return tuple(rank for rank in self.call.group.ranks if rank != self.rank)


@dataclass(frozen=True, slots=True)
class Scene:
    """The programs before anything goes wrong."""

    plan: Plan
    programs: Sequence[Program]
    share: float = 0.5
    """How late a straggler is: the share of a step's computing."""

    def places(self, rank: int) -> Iterator[Place]:
        """All calls of a rank."""
        return places(self.programs[rank], rank)

    def queued(self, place: Place) -> int:
        """How many more collectives of the group others issue when one member does not come."""
        count = 0
        for item in self.programs[place.rank][place.index :]:
            if isinstance(item, Settle):
                break
            if isinstance(item, Call):
                count += item.group == place.call.group and not item.messages
                if self.plan.blocks and item.waits:
                    break
        return count - 1

    def following(self, place: Place) -> Place | None:
        """The next collective of the group."""
        later = (each for each in self.places(place.rank) if each.index > place.index)
        same = (each for each in later if each.call.group == place.call.group)
        return next((each for each in same if each.call.messages == place.call.messages), None)

    def recorded(self, call: Call) -> tuple[Part, ...]:
        """What the recorder is told of a call."""
        return recorded(call, self.plan.blocks)

    def operation(self, place: Place) -> str:
        """What the recorder calls it; of several operations, the entry that ends them."""
        return f"{self.plan.backend}:{self.recorded(place.call)[-1].operation}"

    def looks(self, place: Place) -> tuple[tuple[object, ...], ...]:
        """What of a call must be alike on all ranks, as far as it is recorded."""
        return tuple(part.agreement for part in self.recorded(place.call))

    def reaches(self, place: Place, later: Place) -> bool:
        """Whether a rank that leaves out a call still issues a later one, though the others are stuck."""
        between = self.programs[place.rank][place.index + 1 : later.index]
        called = False
        for item in between:
            called |= isinstance(item, Call)
            if (called and isinstance(item, Settle)) or (
                self.plan.blocks and isinstance(item, Call) and item.waits
            ):
                return False
        return True

    def counterpart(self, place: Place) -> Place | None:
        """The other end of a single message."""
        part, members = place.call.parts[0], place.call.group.ranks
        peer = members[part.peer or 0]
        earlier = [
            each
            for each in self.ends(place.rank, place, part.operation, part.peer)
            if each.index < place.index
        ]
        other = "recv" if part.sends else "send"
        ends = self.ends(peer, place, other, members.index(place.rank))
        return next(islice(ends, len(earlier), None), None)

    def ends(self, rank: int, like: Place, operation: str, peer: int | None) -> Iterator[Place]:
        """The single messages of a rank, to or from another of the same group."""
        for each in self.places(rank):
            part = each.call.parts[0]
            same = each.call.group == like.call.group and not each.call.closing
            if same and (part.operation, part.peer) == (operation, peer):
                yield each

    def truth(self, fault: str, kind: str, place: Place) -> Truth:
        """What all truths have in common."""
        return Truth(
            fault=fault,
            kind=kind,
            group=place.call.group.name,
            sequence=place.number,
            culprits=(place.rank,),
            waiting=place.others,
            members=place.call.group.ranks,
            operation=self.operation(place),
            point_to_point=place.call.messages,
            places=self.unjoined(place),
        )

    def unjoined(self, place: Place) -> tuple[tuple[str, int], ...]:
        """The next collective of each group of the rank, counted from a place on."""
        found: dict[str, int] = {}
        for each in self.places(place.rank):
            if each.index >= place.index and not each.call.messages:
                found.setdefault(each.call.group.name, each.number)
        return tuple(found.items())


def places(program: Program, rank: int) -> Iterator[Place]:
    """All calls of a program, numbered as their groups count them."""
    numbers: dict[tuple[int, bool], int] = {}
    step = 0
    for index, item in enumerate(program):
        if isinstance(item, Call):
            counted = item.group.number, item.messages
            numbers[counted] = numbers.get(counted, 0) + 1
            yield Place(rank, index, item, numbers[counted], step)
        step += isinstance(item, Settle)


def put(program: Program, index: int, *items: Item, instead: int = 1) -> Program:
    """A program with some items at an index, instead of so many that stood there."""
    return (*program[:index], *items, *program[index + instead :])


def changed(call: Call, part: Part, *, lost: bool = False) -> Call:
    """A call with another first operation."""
    return replace(call, parts=(part, *call.parts[1:]), lost=lost)
