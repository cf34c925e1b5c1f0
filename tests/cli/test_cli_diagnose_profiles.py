"""`tracelink diagnose` with profiles beside the dumps."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from conftest import Run

from builders.dumps import dumps, hang
from builders.kineto import cpu_op, trace, write
from builders.profiles import LOADER, call, loading, profile
from tracelink import schemas
from tracelink.cli.main import NO, UNREADABLE

SEEN = """\
In the profile of rank 2:
  all_reduce #2   DistributedDataParallel.forward > c10d::allreduce_ > record_param_comms, on thread 4200
  carried out by  ncclDevKernel_AllReduce_Sum_f32_RING_LL on stream 20, 1.0 ms
  then            for 4.5 s of 5.0 s main (train.py:100) > batches (data.py:12) > \
enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__, on thread 4200

In the profile of rank 0:
  all_reduce #3   DistributedDataParallel.forward > c10d::allreduce_ > record_param_comms, on thread 4200
  carried out by  a kernel that did not end before the profile

Next: See what rank 2 does now"""


def job() -> Path:
    """Rank 2 loads data while the others wait for it in the third all-reduce."""
    folder = Path("job")
    dumps(folder / "dumps", hang(4, culprit=2))
    profile(folder / "traces", 0, call(1), call(2), call(3, finished=False))
    profile(folder / "traces", 2, call(1), call(2), loading(2.3, 6.8))
    return folder


def test_what_profiles_show_stands_between_the_evidence_and_the_advice(tracelink: Run) -> None:
    page = tracelink("diagnose", str(job()))
    assert (page.exit_code, page.stderr) == (NO, "")
    assert SEEN in page.stdout
    assert page.stdout.index("Rank 0 (one of 3 that wait)") < page.stdout.index(SEEN)


def test_stacks_of_profiles_are_shown_where_dumps_have_none(tracelink: Run) -> None:
    folder, entries = job(), hang(4, culprit=2)
    without = {rank: [entry | {"frames": []} for entry in rows] for rank, rows in entries.items()}
    dumps(folder / "dumps", without)
    assert (
        "  in              step (train.py:20), main (train.py:100)\n"
        in tracelink("diagnose", str(folder)).stdout
    )


def test_an_earlier_call_says_how_much_earlier(tracelink: Run) -> None:
    folder = job()
    profile(folder / "traces", 0, call(1), until=2)
    page = tracelink("diagnose", str(folder)).stdout
    assert "In the profile of rank 0 (it ends 1.0 s before this call):\n  all_reduce #1, 2 before " in page


def test_long_chains_are_cut_and_shown_whole_to_whoever_wants_everything(tracelink: Run) -> None:
    folder = job()
    around = [cpu_op(f"outer{depth}", 2e6 - 1000 + depth, 2000 - 2 * depth) for depth in range(3)]
    profile(folder / "traces", 2, around, call(2))
    shown, whole = "… > outer2 > DistributedDataParallel.forward > ", "outer0 > outer1 > outer2 > Distributed"
    assert shown in tracelink("diagnose", str(folder)).stdout
    assert whole in tracelink("diagnose", str(folder), "-v").stdout


@pytest.mark.parametrize("until", [2, 7])
def test_the_document_holds_what_profiles_show(tracelink: Run, until: int) -> None:
    folder = job()
    profile(folder / "traces", 0, call(1), until=until)
    document = json.loads(tracelink("diagnose", str(folder), "--json").stdout)
    jsonschema.validate(document, schemas.load("diagnose"))
    culprit, other = document["problems"][0]["sightings"]
    assert (culprit["rank"], culprit["role"], culprit["call"]["work"]["where"]) == (2, "culprit", "stream 20")
    assert culprit["stretches"][0]["running"][-1] == {"name": LOADER, "duration_ns": 4_500_000_000}
    assert (other["rank"], other["role"], other["call"]["before"]) == (0, "waiting", 2)


def test_profiles_without_any_dump(tracelink: Run) -> None:
    write(Path("traces/kineto_0.json"), trace(cpu_op("aten::add"), rank=0))
    result = tracelink("diagnose", "traces")
    assert result.exit_code == UNREADABLE
    assert "there is no flight-recorder dump" in result.stderr
    assert "tracelink collectives on the same paths" in result.stderr
