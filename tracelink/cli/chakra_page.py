"""What `inspect` shows of Chakra traces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tracelink.cli.page import NOTHING, Page, counted, number, size

if TYPE_CHECKING:
    from tracelink.converters.chakra.census import Census, LongestChain

ROWS = 16
"""More traces than this are shown as one row."""

MICROSECOND, MILLISECOND, SECOND = 10**3, 10**6, 10**9


def show_censuses(page: Page, censuses: Mapping[str, Census]) -> None:
    """Tables of what the nodes are, what is communicated, and what takes longest."""
    page.gap()
    _show_nodes(page, censuses)
    page.gap()
    _show_communication(page, list(censuses.values()))
    page.gap()
    _show_chains(page, censuses)


def _show_nodes(page: Page, censuses: Mapping[str, Census]) -> None:
    from tracelink.converters.chakra.roles import ROLES

    roles = [role for role in ROLES if any(role in census.nodes for census in censuses.values())]
    rows = {path: Counter(census.nodes) for path, census in censuses.items()}
    if len(rows) > ROWS:
        rows = {counted(len(rows), "trace"): sum(rows.values(), Counter())}
    header = ("nodes of", "all", *(role.value for role in roles))
    table = [
        (
            label,
            number(counts.total()),
            *(number(counts[role]) if counts[role] else NOTHING for role in roles),
        )
        for label, counts in rows.items()
    ]
    page.table(header, table, numbers=header[1:])


def _show_communication(page: Page, censuses: Sequence[Census]) -> None:
    """Each kind in each group, of all traces together."""
    counts, sizes = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    traces, sizeless = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for row in (row for census in censuses for row in census.communicated):
        what = row.kind, row.group
        counts[what] += row.count
        sizes[what] += row.bytes
        sizeless[what] += row.sizeless
        traces[what] += 1
    if not counts:
        page.line("nothing is communicated", "dim")
        return
    header = ("communication", "group", "traces", "nodes", "bytes")
    table = [
        (
            kind,
            group or "all ranks",
            number(traces[kind, group]),
            number(counts[kind, group]),
            _bytes(sizes[kind, group], sizeless[kind, group]),
        )
        for kind, group in sorted(counts, key=lambda what: (-sizes[what], what))
    ]
    page.table(header, table, numbers=header[2:])


def _bytes(total: int, sizeless: int) -> str:
    return size(total) + (f", {number(sizeless)} without a size" if sizeless else "")


def _show_chains(page: Page, censuses: Mapping[str, Census]) -> None:
    header = ("longest chain of", "time", "compute", "communication", "host", "nodes", "after device work")
    shown = list(censuses.items())
    if len(shown) > ROWS:
        path, longest = max(shown, key=lambda one: one[1].longest.total_ns)
        shown = [(f"{path}, the longest of {number(len(shown))}", longest)]
    table = [(path, *_chain(census.longest), _following(census)) for path, census in shown]
    page.table(header, table, numbers=header[1:])
    if unordered := sum(census.unordered for census in censuses.values()):
        page.line(
            f"without {counted(unordered, 'node')} that wait for each other in circles, or for such", "yellow"
        )
    page.line(
        "after device work: nodes of a device that wait for another one directly, of all of them", "dim"
    )


def _chain(longest: LongestChain) -> tuple[str, ...]:
    parts = (longest.compute_ns, longest.communication_ns, longest.host_ns)
    shares = (f"{time(part)} ({percent(part, longest.total_ns)})" if part else NOTHING for part in parts)
    return time(longest.total_ns), *shares, number(longest.nodes)


def _following(census: Census) -> str:
    if not census.device_nodes:
        return NOTHING
    share = percent(census.device_nodes_after_device, census.device_nodes)
    return f"{number(census.device_nodes_after_device)} of {number(census.device_nodes)} ({share})"


def time(ns: int) -> str:
    """1.234 s, 12.345 ms, 0.5 µs."""
    if ns >= SECOND:
        return f"{ns / SECOND:,.3f} s"
    return f"{ns / MILLISECOND:.3f} ms" if ns >= MILLISECOND else f"{ns / MICROSECOND:g} µs"


def percent(part: int, whole: int) -> str:
    """17 %."""
    return f"{part / whole:.0%}".replace("%", " %") if whole else NOTHING
