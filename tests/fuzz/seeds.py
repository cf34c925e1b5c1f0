"""Valid inputs of every format, from the samples, from what tracelink writes of them, and from builders."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import tracelink
from builders import captures, inspector, kineto, metrics, monitors, nsys, recorder
from builders import execution_trace as et
from builders import memory_snapshots as memory
from builders.clog import Clog
from builders.data import DATA
from builders.packets import compressed
from builders.track_events import step_of_rocprof, step_of_torch
from tracelink import plugins, samples
from tracelink._io.streams import GZIP_MAGIC, GZIP_WINDOW

CRASHES = DATA / "crashes"
"""Inputs that broke earlier versions; they are seeds if they are present."""

LARGEST = 1 << 20
"""Larger files only take time."""
FIRST_LINES = 200 << 10
"""Bytes of the lines of a log that are used."""


@dataclass(frozen=True)
class Seed:
    """An input before it is mutated."""

    format: str
    name: str
    data: bytes
    beside: Mapping[str, bytes] = field(default_factory=dict)
    """Other files of the same input, by their paths next to it."""


def all_seeds(work: Path) -> list[Seed]:
    """The seeds of all formats, always in the same order; `work` is a folder for what tracelink writes."""
    found = [*_built(), *_of_files(_samples()), *_of_files(_written(work)), *_tables(work)]
    return [*found, *_of_files(sorted(CRASHES.rglob("*")))]


def _of_files(paths: list[Path]) -> Iterator[Seed]:
    for path in paths:
        if not path.is_file() or path.name == "repro.txt":
            continue
        data = path.read_bytes()
        if data.startswith(GZIP_MAGIC):
            with suppress(zlib.error):
                data = zlib.decompressobj(GZIP_WINDOW).decompress(data, LARGEST + 1)
        name = path.name.removesuffix(".gz")
        if path.suffixes[:1] == [".log"]:
            data = data[: data.rfind(b"\n", 0, FIRST_LINES)]
        if (known := next(plugins.recognised(data[: 64 << 10], name), None)) and len(data) <= LARGEST:
            yield Seed(known.name, name, data)


def _samples() -> list[Path]:
    return sorted(path for name in samples.names() for path in Path(samples.path(name)).rglob("*"))


def _written(work: Path) -> list[Path]:
    """The samples in every format that tracelink writes and reads."""
    for name in ("cpu_job", "gpu_pair"):
        for to, output in (("chakra", "job"), ("chakra-json", "linked"), ("perfetto", "job.pftrace")):
            (work / name).mkdir(exist_ok=True)
            tracelink.merge(samples.path(name), output=work / name / output, to=to, jobs=1)
    tracelink.merge(work / "cpu_job" / "job.0.et", output=work / "cpu_job" / "nodes.json", to="chakra-nodes")
    return sorted(work.rglob("*"))


def _tables(work: Path) -> Iterator[Seed]:
    """The graph of a sample as tables: each file of a dataset next to the others, and a DuckDB file."""
    for name in ("job.parquet", "job.duckdb"):
        tracelink.merge(samples.path("gpu_pair"), output=work / name, jobs=1, options={"args": "all"})
    files = {
        path.relative_to(work / "job.parquet").as_posix(): path.read_bytes()
        for path in sorted((work / "job.parquet").rglob("*"))
        if path.is_file()
    }
    for name, data in files.items():
        yield Seed("parquet", name, data, {other: text for other, text in files.items() if other != name})
    yield Seed("duckdb", "job.duckdb", (work / "job.duckdb").read_bytes())


def _built() -> Iterator[Seed]:
    """Small inputs in which most mutations change what matters."""
    call, work = kineto.launch(12, 2, correlation=7), kineto.kernel("add_kernel", 20, 4, correlation=7)
    events = [
        kineto.cpu_op("aten::add", 10, 5, External_id=1, Record_function_id=9),
        call,
        work,
        *kineto.arrow(call, work, 7),
        kineto.metadata("thread_name", name="thread"),
        kineto.counter("GPU 0 Utilization", 5, {"a": 1}),
        kineto.memory(6, 512, 1024),
        kineto.half("B", "half", 30),
        kineto.half("E", "half", 31),
        kineto.flow_end("s", 3, 10),
        kineto.flow_end("f", 3, 20),
        kineto.python_frame("f.py(1): f", 8, 20),
    ]
    yield Seed("kineto", "k_0.json", kineto.trace(*events, rank=0))
    nodes = [
        et.thread_root(2),
        et.groups_node(3, {"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1], "group_size": 2}),
        et.node(5, "aten::add", handle=9, inputs=[et.tensor()], outputs=[et.tensor(9)]),
        et.node(6, "record_param_comms", parent=5, inputs=[et.tensor()]),
        et.process_root(),
    ]
    for version in (et.FLAT, et.NEWEST):
        yield Seed("execution-trace", "et_0.json", et.trace(*nodes, version=version))
    entries = [recorder.collective(sequence=number) for number in range(1, 4)]
    content = recorder.dump(*entries, pg_status={"0": {"last_enqueued_collective": 3}})
    yield Seed("flight-recorder", "comm_lib_trace_rank_0", recorder.pickled(content))
    yield Seed("flight-recorder", "comm_lib_trace_rank_0.json", recorder.as_json(content))
    for schema in (nsys.OLDEST, nsys.NEWEST):
        yield Seed("nsys", "report.sqlite", nsys.example(schema).data())
    yield Seed("capture", "capture_0.json", captures.written(captures.document()))
    bodies = [inspector.collective(number=0, at=10), inspector.collective(number=1), inspector.message(at=90)]
    records = [inspector.record(bodies[0], pid=7), inspector.marker(2, dropped=1), *bodies]
    yield Seed("nccl-inspector", "node0-pid100.log", inspector.text(*records))
    log = Clog(1, 4).call().call("send", "in_count=5|out_count=0|dtype=f32|peer=2|async_op=t", steps="QSEW")
    log.add("split|parent=world|child=pp|ranks=0,1").call("all_reduce", comm="pp", graph=3).call(graph=3)
    yield Seed("clog", "clog_rank1.log", log.replay(3, 1, "all_reduce").call(steps="QS").text)
    lines = [line for log in monitors.hung().values() for line in log]
    text = "\n".join([*lines, monitors.gloo_timeout(), monitors.gloo_lost(), monitors.barrier(6), ""])
    yield Seed("watchdog-log", "job.out", text.encode())
    yield Seed("nccl-ras", "ras.json", monitors.as_json(monitors.communicator([21, 21, 20, None])))
    yield Seed("nccl-ras", "ras.txt", monitors.TEXT.encode())
    line = memory.stack("ops.cpp:1 at::_ops::mm::call()", "model.py:41 forward")
    trace = [
        memory.alloc(64, 10, 1, line),
        memory.alloc(128, 5, 2, list(line)),
        memory.free(64, 10, 3),
        memory.out_of_memory(9, 4),
    ]
    taken = memory.snapshot(trace, [], segments=[memory.segment(memory.block(5, address=128, frames=line))])
    yield Seed("memory-snapshot", "snapshot_rank0.pickle", memory.as_python(taken))
    yield Seed("memory-snapshot", "snapshot_rank1.pickle", memory.as_torch(taken))
    for name, text in metrics.one_of_each().items():
        yield Seed("metrics", name, text.encode())
    yield Seed("track-events", "torch_0.pftrace", bytes(step_of_torch()))
    yield Seed("track-events", "rank_0.pftrace", bytes(step_of_rocprof()))
    yield Seed("track-events", "rank_1.pftrace", compressed(bytes(step_of_rocprof())))
