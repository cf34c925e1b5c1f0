"""The tracks of one rank as a tree: its threads, then its GPUs with their streams, its process groups, and the rest.

They are plain tracks and no processes: viewers sort those by how much they do, and add their numbers to their names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tracelink.converters.perfetto.layout import Layout, Place, Process, Seats
from tracelink.converters.perfetto.numbering import Numbering
from tracelink.events import Track, TrackKind
from tracelink.graph import EventGraph

THREADS = tuple(kind for kind in TrackKind if kind != TrackKind.PROCESS)
"""What stands directly below a rank, where its process has no branch of its own."""

PROFILER = "profiler"
"""The branch of what belongs to no thread, where there is more of it than one track."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A track that is to be declared, under another or at the root."""

    number: int
    name: str
    parent: int = 0
    unit: str | None = None
    """Of a counter: what its values are in, or "" where that is not known."""


@dataclass(slots=True)
class Tree:
    """The branches of a rank, in the order in which they are shown."""

    root: Branch
    below: list[Branch] = field(default_factory=list)

    def __iter__(self) -> Iterator[Branch]:
        yield self.root
        yield from self.below

    def add(self, number: int, name: str, parent: int, unit: str | None = None) -> None:
        """Puts a track behind all others of its parent."""
        self.below.append(Branch(number, name, parent, unit))

    def add_threads(self, seats: Seats, process: Process, parent: int, *kinds: TrackKind) -> None:
        """The threads of a process; all lanes of one have its name, so that viewers draw them as one."""
        for tid, thread in zip(seats.tid, seats.thread, strict=True):
            if thread.process == process and thread.kind in kinds:
                self.add(tid, thread.name, parent)

    def add_counters(self, tracks: Mapping[int, Track], parent: int) -> None:
        """Counters by number, each with a name of its own: viewers cannot draw two as one."""
        used: set[str] = set()
        for number, track in tracks.items():
            name = track.label or track.identity
            own = f"{name} #{number}" if name in used else name
            used.add(own)
            self.add(number, own, parent, track.unit)


def tree_of(
    graph: EventGraph, layout: Layout, seats: Seats, counters: Mapping[int, int], numbering: Numbering
) -> Tree:
    """The tree of one rank; `counters` are the numbers of those of its tracks that are counters."""
    last = len(layout.processes) + len(seats.tid) + len(counters)
    tree = Tree(Branch(numbering.seat(last + 1), layout.title))
    root, trunk = tree.root.number, _trunk(layout)
    if trunk:
        tree.add_threads(seats, trunk, root, *THREADS)
    for process in layout.processes:
        if process != trunk and process.place != Place.COUNTERS:
            tree.add(process.pid, process.name, root)
            tree.add_threads(seats, process, process.pid, *TrackKind)
            tree.add_counters(_sampled(graph, layout, counters, process), process.pid)
    if trunk:
        _add_profiler(
            tree, seats, trunk, Branch(numbering.seat(last + 2), f"{layout.title} · {PROFILER}", root)
        )
    bare = [process for process in layout.processes if process == trunk or process.place == Place.COUNTERS]
    tree.add_counters(_sampled(graph, layout, counters, *bare), root)
    return tree


def _add_profiler(tree: Tree, seats: Seats, trunk: Process, branch: Branch) -> None:
    """What belongs to no thread, on a branch of its own where it is more than one track."""
    count = sum(thread.process == trunk and thread.kind == TrackKind.PROCESS for thread in set(seats.thread))
    if count > 1:
        tree.add(branch.number, branch.name, branch.parent)
    tree.add_threads(seats, trunk, branch.number if count > 1 else branch.parent, TrackKind.PROCESS)


def _sampled(
    graph: EventGraph, layout: Layout, counters: Mapping[int, int], *processes: Process
) -> Mapping[int, Track]:
    """The counters of processes by number."""
    return {
        counters[row]: graph.tracks[row]
        for row, owner in layout.process_of_counter.items()
        if owner in processes
    }


def _trunk(layout: Layout) -> Process | None:
    """The process whose threads stand directly below the rank: its first, or the only one without a device."""
    drawn = [process for process in layout.processes if process.place not in (Place.GPU, Place.COUNTERS)]
    return drawn[0] if drawn and (drawn[0].place == Place.CPU or len(layout.processes) == 1) else None
