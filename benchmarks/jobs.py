"""One job in this process: `python jobs.py NAME FILE...` does it and prints what it cost, as JSON.

Only the standard library is imported here, and what a job needs inside that job, so that another
interpreter can run a peer's job and no job pays for another's imports. A job does its imports, and a
parser its reading, then hands back the work to be measured.
"""

from __future__ import annotations

import gc
import json
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Work = Callable[[], Any]


def load(jobs: str, *paths: str) -> Work:
    """Reads and links; as many processes as said."""
    import tracelink

    return lambda: described(tracelink.load(list(paths), jobs=int(jobs)))


def summarize(jobs: str, *paths: str) -> Work:
    """Reads, links and answers where the time went."""
    import tracelink

    def work() -> dict[str, Any]:
        summary = tracelink.summary(list(paths), jobs=int(jobs))
        steps = [step for rank in summary.ranks for step in rank.steps]
        for step in steps:
            parts = step.compute_ns + step.exposed_communication_ns + step.exposed_copy_ns + step.idle_ns
            if parts != step.duration_ns:
                raise SystemExit(f"the parts of step {step.step} do not add up")
        return {"steps": len(steps), "kernels": len(summary.kernels), "alive": summary}

    return work


def five_questions(jobs: str, *paths: str) -> Work:
    """The summary, collectives, clocks, two queries and the events of one job, which is read once."""
    import polars
    import pyarrow  # noqa: F401  what tables are handed over in is imported before

    import tracelink

    def work() -> dict[str, Any]:
        with tracelink.Job(list(paths), jobs=int(jobs)) as job:
            summary, clocks = job.summary(), job.clocks
            collectives = polars.DataFrame(job.collectives)
            kinds = job.query("SELECT kind, count(*) FROM events GROUP BY kind").rows()
            names = job.query("SELECT name, sum(duration_ns) FROM events GROUP BY name").rows()
        alive = (summary, clocks, collectives)
        return {"kinds": len(kinds), "names": len(names), "alive": alive}

    return work


def load_again(*paths: str) -> Work:
    """Reads and links in a process that has read a trace before, so that all is imported."""
    import tracelink
    from tracelink import samples

    tracelink.load(samples.path("gpu_pair") / "kineto_0.json.gz", jobs=1)
    return load("1", *paths)


def merge(jobs: str, output: str, *paths: str) -> Work:
    """Reads, links and writes."""
    import tracelink

    def work() -> dict[str, Any]:
        merged = tracelink.merge(list(paths), output=output, jobs=int(jobs))
        return {
            "events": sum(rank.events for rank in merged.ranks),
            "findings": counted(merged.findings),
            "alive": merged,
        }

    return work


def write_tables(output: str, *paths: str) -> Work:
    """Writes a job that was read and linked before as Parquet tables, in one process."""

    from tracelink._io.sources import discover_inputs
    from tracelink._io.targets import folder_target
    from tracelink._join.job_reader import read_job
    from tracelink._run.processes import Processes
    from tracelink.converters.tables.writer import DatasetWriter

    job = read_job(discover_inputs(list(paths)), Processes())
    return lambda: {
        "bytes": DatasetWriter().write(job, folder_target(output), Processes())[0].bytes,
        "events": job.events,
        "findings": counted(job.findings),
    }


def query(path: str, name: str) -> Work:
    """Runs a query that comes with tracelink, after a run that warms caches."""
    import tracelink

    def work() -> dict[str, Any]:
        return {"rows": len(tracelink.query(path, name=name))}

    work()
    return work


def collectives(jobs: str, *paths: str) -> Work:
    """Reads what the ranks did together, without keeping the events."""

    def work() -> dict[str, Any]:
        from tracelink._api.functions import linked_job

        job = linked_job(list(paths), jobs=int(jobs))
        return together(job) | {"findings": counted(job.findings), "alive": job}

    return work


