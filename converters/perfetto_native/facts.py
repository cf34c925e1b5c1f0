"""What viewers have no use for and readers need: packets of a field of tracelink's own, which viewers pass over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tracelink.converters.perfetto import header
from tracelink.converters.perfetto.derived.groups import GroupCounters
from tracelink.converters.perfetto.flows import Arrows
from tracelink.converters.perfetto.group_tracks import PROCESS, GroupSeats
from tracelink.converters.perfetto.picture import Picture
from tracelink.converters.perfetto.schema import FLOW_NAMES
from tracelink.converters.perfetto.text import encoded
from tracelink.converters.perfetto_native.schema import PACKET, Fact, Packet
from tracelink.events import Bools, Relation, Track
from tracelink.job import Job
from tracelink.wire import delimited

ArrowFact = tuple[str, int, int]
"""A relation, how many arrows it has, and how many of them lead against the order in which events are met."""


def header_packet(job: Job, base: int) -> bytes:
    """The facts on the job, as a document in JSON has them around its events."""
    return _packet(header.opening(job, base) + b"\n}")


def rank_packet(
    picture: Picture, counters: Mapping[int, int], arrows: Sequence[ArrowFact], first_arrow: int
) -> bytes:
    """The facts on one rank: its processes and threads as they are in JSON, and what its arrows mean.

    `counters` are the numbers of those of its tracks that are counters.
    """
    graph, layout, seats = picture.graph, picture.layout, picture.seats
    threads = zip(seats.pid, seats.tid, seats.name, seats.thread, strict=True)
    return _facts(
        {
            Fact.RANK: graph.ranks[0].rank,
            Fact.PROCESSES: [
                [process.pid, process.name, process.label, process.original] for process in layout.processes
            ],
            Fact.THREADS: [[pid, tid, name, thread.original] for pid, tid, name, thread in threads],
            Fact.COUNTERS: [
                [number, layout.process_of_counter[row].pid, _counter_name(graph.tracks[row])]
                for row, number in counters.items()
            ],
            Fact.FIRST_ARROW: first_arrow,
            Fact.ARROWS: arrows,
        }
    )


def group_packet(seats: GroupSeats, counters: GroupCounters) -> bytes:
    """The facts on what ranks did together."""
    process = seats.process
    return _facts(
        {
            Fact.PROCESSES: [[process, PROCESS, PROCESS]],
            Fact.THREADS: [[process, *seat] for seat in zip(seats.tids, seats.names, strict=True)],
            Fact.COUNTERS: [
                [number, process, name] for number, name in zip(counters.numbers, counters.names, strict=True)
            ],
        }
    )


def arrow_facts(arrows: Arrows, turned: Bools) -> list[ArrowFact]:
    """What arrows mean that stand by relation, those that are turned behind the others."""
    relations, counts = np.unique(arrows.relation, return_counts=True)
    return [
        (FLOW_NAMES[Relation(relation)], count, int(np.count_nonzero(turned[arrows.relation == relation])))
        for relation, count in zip(relations.tolist(), counts.tolist(), strict=True)
    ]


def _counter_name(track: Track) -> str:
    return track.label or track.identity


def _facts(facts: Mapping[Fact, Any]) -> bytes:
    return _packet(encoded(facts))


def _packet(text: bytes) -> bytes:
    return delimited(PACKET, delimited(Packet.TRACELINK, text))
