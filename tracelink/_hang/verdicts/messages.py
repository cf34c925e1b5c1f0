"""Messages that cannot arrive: their ends declare different payloads, or the group has no such peer."""

from __future__ import annotations

from typing import Any

from tracelink._hang.model import Kind
from tracelink._hang.verdicts.mismatches import OtherPeer, OtherTensor
from tracelink._model.text import counted, ranks_in_words


class OtherPayload(OtherTensor, frozen=True, kw_only=True):
    """Ranks that send another number or type of elements than the receiver expects, or expect another one."""

    between: tuple[int, int]
    """The sender and the receiver of the first such message."""
    elements: tuple[int, int] | None
    """How many elements each of them declares; None if their types differ."""
    types: tuple[str, str]

    def claim(self) -> str:
        """Rank 2 has an unexpected size in a receive: rank 1 sends 8 elements, rank 2 receives 9 elements."""
        sent, received = (counted(one, "element") for one in self.elements) if self.elements else self.types
        (source, target), count = self.between, self.count
        shown = f" ({count} messages show it)" if count > 1 else ""
        declared = f"rank {source} sends {sent}, rank {target} receives {received}"
        if self.tie:
            ranks = ranks_in_words(self.between)
            return (
                f"{ranks} do not agree in {self.call}: {declared}. It is unknown which rank is wrong{shown}"
            )
        aspect = "size" if self.kind is Kind.SIZE_MISMATCH else "dtype"
        verb, example = ("have", "for example, ") if self.groups > 1 else ("has", "")
        return f"{self.ranks} {verb} an unexpected {aspect} in {self.call}: {example}{declared}{shown}"

    def facts(self) -> tuple[Any, ...]:
        """Without the ranks, which differ from group to group."""
        return self.elements, self.types


class PeerOutside(OtherPeer, frozen=True, kw_only=True):
    """A rank sends to, or receives from, a position that the group does not have."""

    sends: bool
    position: int
    positions: int
    """How many the group has."""

    def claim(self) -> str:
        """Rank 1 sends to position 9 in a group with positions 0 to 3."""
        way = "sends to" if self.sends else "receives from"
        return (
            f"{self.ranks} {way} position {self.position} in {self.call}, "
            f"but this group has only positions 0 to {self.positions - 1}"
        )