def together(graph: Any) -> dict[str, int]:
    """How much the ranks did together; only what has all its members or both its ends counts as whole."""
    words = list(graph.strings)
    whole = [words[code] == "complete" for code in graph.collectives.verdict.tolist()]
    paired = [words[code] == "complete" for code in graph.messages.verdict.tolist()]
    return {
        "collectives": len(whole),
        "whole_collectives": sum(whole),
        "participations": len(graph.participations),
        "messages": len(paired),
        "whole_messages": sum(paired),
    }


def clocks(mode: str, truth: str, *paths: str) -> Work:
    """Reads a job whose clocks are known, and judges what is said of them."""
    sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "tests"))  # for the generators of jobs
    from clock_judge import judged

    import tracelink

    def work() -> dict[str, Any]:
        graph = tracelink.load(list(paths), clock=mode)
        return judged(graph, truth) | together(graph) | {"findings": counted(graph.findings), "alive": graph}

    return work


RANGE = 8 << 20


def read_ranges(*urls: str) -> Work:
    """Reads objects in ranges, by tracelink's client."""
    from tracelink._io.remote.stores import store_of

    def work() -> dict[str, Any]:
        store, size = store_of(urls[0]), 0
        for url in urls:
            entry = store.find(url)
            for start in range(0, entry.bytes, RANGE):
                size += len(store.read(entry, start, min(start + RANGE, entry.bytes)))
        return {"bytes": size}

    return work


def read_ranges_by_obstore(*urls: str) -> Work:
    """The same by the adapter of obstore, whose threads are no threads of Python."""
    import os

    from obstore.fsspec import FsspecStore

    store = FsspecStore("s3", endpoint=os.environ["AWS_ENDPOINT_URL"], client_options={"allow_http": True})

    def work() -> dict[str, Any]:
        read = 0
        for url in urls:
            size = store.info(url)["size"]
            for start in range(0, size, RANGE):
                read += len(store.cat_file(url, start=start, end=min(start + RANGE, size)))
        return {"bytes": read}

    return work


def described(graph: Any) -> dict[str, Any]:
    """What was read, kept alive until the clock stands."""
    findings = counted(graph.findings)
    return {"events": len(graph), "edges": len(graph.edges), "findings": findings, "alive": graph}


def counted(findings: Any) -> dict[str, int]:
    """The findings by their reasons; none may be an error."""
    errors = [finding.message for finding in findings if finding.severity.value == "error"]
    if errors:
        raise SystemExit(f"the input was not read well: {errors[0]}")
    return {finding.reason: finding.count for finding in findings}


def orjson_loads(*paths: str) -> Work:
    """The strictest baseline: all bytes in memory, no garbage collection."""
    import orjson

    texts = contents(paths)
    gc.disable()
    return lambda: {"alive": [orjson.loads(text) for text in texts]}


def orjson_round_trip(*paths: str) -> Work:
    """Parses and prints again, without a file."""
    import orjson

    texts = contents(paths)
    gc.disable()
    return lambda: {"alive": [orjson.dumps(orjson.loads(text)) for text in texts]}


def pickle_load(folder: str) -> Work:
    """Unpickles the dumps in a folder one after the other."""
    import os
    import pickle

    def work() -> dict[str, Any]:
        entries = 0
        for name in sorted(os.listdir(folder)):
            with open(os.path.join(folder, name), "rb") as file:
                entries += len(pickle.load(file)["entries"])
        return {"entries": entries}

    return work


def json_loads(*paths: str) -> Work:
    """The standard library's parser, under the same conditions."""
    texts = contents(paths)
    gc.disable()
    return lambda: {"alive": [json.loads(text) for text in texts]}


def holistic_trace_analysis(path: str) -> Work:
    """HTA reads the trace into a DataFrame and aligns it; it links when an analysis asks."""
    from hta.common.trace import Trace

    def parse() -> dict[str, Any]:
        trace = Trace(trace_files={0: path}, trace_dir="")
        trace.parse_traces(use_multiprocessing=False)
        return {"events": len(trace.get_trace(0)), "alive": trace}

    return parse


