"""Jobs whose critical path is known: threads, streams and transfers of several ranks; times are microseconds."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as some

from builders.graph import START, GraphBuilder
from tracelink.answers.path.job import JobPieces, joined
from tracelink.answers.path.nodes import PieceKind
from tracelink.answers.path.rank import contracted
from tracelink.answers.path.walk import Segments, critical_path
from tracelink.model.communications import Evidence
from tracelink.model.events import EventKind, Relation, TrackKind
from tracelink.model.job import Job

US = 1000


@dataclass
class PathBuilder:
    """Collects what ranks did; the events of a rank must be given before those of the next one."""

    graph: GraphBuilder = field(default_factory=GraphBuilder)
    tracks: dict[tuple[int, str], int] = field(default_factory=dict)

    def op(self, rank: int, name: str, start: float, end: float, thread: str = "main") -> int:
        """An operator."""
        return self._add(rank, thread, name, start, end, EventKind.OPERATOR)

    def note(self, rank: int, name: str, start: float, end: float, thread: str = "main") -> int:
        """An annotation."""
        return self._add(rank, thread, name, start, end, EventKind.ANNOTATION)

    def call(self, rank: int, name: str, start: float, end: float, inside: int | None = None) -> int:
        """A call of the runtime."""
        row = self._add(rank, "main", name, start, end, EventKind.RUNTIME)
        if inside is not None:
            self.graph.edge(inside, Relation.CALLS, row)
        return row

    def kernel(
        self, rank: int, name: str, start: float, end: float, launched: float | None = None, stream: int = 7
    ) -> int:
        """A kernel, and the call that launched it, of 1 us."""
        row = self._add(rank, f"stream {stream}", name, start, end, EventKind.KERNEL)
        if launched is not None:
            by = self.call(rank, "cudaLaunchKernel", launched, launched + 1)
            self.graph.edge(by, Relation.LAUNCHES, row)
        return row

    def together(self, *rows: int, operation: str = "all_reduce", as_what: str = "kernel") -> None:
        """A collective of the ranks of these events."""
        ranks = [self.graph.tracks[self.graph.rows[row][2]].rank for row in rows]
        self.graph.together(self.graph.group(*ranks), *rows, operation=operation, as_what=as_what)
        evidence = Evidence.KERNEL if as_what == "kernel" else Evidence.ANNOTATION
        for part in self.graph.participations[-len(rows) :]:
            part["evidence"] = evidence

    def job(self) -> Job:
        """The job."""
        return Job.of(self.graph.build())

    def pieces(self) -> JobPieces:
        """Its contracted graph."""
        return pieces_of(self.job())

    def _add(self, rank: int, track: str, name: str, start: float, end: float, kind: EventKind) -> int:
        if (rank, track) not in self.tracks:
            on_device = track.startswith("stream")
            which = TrackKind.STREAM if on_device else TrackKind.THREAD
            process = str(rank) if on_device else "100"
            self.tracks[rank, track] = self.graph.track(which, rank, process, track.removeprefix("stream "))
        length = round((end - start) * US)
        return self.graph.add(self.tracks[rank, track], name, round(start * US), length, kind)


def pieces_of(job: Job) -> JobPieces:
    """The contracted graph of a job."""
    return joined([contracted(part.load(), job, part.rank) for part in job.parts], job)


def path_in_words(pieces: JobPieces) -> list[str]:
    """Each segment as `rank kind name start-end`, with times in us."""
    path = critical_path(pieces)
    return [_in_words(pieces, path, row) for row in range(len(path))]


def _in_words(pieces: JobPieces, path: Segments, row: int) -> str:
    piece = int(path.piece[row])
    code = int(pieces.pieces.name[piece])
    name = "" if code < 0 else f" {pieces.names[code]}"
    begin, end = ((int(times[row]) - START) / US for times in (path.start, path.end))
    return f"{path.rank[row]} {PieceKind(path.kind[row]).label}{name} {begin:g}-{end:g}"


# Generated jobs.


ranks_of_pieces = some.lists(
    some.lists(some.tuples(some.integers(1, 9), some.integers(0, 20), some.integers(0, 60)), max_size=12),
    min_size=1,
    max_size=3,
)


def generated(ranks: list[list[tuple[int, int, int]]]) -> Job:
    """Ranks that launch kernels: the time of the launch, the gap before the kernel, its length; then a collective."""
    job = PathBuilder()
    rows = []
    for rank, kernels in enumerate(ranks):
        now, busy = 0, 0
        for pause, gap, length in kernels:
            job.op(rank, "aten::op", now, now + pause)
            begin = max(now + pause + 1, busy) + gap
            job.kernel(rank, "k", begin, begin + length, launched=now + pause)
            busy, now = begin + length, now + pause + 1
        rows.append(job.kernel(rank, "ncclAllReduce", max(now + 1, busy), 2000, launched=now))
    job.together(*rows)
    return job.job()
