"""What to tell of text that did not parse: the same words for every format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracelink.findings import Finding, Severity
from tracelink.salvage import Damage


def damage_findings(
    path: str,
    damage: Sequence[Damage],
    cut_off: tuple[int, str] | None,
    kept: int,
    what: str,
    aside: str = "",
) -> Iterator[Finding]:
    """Findings on a file of which `kept` of `what` (say, events) are used; `aside` adds to those before a cut."""
    if cut_off:
        offset, reason = cut_off
        text = f"{path}: {reason} at byte {offset}; the {kept} {what} before it are used{aside}."
        yield Finding(Severity.WARNING, "cut_off", text, source=path, example=f"byte {offset}")
    lost = [place for place in damage if not place.repaired]
    if lost:
        text = f"{path}: {len(lost)} places do not parse, {_first(lost)}; {kept} {what} are used."
        yield _finding("damaged", text, path, lost)
    repaired = [place for place in damage if place.repaired]
    if repaired:
        text = f"{path}: {len(repaired)} {what} were not valid JSON and were mended, {_first(repaired)}."
        yield _finding("repaired", text, path, repaired)


def _first(places: Sequence[Damage]) -> str:
    return f"first at byte {places[0].position} ({places[0].problem})"


def _finding(reason: str, text: str, path: str, places: Sequence[Damage]) -> Finding:
    return Finding(Severity.WARNING, reason, text, len(places), path, f"byte {places[0].position}")
