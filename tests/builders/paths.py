"""The critical path in words, and generated jobs of which it is known; times are microseconds."""

from __future__ import annotations

from hypothesis import strategies as some

from builders.job import START, JobBuilder
from tracelink._model.job import LinkedJob
from tracelink._time.path.job import JobPieces, joined
from tracelink._time.path.nodes import PieceKind
from tracelink._time.path.rank import contracted
from tracelink._time.path.walk import Segments, critical_path

US = 1000


def pieces_of(job: LinkedJob | JobBuilder) -> JobPieces:
    job = LinkedJob.of(job.build()) if isinstance(job, JobBuilder) else job
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


def generated(ranks: list[list[tuple[int, int, int]]]) -> LinkedJob:
    """Ranks that launch kernels: the time of the launch, the gap before the kernel, its length; then a collective."""
    job = JobBuilder(unit=US)
    rows = []
    for rank, kernels in enumerate(ranks):
        now, busy = 0, 0
        for pause, gap, length in kernels:
            job.op("aten::op", now, now + pause, rank=rank)
            begin = max(now + pause + 1, busy) + gap
            job.work("k", begin, begin + length, rank=rank, launched=now + pause)
            busy, now = begin + length, now + pause + 1
        rows.append(job.work("ncclAllReduce", max(now + 1, busy), 2000, rank=rank, launched=now))
    job.together(job.group(*range(len(rows))), *rows)
    return LinkedJob.of(job.build())
