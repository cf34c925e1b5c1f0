"""Several recorders of one rank: backends that record on their own, each in a dump of its own.

Input: dumps, some of them of the same rank. Output: the dumps of each recorder, whose sets are chosen separately, and
one recording of a rank from those of all its recorders, in the order of time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import chain

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._match.groups import names_by_backend, with_suffix
from tracelink._model.columns import UNKNOWN, Int64s, StringTable
from tracelink._model.findings import Finding, Severity
from tracelink._model.records import Entry, EntryPayloads, Progress, Recording, Records, Requests
from tracelink._model.text import counted
from tracelink._model.trace import ProcessGroup

PLACES = 1 << 40
"""Indexes of entries of each recorder in a joined recording: no dump has as many."""

Dump = tuple[int, Recording]


def by_recorder(dumps: Sequence[Dump]) -> list[list[Dump]]:
    """The dumps of each recorder; all of them together unless a rank has dumps without a common group and backend."""
    if len({rank for rank, _ in dumps}) == len(dumps):
        return [list(dumps)]
    import networkx  # takes longer to import than many jobs to diagnose

    graph: networkx.Graph[int | str] = networkx.Graph()
    graph.add_nodes_from(range(len(dumps)))
    groups = [recording.source.recorder for _, recording in dumps]
    known = next((number for number, own in enumerate(groups) if own), 0)
    graph.add_edges_from((number, group) for number, own in enumerate(groups) for group in own or [known])
    numbers = (
        [node for node in part if isinstance(node, int)] for part in networkx.connected_components(graph)
    )
    parts = [[dumps[number] for number in sorted(part)] for part in numbers]
    ranks = Counter(rank for part in parts for rank in {rank for rank, _ in part})
    return parts if max(ranks.values(), default=0) > 1 else [list(dumps)]


# One recording of a rank from several.


class _JoinedPayloads(Struct, EntryPayloads, frozen=True):
    """The entries of several dumps; those of each have places and names of groups of their own."""

    parts: Sequence[tuple[EntryPayloads, int, Mapping[str, str]]]
    """Payloads, by how much their places are shifted, and what follows the names of groups."""

    def entries(self, places: Collection[int]) -> Mapping[int, Entry]:
        """The entries at these places."""
        found: dict[int, Entry] = {}
        for part, shift, suffixes in self.parts:
            own = [place - shift for place in places if (place - shift) // PLACES == 0 <= place - shift]
            if own:
                entries = part.entries(own).items()
                found |= {place + shift: _renamed(entry, suffixes) for place, entry in entries}
        return found


def _renamed(entry: Entry, suffixes: Mapping[str, str]) -> Entry:
    suffix = suffixes.get(entry.group, "")
    description = f"{entry.description}{suffix}" if entry.description else ""
    return replace(entry, group=f"{entry.group}{suffix}", description=description)


def joined(parts: Sequence[Mapping[int, Recording]]) -> dict[int, Recording]:
    """One recording for each rank; a group that several backends use is a group for each backend."""
    suffixes = names_by_backend(recording.source.recorder for part in parts for recording in part.values())
    of_rank: dict[int, list[Recording]] = defaultdict(list)
    for part in parts:
        for rank, recording in part.items():
            of_rank[rank].append(recording)
    return {rank: _joined(recordings, suffixes) for rank, recordings in of_rank.items()}


def recorders_finding(parts: Sequence[Sequence[Dump]]) -> Finding:
    """What was joined."""
    shown = " and ".join(sorted({_backends(part) for part in parts}))
    message = (
        f"Ranks have dumps of {counted(len(parts), 'recorder')}: {shown}. Those of a rank are read as one."
    )
    return Finding(Severity.INFO, "recorders", message, len(parts), example=parts[-1][0][1].source.path)


def _backends(dumps: Sequence[Dump]) -> str:
    groups = {group for _, recording in dumps for group in recording.source.recorder}
    return ", ".join(sorted({group.partition(":")[0] for group in groups})) or "without groups"


def _joined(recordings: Sequence[Recording], suffixes: Mapping[str, str]) -> Recording:
    first, strings, count = recordings[0], StringTable(), 0
    records: list[Records] = []
    requests: list[Requests] = []
    groups: list[ProcessGroup] = []
    progress: dict[str, Progress] = {}
    payloads: list[tuple[EntryPayloads, int, Mapping[str, str]]] = []
    for number, recording in enumerate(recordings):
        added = {group.partition(":")[2]: suffixes.get(group, "") for group in recording.source.recorder}
        names = [f"{text}{added.get(text, '')}" for text in recording.strings]
        own, shift = recording.records.recoded(strings.encode(names)), number * PLACES
        shift += recording.overwritten - first.overwritten
        request = (own.request + count).astype(np.int32)
        records.append(replace(own, request=request, place=own.place + shift))
        requests.append(recording.requests.recoded(strings.absorb(recording.strings)))
        groups += [with_suffix(group, added.get(group.name, "")) for group in recording.groups]
        progress |= {f"{name}{added.get(name, '')}": own for name, own in recording.progress.items()}
        count += len(recording.requests)
        payloads.append((recording.payloads, shift, added))
    order = np.argsort(_times_in_order(records), kind="stable")
    return replace(
        first,
        source=replace(
            first.source,
            events=sum(recording.source.events for recording in recordings),
            bytes=sum(recording.source.bytes for recording in recordings),
            recorder=tuple(sorted({*chain.from_iterable(own.source.recorder for own in recordings)})),
        ),
        strings=strings.texts(),
        records=Records.concatenate(records).take(order),
        requests=Requests.concatenate(requests),
        groups=groups,
        progress=progress,
        numbers={},
        made=UNKNOWN,
        skipped=sum(recording.skipped for recording in recordings),
        broken_off=any(recording.broken_off for recording in recordings),
        retires_early=any(recording.retires_early for recording in recordings),
        payloads=_JoinedPayloads(payloads),
        findings=[finding for recording in recordings for finding in recording.findings],
    )


def _times_in_order(parts: Sequence[Records]) -> Int64s:
    """When each entry was created, at least as late as the one before it: entries of a recorder stay in order."""
    return np.concatenate([np.maximum.accumulate(part.created) for part in parts])