def trace_lens(path: str) -> Work:
    """TraceLens reads the trace and builds its tree, which links launches with kernels; Python frames are left out."""
    from TraceLens import TreePerfAnalyzer

    def build() -> dict[str, Any]:
        analyzer = TreePerfAnalyzer.from_file(path)
        return {"events": len(analyzer.tree.events), "alive": analyzer}

    return build


def holistic_breakdown(path: str) -> Work:
    """HTA reads the trace and answers: the breakdown of its time, the overlap of communication, all kernels."""
    import os

    from hta.trace_analysis import TraceAnalysis

    def analyse() -> dict[str, Any]:
        analysis = TraceAnalysis(
            trace_files={0: path}, trace_dir=os.path.dirname(path), include_last_profiler_step=True
        )
        parts = analysis.get_temporal_breakdown(visualize=False)
        overlap = analysis.get_comm_comp_overlap(visualize=False)
        _, kernels = analysis.get_gpu_kernel_breakdown(visualize=False, num_kernels=100_000)
        return {"kernels": len(kernels), "alive": (analysis, parts, overlap)}

    return analyse


def trace_lens_breakdown(path: str) -> Work:
    """TraceLens reads the trace, builds its tree, and answers with the breakdown of its time and all kernels."""
    from TraceLens import TreePerfAnalyzer

    def analyse() -> dict[str, Any]:
        analyzer = TreePerfAnalyzer.from_file(path)
        parts = analyzer.get_df_gpu_timeline()
        kernels = analyzer.get_df_kernel_launchers()
        return {"kernels": len(kernels), "alive": (analyzer, parts)}

    return analyse


def trace_fuse(output: str, *paths: str) -> Work:
    """TraceLens merges the profiles of ranks into one JSON; it does not align their clocks."""
    from TraceLens import TraceFuse

    def fuse() -> dict[str, Any]:
        return {"alive": TraceFuse(list(paths)).merge_and_save(output)}

    return fuse


def chakra_trace_link(host: str, device: str, output: str) -> Work:
    """Chakra links the execution trace and the profile of a rank, and writes both as one JSON."""
    from chakra.src.trace_link.trace_linker import TraceLinker

    def link() -> dict[str, Any]:
        return {"alive": TraceLinker().link(0, host, device, output)}

    return link


def inflate(path: str) -> Work:
    """Inflates with the library that tracelink uses, and keeps nothing."""
    from isal import isal_zlib

    (packed,) = contents([path])

    def work() -> dict[str, Any]:
        member, size = isal_zlib.decompressobj(wbits=31), 0
        for begin in range(0, len(packed), 1 << 20):
            size += len(member.decompress(packed[begin : begin + (1 << 20)]))
        return {"bytes": size}

    return work


def sqlite_scan(path: str) -> Work:
    """All rows of an export, with the columns that tracelink reads, one after the other."""
    import sqlite3

    queries = (
        "SELECT start, end, eventType, text, globalTid, domainId, textId FROM NVTX_EVENTS",
        "SELECT start, end, globalTid, correlationId, nameId FROM CUPTI_ACTIVITY_KIND_RUNTIME",
        "SELECT start, end, deviceId, contextId, streamId, correlationId, globalPid, demangledName "
        "FROM CUPTI_ACTIVITY_KIND_KERNEL",
    )
    connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)

    def work() -> dict[str, Any]:
        rows = 0
        for query in queries:
            for _ in connection.execute(query):
                rows += 1
        return {"rows": rows}

    return work


def read_ranks(path: str) -> Work:
    """Reads the traces of all ranks of a file one after the other, without linking."""
    from tracelink import plugins
    from tracelink._io.sources import Request, discover
    from tracelink._run.processes import Processes

    reader, engine = plugins.reader("nsys"), Processes()

    def work() -> dict[str, Any]:
        (source,) = discover(Request([(path, "nsys")])).sources
        sources, findings = reader.unpacked(source, engine)
        events = sum(len(reader.read(one, engine).events) for one in sources)
        return {"events": events, "findings": counted(findings)}

    return work


