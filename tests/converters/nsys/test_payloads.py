"""Payloads of NCCL as communications: groups, numbers, sizes, peers; and what follows from them alone."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracelink
from builders.nsys import MIDDLE, SESSION_NS, Export
from tracelink._api.functions import linked_job
from tracelink._model.communications import Communications
from tracelink._model.trace import RankTrace
from tracelink._run.processes import Processes
from tracelink.converters.nsys.payloads import COMMUNICATOR, Payloads
from tracelink.converters.nsys.reader import NsysReader

INIT, REDUCE, SEND = 1 << 24 | 11, 1 << 24 | 5, 1 << 24 | 9
COMM = 0xABCDEF
US = 1000


def schemas(export: Export) -> Export:
    communicator, size = ("NCCL communicator ID", 18, None), ("Message size [bytes]", 22, 8)
    export.payload_schema(INIT, communicator, ("No. of ranks", 5, 8), ("Rank", 5, 12), ("CUDA device", 5, 16))
    export.payload_schema(REDUCE, communicator, size, ("Reduction operation", 16777232, 16))
    export.payload_schema(SEND, communicator, size, ("Peer rank", 5, 16))
    return export


def join(export: Export, pid: int, rank: int, ranks: int = 2) -> None:
    fields = struct.pack("<Qiiii", COMM, ranks, rank, rank, 0)
    export.nccl("ncclCommInitRankConfig", 10 * US, US, INIT, fields, thread=(pid, pid))


def reduce_on(export: Export, pid: int, start: int, *, name: str = "ncclAllReduce", size: int = 4096) -> None:
    """A call in a group of its own, as torch makes it: the end of the group launches the kernel."""
    thread = (pid, pid)
    export.range("ncclGroupStart", start, 1, thread, domainId=1)
    export.nccl(name, start + 2, 10, REDUCE, struct.pack("<QQii", COMM, size, 0, 0), thread=thread)
    export.range("ncclGroupEnd", start + 20, 50, thread, domainId=1)
    export.call("cudaLaunchKernelExC_v11060", start + 30, 10, correlation=start, thread=thread)


def job(late_ns: int) -> Export:
    """Two ranks with three collectives; rank 1 enters the second one late."""
    export = schemas(Export())
    for rank, pid in enumerate((100, 200)):
        export.process(pid)
        join(export, pid, rank)
        for number in range(3):
            start = (100 + 1000 * number) * US + (late_ns if (rank, number) == (1, 1) else 0)
            end = (100 + 1000 * number) * US + (late_ns if number == 1 else 0) + 80 * US
            reduce_on(export, pid, start, size=4096 << number)
            export.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", start + 5 * US,
                end - start - 5 * US, correlationId=start, pid=pid, deviceId=rank)  # fmt: skip
    return export


def test_late_rank_is_named_by_its_arrival(tmp_path: Path) -> None:
    found = linked_job(job(300 * US).write(tmp_path / "job.sqlite"), jobs=1)
    table = found.table("collectives")
    assert [found.strings[code] for code in found.collectives.operation.tolist()] == ["all_reduce"] * 3
    assert [found.groups[row].name for row in found.collectives.group.tolist()] == ["0xabcdef"] * 3
    assert found.collectives.sequence.tolist() == [1, 2, 3]
    assert found.collectives.bytes.tolist() == [4096, 8192, 16384]
    assert found.collectives.skew.tolist() == [0, 300 * US, 0]
    assert table["last_rank"].tolist()[1] == 1
    assert [rank.rank for rank in found.ranks] == [0, 1]


def test_clocks_of_two_hosts_are_compared_by_their_collectives(tmp_path: Path) -> None:
    for rank in range(2):
        export = job(0)
        pid = (100, 200)[rank]
        kept = Export()
        kept.rows = {table: [row for row in rows if _is_of(row, pid)] for table, rows in export.rows.items()}
        kept.texts = export.texts
        kept.rows["META_DATA_CAPTURE"] = [{"name": "DEVICE_DISPLAY_NAME", "value": f"node{rank}"}]
        kept.rows["TARGET_INFO_SESSION_START_TIME"] = [{"utcEpochNs": SESSION_NS + rank * 5000 * US}]
        kept.write(tmp_path / f"rank{rank}.sqlite")
    clocks = tracelink.clocks(tmp_path, jobs=1)
    assert round(clocks.by_rank[1].offset_ns / US) == 5000


def _is_of(row: dict[str, object], pid: int) -> bool:
    number = row.get("globalPid", row.get("globalTid"))
    return number is None or int(str(number)) >> 24 & 0xFFFFFF == pid


def read(export: Export) -> RankTrace:
    return NsysReader().read(export.source(), Processes(1))


def stated(table: Communications, trace: RankTrace) -> list[tuple[str, str, int, int, int, int]]:
    texts = [*trace.strings.texts(), ""]
    return [
        (texts[operation], texts[group], sequence, elements, target, size)
        for operation, group, sequence, elements, target, size in zip(
            table.operation.tolist(), table.group.tolist(), table.sequence.tolist(), table.elements_in.tolist(),
            table.target.tolist(), table.size.tolist(), strict=True,
        )
    ]  # fmt: skip


def test_messages_have_peers_and_no_number() -> None:
    export = schemas(Export())
    join(export, 100, 0, ranks=4)
    export.nccl("ncclSend", 50 * US, 10, SEND, struct.pack("<QQii", COMM, 512, 3, 0))
    trace = read(export)
    assert stated(trace.communications, trace) == [("Send", "0xabcdef", -1, 512, 3, 4)]
    assert trace.communications.point_to_point.all()


def test_without_the_begin_of_a_communicator_collectives_have_no_number() -> None:
    export = schemas(Export())
    reduce_on(export, 100, 50 * US)
    trace = read(export)
    assert stated(trace.communications, trace) == [("AllReduce", "0xabcdef", -1, 4096, -1, -1)]


def test_older_versions_write_payloads_as_json() -> None:
    export = Export(MIDDLE)
    text = '{"NCCL communicator ID": 11259375, "Message size [bytes]": 64, "Reduction operation": "Sum"}'
    export.range("ncclAllReduce", 5, 10, domainId=1, jsonText=text)
    trace = read(export)
    assert stated(trace.communications, trace) == [("AllReduce", "0xabcdef", -1, 64, -1, -1)]


def test_calls_without_payload_are_counted() -> None:
    export = Export()
    export.range("ncclAllReduce", 5, 10, domainId=1)
    export.range("ncclGroupEnd", 15, 10, domainId=1)
    assert [(finding.reason, finding.count) for finding in read(export).findings] == [("no_payload", 1)]


@pytest.mark.parametrize("fields", [b"", b"\x01" * 7, b"\xff" * 24])
def test_short_payloads_state_what_they_contain(fields: bytes) -> None:
    export = schemas(Export())
    export.nccl("ncclAllReduce", 5, 10, REDUCE, fields)
    trace = read(export)
    groups = [trace.strings.texts()[code] for code in trace.communications.group.tolist() if code >= 0]
    assert groups == (["0xffffffffffffffff"] if len(fields) == 24 else [])


@given(st.binary(max_size=80), st.integers(0, 40))
def test_any_payload_can_be_decoded(data: bytes, offset: int) -> None:
    export = Export()
    payloads = Payloads(
        database=None,  # type: ignore[arg-type]
        fields={(1, REDUCE): [(COMMUNICATOR, "<Q", offset)]},
    )
    found = payloads.decoded(data)
    assert set(found) <= {COMMUNICATOR}
    assert payloads.decoded(data.hex()) == found
    assert export.rows
