"""Writing the graph as tables, and queries of a hundred million events in Parquet and in DuckDB."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import inputs
from inputs import Input
from measure import Job
from results import Bar, Options, Result, cpu, output_folder, rows_of, wall, warmed

from tracelink._sql.shipped import shipped_queries

if TYPE_CHECKING:
    from tracelink._model.graph import EventGraph

EVENTS_PER_BYTE = 0.5
"""A hundred million events at the default size."""
MEGABYTES_PER_CPU_SECOND, MOST_SECONDS = 300.0, 1.0
DATASET, DATABASE = "job.parquet", "job.duckdb"


def tables(options: Options) -> Result:
    """Write a linked graph as Parquet; then merges from end to end, and queries of a job of many ranks."""
    file = inputs.without_stacks(options.size)
    paths = warmed([file])
    with output_folder() as folder:
        jobs = [
            Job("writing Parquet, 1 job", "write_tables", (folder / "a.parquet", *paths)),
            Job("tracelink.merge to Parquet, 1 job", "merge", (1, folder / "b.parquet", *paths)),
            Job("tracelink.merge to Parquet, 2 jobs", "merge", (2, folder / "c.parquet", *paths)),
            Job("tracelink.merge to DuckDB, 1 job", "merge", (1, folder / "d.duckdb", *paths)),
        ]
        result = Result(rows_of(jobs, [file], options.repeats))
    rate = file.megabytes / result.rows[0].best(cpu)
    result.bars.append(
        Bar("writing Parquet, MB of JSON / CPU s", rate, MEGABYTES_PER_CPU_SECOND, at_least=True)
    )
    job = many_ranks(int(options.size * EVENTS_PER_BYTE))
    queries = [
        Job(f"{name}, {kind}", "query", (job.path.with_name(kind), name))
        for name in shipped_queries()
        for kind in (DATABASE, DATASET)
    ]
    rows = rows_of(queries, [job], options.repeats)
    result.rows += rows
    result.bars += [Bar(f"{row.job}, warm, wall s", row.best(wall), MOST_SECONDS) for row in rows]
    return result


def many_ranks(events: int) -> Input:
    """A dataset and a DuckDB file of ranks that do the same, with other durations each, of so many events together."""
    original = inputs.without_stacks(100_000_000)

    def write(folder: Path) -> int:
        from tracelink.converters.tables.storage import make_database

        ranks = written_dataset(original.path, folder / DATASET, events)
        scratch = folder / "scratch"
        scratch.mkdir()
        make_database(folder / DATASET, folder / DATABASE, scratch, str(folder / DATABASE))
        return ranks

    folder, ranks = inputs.cached(f"tables-{events}", (original.path, Path(__file__)), write)
    return Input(folder / DATABASE, original.made_of, ranks)


def written_dataset(profile: Path, folder: Path, events: int) -> int:
    """Writes the tables of one profile for as many ranks as are needed; returns their number."""
    import numpy as np
    import pyarrow as pa
    from msgspec.structs import replace

    from tracelink._io.sources import discover_inputs
    from tracelink._io.targets import folder_target
    from tracelink._join.job_reader import read_job
    from tracelink._model import __version__
    from tracelink._run.processes import Processes
    from tracelink._store import parquet
    from tracelink.converters.tables import schema
    from tracelink.converters.tables.storage import write_manifest
    from tracelink.converters.tables.writer import job_tables, rank_tables

    job = read_job(discover_inputs(profile), Processes())
    contents = list(rank_tables(with_memory(job.parts[0].load()), None))
    ranks = -(-events // job.events)
    job = replace(
        job,
        ranks=[replace(job.ranks[0], rank=rank) for rank in range(ranks)],
        sources=[replace(job.sources[0], rank=rank) for rank in range(ranks)],
        reports={},
    )
    target, random = folder_target(folder), np.random.default_rng(1)
    rows: dict[str, int] = {}
    for rank in range(ranks):
        for table, content in contents:
            if table is schema.EVENTS:
                index = content.schema.get_field_index("duration_ns")
                longer = np.rint(
                    random.uniform(1, 1.5, len(content)) * content.column(index).fill_null(0).to_numpy()
                )
                content = content.set_column(index, "duration_ns", pa.array(longer.astype(np.int64)))
            parquet.write(target, schema.partition(table.name, rank), table, content)
            rows[table.name] = rows.get(table.name, 0) + len(content)
    for table, content in job_tables(job):
        parquet.write(target, schema.file_of(table.name), table, content)
        rows[table.name] = len(content)
    counts = [job.events] * ranks
    manifest = schema.Manifest(
        schema.FORMAT,
        schema.VERSION,
        __version__,
        list(range(ranks)),
        counts,
        rows,
        [(job.first_ns, job.last_ns)] * ranks,
        job.first_ns,
        job.last_ns,
    )
    write_manifest(target, manifest)
    return ranks


def with_memory(graph: EventGraph) -> EventGraph:
    """The graph with counters of memory, which its profile does not have: two samples for every tenth operator."""
    import numpy as np
    from msgspec.structs import replace

    from tracelink._model.events import Counters, Track, TrackKind

    time = np.repeat(graph.events.start[graph.find(kind="operator")[::10]], 2)
    track = len(graph.tracks) + np.arange(len(time), dtype=np.int32) % 2
    value = np.random.default_rng(1).uniform(0, 80e9, len(time))
    counters = [Track(TrackKind.COUNTER, "0", name, unit="bytes") for name in ("allocated", "reserved")]
    return replace(graph, tracks=[*graph.tracks, *counters], counters=Counters(track, time, value))


SUITES: dict[str, Callable[[Options], Result]] = {"tables": tables}
