"""Evidence: the last calls of culprits, and the call of a waiting rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tracelink
from builders.dumps import dumps, hang, stack, steps
from builders.recorder import as_json, collective, dump, frame
from tracelink._hang.explain import MOST_CALLS, MOST_CULPRITS, MOST_PROBLEMS
from tracelink._hang.facts.model import Diagnosis, Evidence, Role
from tracelink._model.records import Entry, Frame

STEP, MAIN = Frame("step", "/home/me/train.py", 20), Frame("main", "/home/me/train.py", 200)
RUN = Frame("run", "/usr/lib/python3.11/runpy.py", 88)


def diagnosis(folder: Path, entries: dict[int, list[dict[str, Any]]], **top_level: Any) -> Diagnosis:
    return tracelink.diagnose(dumps(folder, entries, **top_level), jobs=1)


def evidence(folder: Path, entries: dict[int, list[dict[str, Any]]]) -> tuple[Evidence, ...]:
    return diagnosis(folder, entries).problems[0].evidence


def told(one: Evidence) -> list[tuple[str, int | None]]:
    return [(entry.operation, entry.sequence) for entry in one.entries]


def test_evidence_of_a_hang(tmp_path: Path) -> None:
    assert [(one.rank, one.role, told(one)) for one in evidence(tmp_path, hang(4, culprit=2))] == [
        (2, Role.CULPRIT, [("nccl:all_reduce", 1), ("nccl:all_reduce", 2)]),
        (0, Role.WAITING, [("nccl:all_reduce", 3)]),
    ]


def test_evidence_is_as_recorded(tmp_path: Path) -> None:
    (culprit, _) = evidence(tmp_path, hang(4, culprit=2))
    recorded = steps(2, 3)[1]
    assert culprit.entries[-1] == Entry(
        group="0",
        description="default_pg",
        sequence=2,
        operation="nccl:all_reduce",
        input_sizes=((64, 16),),
        output_sizes=((64, 16),),
        input_types=("Float",),
        output_types=("Float",),
        state="completed",
        retired=True,
        created_ns=recorded["time_created_ns"],
        timeout_ms=600_000,
        frames=(STEP, MAIN, RUN),
    )


def test_evidence_of_several_groups(tmp_path: Path) -> None:
    entries = hang(4, culprit=2)
    entries[2][1:1] = steps(2, MOST_CALLS + 3, group=("1", "tp"))[:-1]
    (culprit, _) = evidence(tmp_path, entries)
    groups = [(entry.group, entry.sequence) for entry in culprit.entries]
    assert groups == [*(("1", number) for number in range(4, MOST_CALLS + 3)), ("0", 2)]


def test_coalesced_call_counts_once(tmp_path: Path) -> None:
    entries = {rank: [*steps(rank, 2)[:1], *_coalesced(2), *steps(rank, 3)[2:]] for rank in range(4)}
    del entries[1][5:]
    (culprit, _) = evidence(tmp_path, entries)
    assert told(culprit) == [
        ("nccl:all_reduce", 1),
        *[("nccl:_all_gather_base", 2)] * 3,
        ("nccl:coalesced", 2),
    ]


def _coalesced(sequence: int) -> list[dict[str, Any]]:
    names = [*["nccl:_all_gather_base"] * 3, "nccl:coalesced"]
    return [collective(name, sequence, completed=1, state="completed", retired=True) for name in names]


def test_batch_has_one_sequence_number(tmp_path: Path) -> None:
    entries = hang(4, culprit=2)
    entries[2] += [_message("send 2->3", 5), _message("recv 2<-1", 5), _end_of_batch(collective_number=2)]
    entries[3].insert(2, _message("recv 3<-2", 5))
    entries[1].insert(2, _message("send 1->2", 5))
    (culprit, _) = evidence(tmp_path, entries)
    assert told(culprit)[-3:] == [("nccl:send 2->3", 5), ("nccl:recv 2<-1", 5), ("nccl:coalesced", 5)]


def _message(name: str, number: int) -> dict[str, Any]:
    return collective(f"nccl:{name}", 2, completed=1, p2p_seq_id=number, is_p2p=True)


def _end_of_batch(collective_number: int) -> dict[str, Any]:
    nothing: dict[str, Any] = {"input_sizes": [], "output_sizes": [], "input_dtypes": [], "output_dtypes": []}
    return collective("nccl:coalesced", collective_number, completed=1, p2p_seq_id=5, **nothing)


def test_evidence_limit_of_culprits(tmp_path: Path) -> None:
    entries = hang(10, culprit=9)
    for rank in range(5, 9):
        del entries[rank][2:]
    shown = [one.rank for one in evidence(tmp_path, entries) if one.role is Role.CULPRIT]
    assert shown == [5, 6, 7][:MOST_CULPRITS]


def test_evidence_limit_of_problems(tmp_path: Path) -> None:
    entries: dict[int, list[dict[str, Any]]] = {rank: [] for rank in range(3 * (MOST_PROBLEMS + 1))}
    for rank in entries:
        size = [[8]] if rank % 3 == 2 else [[4]]
        name = (str(rank // 3), "")
        entries[rank] = [collective(group=name, completed=1, input_sizes=size, output_sizes=size)]
    shown = [bool(one.evidence) for one in diagnosis(tmp_path, entries).problems]
    assert shown == [True] * MOST_PROBLEMS + [False]


def test_culprit_without_entries(tmp_path: Path) -> None:
    shown = evidence(tmp_path, hang(4, culprit=2) | {2: []})
    assert [(one.rank, one.role) for one in shown] == [(0, Role.WAITING)]


def test_json_dump_has_no_stacks(tmp_path: Path) -> None:
    folder = dumps(tmp_path, {})
    for rank, rows in hang(4, culprit=2).items():
        without = [{name: value for name, value in row.items() if name != "frames"} for row in rows]
        (folder / f"rank{rank}.json").write_bytes(as_json(dump(*without)))
    shown = tracelink.diagnose(folder).problems[0].evidence
    assert [len(one.entries) for one in shown] == [2, 1]
    assert all(entry.frames == () for one in shown for entry in one.entries)


def test_deleted_dump_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tracelink.converters.flight_recorder.decoding import RecorderPayloads

    def gone(self: RecorderPayloads, places: object) -> object:
        raise FileNotFoundError(2, "No such file", self.source.path)

    monkeypatch.setattr(RecorderPayloads, "entries", gone)
    found = diagnosis(tmp_path, hang(4, culprit=2))
    assert found.problems[0].evidence == ()
    assert [one.reason for one in found.findings] == ["entries_unreadable"] * 2


def test_invalid_fields_count_as_missing(tmp_path: Path) -> None:
    odd = {"frames": [7, {"name": 3, "filename": None, "line": -1}], "timeout_ms": "x", "retired": 2}
    entries = hang(4, culprit=2)
    entries[2][1] |= odd | {"input_dtypes": "Float", "output_dtypes": [None], "thread_name": stack("x", 1)}
    (culprit, _) = evidence(tmp_path, entries)
    last = culprit.entries[-1]
    assert (last.frames, last.timeout_ms, last.retired) == ((Frame("", "", 0),), None, None)
    assert (last.input_types, last.output_types) == ((), ("",))
    assert frame("x") == {"name": "x", "filename": "train.py", "line": 1}
