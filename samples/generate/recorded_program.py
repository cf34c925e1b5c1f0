"""What a rank does: calls of a communication library, computing, and waiting, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tracelink.samples.generate.job import Group

Shapes = tuple[tuple[int, ...], ...]
COALESCED = "coalesced"


@dataclass(frozen=True, slots=True)
class Part:
    """One operation, as the recorder is told of it."""

    operation: str
    inputs: Shapes
    outputs: Shapes
    type: str = "BFloat16"
    peer: int | None = None
    """The other end of a message: a rank of the group."""

    @property
    def sends(self) -> bool:
        """Whether it is the sending end of a message."""
        return self.operation == "send"

    @property
    def agreement(self) -> tuple[object, ...]:
        """What the members of a group must have in common."""
        # Pieces of an uneven all_to_all differ from rank to rank; its matrix is another matter.
        if self.operation == "all_to_all":
            return (self.operation,)
        return self.operation, self.inputs, self.outputs


@dataclass(frozen=True, slots=True)
class Call:
    """One or several operations that start and end together."""

    group: Group
    parts: tuple[Part, ...]
    site: str
    """Where in the program it stands."""
    closing: str = ""
    """The operation of the entry that ends several operations; empty if it is a single one."""
    waits: bool = True
    """Whether what is computed next needs the result."""
    lost: bool = False
    """Whether it never ends, for a reason that the recorder is not told of."""

    @property
    def messages(self) -> bool:
        """Whether it consists of sends and receives."""
        return self.parts[0].peer is not None

    @property
    def agreement(self) -> tuple[object, ...]:
        """What the members of a group must have in common, or none of them gets any further."""
        return (self.closing, *(part.agreement for part in self.parts))


@dataclass(frozen=True, slots=True)
class Compute:
    """Keeps the GPU busy."""

    ns: int | None
    """None: for ever."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Keeps the program busy: data loading."""

    ns: int


@dataclass(frozen=True, slots=True)
class Settle:
    """Waits until everything issued is over: the end of a step."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Goes no further."""


Item = Call | Compute | Pause | Settle | Stop
Program = Sequence[Item]
