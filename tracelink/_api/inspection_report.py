"""The report of `tracelink inspect`: a table of the sources, and tables of Chakra traces."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from msgspec import UnsetType, defstruct
from msgspec.structs import asdict

from tracelink._api.inspection import InspectedSource, Inspection
from tracelink._model.columns import SECOND
from tracelink._model.fields import PATH, Count, Nanoseconds, Row, Share, Shown
from tracelink._model.findings import Severity
from tracelink._model.selection import Numbers
from tracelink._model.text import counted, moment, number
from tracelink._show.document import Block, Paragraph, Report, Section, Table, Tone
from tracelink.converters.chakra.census import Census, Communication, LongestChain
from tracelink.converters.chakra.table import ROLES
from tracelink.plugins import Content, reader_spec


class SourceRow(InspectedSource, frozen=True):
    """A source, with its path within the folder of all."""

    duration_ns: Nanoseconds | None = None
    samples: Count | None = None
    problems: Count | None = None


COLUMNS = (
    *("path", "format", "version", "rank", "host", "events", "samples"),
    *("start_ns", "duration_ns", "bytes", "problems"),
)


def report_of(inspection: Inspection) -> Report:
    """The document of sources, the nodes of those that are Chakra traces, and the findings."""
    sources = inspection.sources
    folder = common_folder([source.path for source in sources])
    problems = Counter(
        finding.source for finding in inspection.findings if finding.severity is not Severity.INFO
    )
    rows = [_row(source, folder, problems[source.path]) for source in sources]
    zero_ns = _zero(sources)
    blocks: list[Block] = [Table(rows, columns=COLUMNS, thing="source", zero_ns=zero_ns, most=10_000)]
    if zero_ns is not None:
        blocks.append(_counted_from(sources, zero_ns))
    censuses = {
        source.path.removeprefix(folder): source.chakra
        for source in sources
        if not isinstance(source.chakra, UnsetType)
    }
    sections = [Section("Sources", blocks)]
    if censuses:
        sections += [
            Section("Nodes of Chakra traces", [_nodes(censuses)]),
            Section("Communication", list(_communication(list(censuses.values())))),
            Section("Longest chains", list(_chains(censuses))),
        ]
    ranks = Numbers.of({source.rank for source in sources if source.rank is not None})
    of = f" of {ranks.called('rank')}" if ranks else ""
    return Report(
        "inspect",
        f"{counted(len(sources), 'source')}{of}",
        summary=[Paragraph(f"In {folder}", path=folder)] if folder else [],
        sections=sections,
        findings=inspection.findings,
    )


def common_folder(paths: Sequence[str]) -> str:
    """The folder, or the archive, that contains all of several paths, up to its last separator; or empty."""
    if len(paths) < 2:
        return ""
    first, last = min(paths), max(paths)
    length = next(
        (index for index, pair in enumerate(zip(first, last, strict=False)) if len(set(pair)) > 1), 0
    )
    return re.sub(r"[^/:]*$", "", first[:length])


def _row(source: InspectedSource, folder: str, problems: int) -> SourceRow:
    known = source.start_ns is not None and source.end_ns is not None
    values = {name: getattr(source, name) for name in InspectedSource.__struct_fields__}
    return SourceRow(
        **values | {"path": source.path.removeprefix(folder)},
        duration_ns=source.end_ns - source.start_ns if known else None,  # type: ignore[operator]
        samples=source.records if reader_spec(source.format).content is Content.METRICS else None,
        problems=problems or None,
    )


# The time of sources.


APART_NS = 3600 * SECOND
"""If recordings start further apart, they are of several jobs: their starts are shown in UTC."""


def _zero(sources: Sequence[InspectedSource]) -> int | None:
    """The first event of all sources; None if nothing has a time, or they are not of one job."""
    starts = [source.start_ns for source in sources if source.start_ns is not None]
    return min(starts) if starts and max(starts) - min(starts) <= APART_NS else None


def _counted_from(sources: Sequence[InspectedSource], first_ns: int) -> Paragraph:
    """The time that starts count from: that of all commands, unless ranks have clocks that these correct."""
    clocks = {source.host or source.rank for source in sources if source.start_ns is not None}
    corrected = (
        " by the ranks' own clocks. Other commands correct these (`tracelink clocks` shows by how much)."
    )
    ending = corrected if len(clocks) > 1 else "."
    return Paragraph(f"Starts count from the first event, at {moment(first_ns)}{ending}", Tone.ASIDE)


# Chakra traces: node types, communication, and longest chains.


ROWS = 16
"""More Chakra traces than this share one row."""

NodeRow = defstruct(
    "NodeRow",
    [
        ("trace", Annotated[str, Shown(longest=PATH)]),
        ("nodes", Count),
        *((role.value, Count | None) for role in ROLES),
    ],
    bases=(Row,),
    frozen=True,
)
"""The nodes of a trace, by their roles."""


class GroupRow(Communication, frozen=True):
    """Communication of one kind in one group, in all traces."""

    traces: Count = 0


class ChainRow(LongestChain, frozen=True):
    """The longest chain of a trace, and how much of its device work follows other device work."""

    trace: Annotated[str, Shown("longest chain of", longest=PATH)] = ""
    compute_share: Annotated[Share | None, Shown("compute", drop=3)] = None
    communication_share: Annotated[Share | None, Shown("communication", drop=2)] = None
    host_share: Annotated[Share | None, Shown("host", drop=1)] = None
    device_nodes: Annotated[Count, Shown(drop=5)] = 0
    after_device_work: Count = 0
    after_device_share: Annotated[Share | None, Shown("after device work", drop=4)] = None


def _nodes(censuses: Mapping[str, Census]) -> Table:
    counts = {path: Counter(census.nodes) for path, census in censuses.items()}
    if len(counts) > ROWS:
        counts = {counted(len(counts), "trace"): sum(counts.values(), Counter())}
    rows = [NodeRow(trace, of.total(), *(of[role] or None for role in ROLES)) for trace, of in counts.items()]
    return Table(rows, thing="trace", from_right=True)


def _communication(censuses: Sequence[Census]) -> Iterator[Block]:
    """Communication by kind and group, summed over all traces."""
    found: defaultdict[tuple[str, str], list[Communication]] = defaultdict(list)
    for row in (row for census in censuses for row in census.communication):
        found[row.kind, row.group].append(row)
    if not found:
        yield Paragraph("No communication nodes.", Tone.ASIDE)
        return
    rows = [
        GroupRow(
            kind,
            group or "all ranks",
            sum(row.count for row in same),
            sum(row.bytes for row in same),
            sum(row.without_size for row in same),
            len(same),
        )
        for (kind, group), same in found.items()
    ]
    rows.sort(key=lambda row: (-row.bytes, row.kind, row.group))
    sizeless = ["without_size"] if any(row.without_size for row in rows) else []
    yield Table(rows, columns=("kind", "group", "traces", "count", "bytes", *sizeless))


CHAINS = (
    *("trace", "ns", "compute_ns", "compute_share", "communication_ns", "communication_share"),
    *("host_ns", "host_share", "nodes", "device_nodes", "after_device_work", "after_device_share"),
)


def _chains(censuses: Mapping[str, Census]) -> Iterator[Block]:
    shown = list(censuses.items())
    if len(shown) > ROWS:
        path, longest = max(shown, key=lambda item: item[1].longest_chain.ns)
        shown = [(f"{path} (longest of {number(len(shown))})", longest)]
    rows = [_chain(path, census) for path, census in shown]
    times = ("ns", "compute_ns", "communication_ns", "host_ns")
    yield Table(rows, columns=CHAINS, together=times, thing="trace")
    if unordered := sum(census.nodes_without_order for census in censuses.values()):
        yield Paragraph(
            f"Not counted: {counted(unordered, 'node')} in dependency cycles, or that depend on one.",
            Tone.WARNING,
        )
    yield Paragraph("after device work: device nodes that depend directly on another device node", Tone.ASIDE)


def _chain(path: str, census: Census) -> ChainRow:
    chain = census.longest_chain
    following = census.device_nodes_after_device
    return ChainRow(
        **asdict(chain),
        trace=path,
        compute_share=_share(chain.compute_ns, chain.ns),
        communication_share=_share(chain.communication_ns, chain.ns),
        host_share=_share(chain.host_ns, chain.ns),
        device_nodes=census.device_nodes,
        after_device_work=following,
        after_device_share=_share(following, census.device_nodes),
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if part else None
