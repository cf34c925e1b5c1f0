"""Files of NCCL's Inspector, built from the description of its format: none could be recorded.

    lines(collective("AllReduce", 0, at=10), message("Send", peer=1, at=30), rank=2, size=8)

is the text of a process; times are in microseconds after `START_US`, and without `at` there are none.
"""

from __future__ import annotations

import json
from typing import Any

from builders.inputs import held
from tracelink._model.trace import RankTrace
from tracelink._run.processes import Processes
from tracelink.converters.nccl_inspector.reader import InspectorReader

as_source = held("node0-pid100.log")
START_US = 1_752_867_229_000_000
COMMUNICATOR = "0x7f8c496ae9f661"
Record = dict[str, Any]


def collective(
    name: str = "AllReduce",
    number: int = 0,
    size: int = 1 << 20,
    at: int | None = None,
    lasts: int = 100,
    channels: int = 2,
    **fields: Any,
) -> Record:
    """One collective; channels start and end a microsecond apart."""
    content = {"coll": name, "coll_sn": number, "coll_msg_size_bytes": size, "coll_exec_time_us": lasts}
    content |= {"coll_timing_source": "kernel_gpu", "coll_algobw_gbs": 2.5, "coll_busbw_gbs": 3.75}
    return {"coll_perf": content | _times("coll", at, lasts, channels) | fields}


def message(
    name: str = "Send",
    peer: int = 1,
    number: int = 1,
    size: int = 1 << 16,
    at: int | None = None,
    lasts: int = 50,
    **fields: Any,
) -> Record:
    """One end of a message."""
    content = {"p2p": name, "p2p_sn": number, "p2p_peer": peer, "p2p_msg_size_bytes": size}
    content |= {"p2p_exec_time_us": lasts, "p2p_timing_source": "kernel_gpu"}
    content |= {"p2p_algobw_gbs": 1.25, "p2p_busbw_gbs": 1.25}
    return {"p2p_perf": content | _times("p2p", at, lasts, 1) | fields}


def _times(prefix: str, at: int | None, lasts: int, channels: int) -> Record:
    if at is None:
        return {}
    begin = START_US + at
    kernels = [
        {
            "channel_id": channel,
            "kernel_start_ts": begin + channel,
            "kernel_stop_ts": begin + lasts - (channels - 1 - channel),
            "kernel_record_ts": begin + lasts,
        }
        for channel in range(channels)
    ]
    times = {f"{prefix}_start_ts": begin - 5, f"{prefix}_stop_ts": begin - 1, "kernel_events": kernels}
    return {"event_trace_ts": times}


def header(rank: int = 0, size: int = 2, identity: str = COMMUNICATOR, **fields: Any) -> Record:
    return {"id": identity, "rank": rank, "n_ranks": size, "nnodes": 1, **fields}


def metadata(
    version: str = "v4.1", written: int = 1000, host: str = "node0", pid: int = 100, **fields: Any
) -> Record:
    """A process, and when a line was written."""
    process = {"hostname": host, "pid": pid}
    written_at = {"rec_mechanism": "nccl_profiler_interface", "dump_timestamp_us": START_US + written}
    return {"inspector_output_format_version": version, "git_rev": "", **written_at, **process, **fields}


def record(
    body: Record,
    rank: int = 0,
    size: int = 2,
    identity: str = COMMUNICATOR,
    name: str | None = None,
    **process: Any,
) -> Record:
    """A line that names its communicator and its process, as up to v4.2."""
    named = {} if name is None else {"comm_name": name}
    return {"header": header(rank, size, identity, **named), "metadata": metadata(**process), **body}


def marker(count: int, dropped: int = 0, rank: int = 0, size: int = 2, **process: Any) -> Record:
    """The marker before the lines of a communicator, since v4.3."""
    names = ("p2p_records", "p2p_dropped_total", "p2p_dropped_since_last_dump")
    counts = {"coll_dropped_total": dropped, "coll_dropped_since_last_dump": dropped}
    statistics = {"coll_records": count} | counts | dict.fromkeys(names, 0)
    process = {"version": "v4.3", **process}
    return {"header": header(rank, size), "metadata": metadata(**process), "dump_stats": statistics}


def text(*records: Record) -> bytes:
    return b"".join(json.dumps(one, separators=(",", ":")).encode() + b"\n" for one in records)


def lines(*bodies: Record, **context: Any) -> bytes:
    """A file with operations of one communicator and process."""
    return text(*(record(body, **context) for body in bodies))


def read(data: bytes) -> RankTrace:
    return InspectorReader().read(as_source(data), Processes(1))