def match_fleet(jobs: str, ranks: str, entries: str, clock: str) -> Work:
    """Matches what very many ranks did; their calls are in a store."""
    from fleet_calls import FleetOfCalls
    from fleet_matching import matched

    from tracelink._run.processes import Processes

    return matched(FleetOfCalls(int(ranks), int(entries)), Processes(int(jobs)), clock)


def match_fleet_on_dask(workers: str, ranks: str, entries: str, clock: str) -> Work:
    """The same on Dask workers of this machine."""
    from fleet_calls import FleetOfCalls
    from fleet_matching import matched

    from tracelink._run.dask import DaskEngine

    return matched(FleetOfCalls(int(ranks), int(entries)), DaskEngine("", int(workers)), clock)


def store_ranks(jobs: str, *paths: str) -> Work:
    """Reads and links ranks and puts them aside, which every command does first."""
    from tracelink._run.processes import Processes

    return _ranks_stored(Processes(int(jobs)), paths)


def store_ranks_on_dask(workers: str, *paths: str) -> Work:
    """The same on Dask workers of this machine."""
    from tracelink._run.dask import DaskEngine

    return _ranks_stored(DaskEngine("", int(workers)), paths)


def _ranks_stored(engine: Any, paths: Sequence[str]) -> Work:
    from tracelink._io.sources import discover_inputs
    from tracelink._join.ranks import read_ranks

    read_ranks(discover_inputs(list(paths[: 2 * engine.jobs])), engine)  # each process imports what it needs

    def work() -> dict[str, Any]:
        return {"ranks": len(read_ranks(discover_inputs(list(paths)), engine).ranks)}

    return work


def many_tasks(workers: str, count: str) -> Work:
    """Tasks on Dask workers that do nothing."""
    from tracelink._run.dask import DaskEngine

    engine = DaskEngine("", int(workers))
    engine.map(abs, [1])

    def work() -> dict[str, Any]:
        return {"tasks": len(engine.map(abs, list(range(int(count)))))}

    return work


def contents(paths: Any) -> list[bytes]:
    """The bytes of the files."""
    texts = []
    for path in paths:
        with open(path, "rb") as file:
            texts.append(file.read())
    return texts


def cpu_seconds() -> float:
    """What this process and the children that ended have used."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def peak_megabytes() -> dict[str, float]:
    """The most that this process had resident, and the most that any child had.

    VmHWM begins anew when a program starts; `ru_maxrss` of the process itself would be what its parent had.
    """
    with open("/proc/self/status") as file:
        (peak,) = (int(line.split()[1]) for line in file if line.startswith("VmHWM"))
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return {"peak_mb": peak * 1024 / 1e6, "children_peak_mb": children * 1024 / 1e6}


def main() -> None:
    """Runs the job that the command line names."""
    name, *arguments = sys.argv[1:]
    work = JOBS[name](*arguments)
    before = peak_megabytes()["peak_mb"]
    cpu, wall = cpu_seconds(), time.perf_counter()
    result = work()
    wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
    result.pop("alive", None)
    print(json.dumps({"cpu_s": cpu, "wall_s": wall, "before_mb": before, **peak_megabytes(), **result}))


JOBS = {
    job.__name__: job
    for job in (
        load,
        load_again,
        summarize,
        five_questions,
        merge,
        write_tables,
        query,
        collectives,
        clocks,
        orjson_loads,
        orjson_round_trip,
        json_loads,
        pickle_load,
        sqlite_scan,
        read_ranges,
        read_ranges_by_obstore,
        read_ranks,
        match_fleet,
        match_fleet_on_dask,
        store_ranks,
        store_ranks_on_dask,
        many_tasks,
        holistic_trace_analysis,
        trace_lens,
        holistic_breakdown,
        trace_lens_breakdown,
        trace_fuse,
        chakra_trace_link,
        inflate,
    )
}


if __name__ == "__main__":
    main()
