"""How much memory a dump may take, decided before it is taken."""

from __future__ import annotations

from collections.abc import Mapping

from tracelink.errors import UnreadableError


class TooLargeError(UnreadableError):
    """A dump that is refused for what it could grow to."""


MEMORY = 192 << 20
"""Bytes that a decoded dump may take: about 50,000 collectives with stacks; torch keeps 2,000 by default."""

WORST_GROWTH = 64
"""Nothing in a dump takes more memory than this for each of its bytes."""

WIDEST_CHARACTER = 4
"""A string of ASCII and one emoji takes four bytes for each character."""

FILE = 32 << 20
"""A larger file is not even read; one string that fills it, and its copies, stay in the bounds."""


def refuse_if_too_large(data: bytes, costs: Mapping[bytes, int], path: str) -> None:
    """Refuses what could take more memory than allowed; `costs` are bytes of memory for each token."""
    if len(data) * WORST_GROWTH <= MEMORY:
        return
    needed = len(data) * WIDEST_CHARACTER + sum(data.count(token) * cost for token, cost in costs.items())
    if needed > MEMORY:
        raise TooLargeError(
            f"decoding could take {needed >> 20} MB of memory, more than the {MEMORY >> 20} MB allowed",
            source=path,
            advice="Take the dump with a smaller TORCH_FR_BUFFER_SIZE, or without stacks.",
        )
