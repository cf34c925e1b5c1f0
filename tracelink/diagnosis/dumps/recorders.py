"""Several recorders of one rank: backends that record on their own, each in a dump of its own.

Input: dumps, some of them of the same rank. Output: the dumps of each recorder, whose sets are chosen separately, and
one recording of a rank from those of all its recorders, in the order of time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import chain

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink.matching.groups import names_by_backend, with_suffix
from tracelink.model.columns import UNKNOWN, Int32s, Int64s, StringTable
from tracelink.model.findings import Finding, Severity
from tracelink.model.records import Entry, Recording, Records, Requests
from tracelink.model.text import counted
from tracelink.model.trace import NoPayloads
from tracelink.plugins import EntryPayloads

PLACES = 1 << 40
"""Indexes of entries of each recorder in a joined recording: no dump has as many."""

Dump = tuple[int, Recording]


def by_recorder(dumps: Sequence[Dump]) -> list[list[Dump]]:
    """The dumps of each recorder; all of them together unless a rank has dumps without a common group and backend."""
    parts = _connected([recording.source.recorder for _, recording in dumps])
    ranks = [
        {rank for (rank, _), own in zip(dumps, parts, strict=True) if own == part} for part in set(parts)
    ]
    if not any(one & other for number, one in enumerate(ranks) for other in ranks[number + 1 :]):
        return [list(dumps)]
    found: dict[int, list[Dump]] = defaultdict(list)
    for dump, part in zip(dumps, parts, strict=True):
        found[part].append(dump)
    return list(found.values())


def _connected(recorders: Sequence[Collection[str]]) -> list[int]:
    """A number for each recorder, equal if they have a group in common; those without groups are like the first."""
    part_of: dict[str, int] = {}
    parent = list(range(len(recorders)))

    def root(part: int) -> int:
        while parent[part] != part:
            parent[part] = part = parent[parent[part]]
        return part

    for number, groups in enumerate(recorders):
        for group in groups:
            parent[root(number)] = root(part_of.setdefault(group, number))
    first = next((number for number, groups in enumerate(recorders) if groups), 0)
    return [root(number if groups else first) for number, groups in enumerate(recorders)]


# One recording of a rank from several.


class _JoinedPayloads(Struct, NoPayloads, frozen=True):
    """The entries of several dumps; those of each have places of their own."""

    parts: Sequence[object]
    shifts: Sequence[int]

    def entries(self, places: Collection[int]) -> Mapping[int, Entry]:
        """The entries at these places."""
        found: dict[int, Entry] = {}
        for part, shift in zip(self.parts, self.shifts, strict=True):
            own = [place - shift for place in places if (place - shift) // PLACES == 0 <= place - shift]
            if own and isinstance(part, EntryPayloads):
                found |= {place + shift: entry for place, entry in part.entries(own).items()}
        return found


class _RenamedPayloads(Struct, NoPayloads, frozen=True):
    """The entries of a dump, with other names of some groups."""

    part: object
    suffixes: Mapping[str, str]

    def entries(self, places: Collection[int]) -> Mapping[int, Entry]:
        """The entries at these places."""
        found = self.part.entries(places) if isinstance(self.part, EntryPayloads) else {}
        return {place: self._renamed(entry) for place, entry in found.items()}

    def _renamed(self, entry: Entry) -> Entry:
        suffix = self.suffixes.get(entry.group, "")
        description = f"{entry.description}{suffix}" if entry.description else ""
        return replace(entry, group=f"{entry.group}{suffix}", description=description)


def joined(parts: Sequence[Mapping[int, Recording]]) -> dict[int, Recording]:
    """One recording for each rank; a group that several backends use is a group for each backend."""
    suffixes = names_by_backend(recording.source.recorder for part in parts for recording in part.values())
    of_rank: dict[int, list[Recording]] = defaultdict(list)
    for part in parts:
        for rank, recording in part.items():
            of_rank[rank].append(_renamed(recording, suffixes))
    return {rank: _joined(recordings) for rank, recordings in of_rank.items()}


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


def _renamed(recording: Recording, suffixes: Mapping[str, str]) -> Recording:
    """The recording with new names for the groups that other backends use as well."""
    added = {
        group.partition(":")[2]: suffixes[group] for group in recording.source.recorder if group in suffixes
    }
    if not added:
        return recording
    strings = StringTable()
    own = np.append(strings.encode([*recording.strings]), UNKNOWN).astype(np.int32)
    names = [f"{text}{added.get(text, '')}" for text in recording.strings]
    named = np.append(strings.encode(names), UNKNOWN).astype(np.int32)
    return replace(
        recording,
        strings=strings.texts(),
        records=replace(recording.records, group=named[recording.records.group]),
        requests=_recoded(recording.requests, own),
        groups=[with_suffix(group, added.get(group.name, "")) for group in recording.groups],
        progress={f"{name}{added.get(name, '')}": own for name, own in recording.progress.items()},
        payloads=_RenamedPayloads(recording.payloads, added),
    )


def _recoded(requests: Requests, codes: Int32s) -> Requests:
    texts = Requests.text_columns()
    columns = requests.columns().items()
    return Requests(**{name: codes[column] if name in texts else column for name, column in columns})


def _joined(recordings: Sequence[Recording]) -> Recording:
    if len(recordings) == 1:
        return recordings[0]
    first = recordings[0]
    strings = StringTable()
    records, requests, shifts, count = [], [], [], 0
    for number, recording in enumerate(recordings):
        codes = np.append(strings.encode([*recording.strings]), UNKNOWN).astype(np.int32)
        shift = number * PLACES + recording.overwritten - first.overwritten
        own = recording.records
        records.append(
            replace(
                own, group=codes[own.group], request=own.request + np.int32(count), place=own.place + shift
            )
        )
        requests.append(_recoded(recording.requests, codes))
        shifts.append(shift)
        count += len(recording.requests)
    together = Records.concatenate(records)
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
        records=together.take(order),
        requests=Requests.concatenate(requests),
        groups=[group for recording in recordings for group in recording.groups],
        progress={name: own for recording in recordings for name, own in recording.progress.items()},
        numbers={},
        made=UNKNOWN,
        skipped=sum(recording.skipped for recording in recordings),
        broken_off=any(recording.broken_off for recording in recordings),
        retires_early=any(recording.retires_early for recording in recordings),
        payloads=_JoinedPayloads([recording.payloads for recording in recordings], shifts),
        findings=[finding for recording in recordings for finding in recording.findings],
    )


def _times_in_order(parts: Sequence[Records]) -> Int64s:
    """When each entry was created, at least as late as the one before it: entries of a recorder stay in order."""
    return np.concatenate([np.maximum.accumulate(part.created) for part in parts])
