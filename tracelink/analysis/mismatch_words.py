"""What ranks disagree on, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tracelink.analysis.comparing import Aspect
from tracelink.analysis.wording import collective_in_words, lowered, operation_in_words, ranks_in_words
from tracelink.communications import UNKNOWN
from tracelink.journal import Journal
from tracelink.trace import ProcessGroup


@dataclass(frozen=True, slots=True)
class Difference:
    """Between two entries of the journal, one of which does what most do."""

    aspect: Aspect
    sequence: int
    group: ProcessGroup
    culprits: Sequence[int]
    typical: int
    odd: int
    count: int
    tie: bool
    detail: str = ""


def message_of(journal: Journal, one: Difference, *, skipped: int, extra: int) -> str:
    """`Rank 1 called all_reduce #5 of group 0 (default_pg) with Int, the others with Float`, without an end."""
    who = ranks_in_words(one.culprits)
    what = collective_in_words(journal.operation(one.typical), one.sequence, one.group)
    shown = f" ({one.count} collectives show it)" if one.count > 1 else ""
    if skipped:
        more = f" and the {skipped - 1} after it" if skipped > 1 else ""
        return f"{who} skipped {what}{more}, and went on with {_told(journal, one.odd)}{shown}"
    if extra:
        more = "one collective" if extra == 1 else f"{extra} collectives"
        return f"{who} did {more} more than the others, {_told(journal, one.odd)}, before {what}{shown}"
    if one.aspect is Aspect.ROOT:
        if one.tie:
            return f"{who} do not agree in {what}: {one.detail}? Nothing tells which is wrong{shown}"
        return f"{who} called {what} with {one.detail}{shown}"
    if one.detail:
        whose = "nothing tells whose sizes are wrong" if one.tie else f"{who} has sizes of its own"
        return f"Sizes do not fit in {what}: {one.detail}; {lowered(whose)}{shown}"
    own, others = _differing(journal, one)
    if own == others:
        often = "equally often" if one.tie else "as often as the others"
        return f"{who} did not call {what} {often} under that number{shown}"
    if one.tie:
        return f"{who} do not agree in {what}: {own} or {others}? Nothing tells which is wrong{shown}"
    return f"{who} called {what} with {own}, the others with {others}{shown}"


def _differing(journal: Journal, one: Difference) -> tuple[str, str]:
    """What the odd one did, and what the others did, as far as they differ."""
    match one.aspect:
        case Aspect.OPERATION:
            own, others = _told(journal, one.odd), _told(journal, one.typical)
            named = journal.operation(one.odd), journal.operation(one.typical)
            return named if own == others and named[0] != named[1] else (own, others)
        case Aspect.DTYPE:
            own, others = _type(journal, one.odd), _type(journal, one.typical)
            return (own, others) if own != others else _types_out(journal, one.odd, one.typical)
        case _:
            return _sizes(journal, one.odd, one.typical)


def _told(journal: Journal, row: int) -> str:
    """`broadcast of 256 Float`."""
    elements = _elements(journal, row)
    size = f" of {elements:,} {_type(journal, row)}" if elements != UNKNOWN else ""
    return f"{operation_in_words(journal.operation(row))}{size}".rstrip()


def _elements(journal: Journal, row: int) -> int:
    request = int(journal.records.request[row])
    given = int(journal.requests.elements_in[request])
    return given if given != UNKNOWN else int(journal.requests.elements_out[request])


def _type(journal: Journal, row: int) -> str:
    request = int(journal.records.request[row])
    given = int(journal.requests.type_in[request])
    kind = given if given != UNKNOWN else int(journal.requests.type_out[request])
    return _text(journal, kind)


def _types_out(journal: Journal, odd: int, typical: int) -> tuple[str, str]:
    own, others = (int(journal.requests.type_out[journal.records.request[row]]) for row in (odd, typical))
    return f"output of {_text(journal, own)}", _text(journal, others)


def _text(journal: Journal, kind: int) -> str:
    return journal.texts[kind] if kind != UNKNOWN else "no type"


def _sizes(journal: Journal, odd: int, typical: int) -> tuple[str, str]:
    own, others = _elements(journal, odd), _elements(journal, typical)
    if own != others:
        return counted(own), f"{others:,}"
    own, others = (int(journal.requests.elements_out[journal.records.request[row]]) for row in (odd, typical))
    if own != others:
        return f"{counted(own)} of output", f"{others:,}"
    return f"tensors of another shape, though of {counted(_elements(journal, odd))} too", "one shape"


def counted(elements: int) -> str:
    """`1 element`, `2,048 elements`."""
    return "1 element" if elements == 1 else f"{elements:,} elements"
