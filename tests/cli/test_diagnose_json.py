"""`tracelink diagnose --json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builders.command_line import Run
from builders.data import HANGS, HEALTHY, traces
from builders.dumps import dumps, hang, healthy, steps
from builders.recorded_jobs import faulty_plans
from generators.recorded_jobs import FAULTS, Fault, Plan, Snapshot, job
from tracelink import diagnose, schemas
from tracelink._hang.facts.model import Kind, Stage
from tracelink._show.json import document_text
from tracelink.cli.main import FINE, IN_FLIGHT, NO

SCHEMA = jsonschema.Draft202012Validator(schemas.load("diagnose"))


def document(tracelink: Run, folder: Path) -> dict[str, Any]:
    result = tracelink("diagnose", str(folder), "--json")
    made: dict[str, Any] = json.loads(result.stdout)
    SCHEMA.validate(made)
    assert result.exit_code == {"ok": FINE, "problem": NO, "in_flight": IN_FLIGHT}[made["verdict"]]
    assert bool(made["problems"]) == (made["verdict"] != "ok")
    return made


def test_a_hang(tracelink: Run) -> None:
    made = document(tracelink, dumps(Path("dumps"), hang(4, culprit=2)))
    (problem,) = made["problems"]
    evidence = problem.pop("evidence")
    assert problem.pop("advice").startswith("Check what rank 2 is doing now")
    assert problem == {
        "kind": "never_joined",
        "class": "not_reached",
        "group": "0",
        "description": "default_pg",
        "sequence": 3,
        "operation": "nccl:all_reduce",
        "culprits": [2],
        "waiting": [0, 1, 3],
        "message": "Rank 2 never joined all_reduce #3 of group 0 (default_pg); 3 ranks wait.",
        "tie": False,
        "in_other_order": False,
        "proven": True,
        "count": 1,
        "waited_ns": None,
        "cycle": [],
        "rows": {"0": 2, "2": 7},
        "sightings": [],
        "compiling": [],
        "stacks": [],
    }
    assert [(item["rank"], item["role"], len(item["entries"])) for item in evidence] == [
        (2, "culprit", 2),
        (0, "waiting", 1),
    ]
    assert evidence[1]["entries"] == [
        {
            "group": "0",
            "description": "default_pg",
            "sequence": 3,
            "operation": "nccl:all_reduce",
            "input_sizes": [[64, 16]],
            "output_sizes": [[64, 16]],
            "input_types": ["Float"],
            "output_types": ["Float"],
            "state": "scheduled",
            "retired": True,
            "created_ns": steps(0, 3)[2]["time_created_ns"],
            "timeout_ms": 600_000,
            "frames": [
                {"name": "step", "filename": "/home/me/train.py", "line": 30},
                {"name": "main", "filename": "/home/me/train.py", "line": 200},
                {"name": "run", "filename": "/usr/lib/python3.11/runpy.py", "line": 88},
            ],
        }
    ]


def test_standings(tracelink: Run) -> None:
    made = document(tracelink, dumps(Path("dumps"), hang(4, culprit=2)))
    place = {"group": "0", "description": "default_pg", "operation": "nccl:all_reduce"}
    assert made["standings"] == [
        place | {"sequence": 2, "stage": "finished", "ranks": [2]},
        place | {"sequence": 3, "stage": "waiting", "ranks": [0, 1, 3]},
    ]


def test_a_healthy_job(tracelink: Run) -> None:
    made = document(tracelink, dumps(Path("dumps"), healthy(4)))
    assert made["problems"] == []
    assert made["ranks"] == {"present": [0, 1, 2, 3], "missing": [], "unreadable": [], "reasons": []}
    assert made["checked"] == {"ranks": 4, "entries": 8, "groups": 1, "collectives": 2, "messages": 0}


def test_ranks_without_a_complete_dump(tracelink: Run) -> None:
    folder = dumps(Path("dumps"), healthy(4), world=6)
    broken, empty = folder / "comm_lib_trace_rank_1", folder / "comm_lib_trace_rank_3"
    broken.write_bytes(broken.read_bytes()[:-40])
    empty.write_bytes(b"")
    ranks = document(tracelink, folder)["ranks"]
    first, second = ranks.pop("reasons")
    assert ranks == {"present": [0, 2], "missing": [4, 5], "unreadable": [1, 3]}
    assert second.startswith(f"{empty}: the file is empty.")
    assert first.startswith(f"{broken}: it ends after ")


def test_an_error_is_json_too(tracelink: Run) -> None:
    Path("empty").mkdir()
    error = json.loads(tracelink("diagnose", "empty", "--json").stdout)["error"]
    assert error["message"] == "no flight-recorder dump found: there are no files"


def test_the_schema_knows_every_kind_and_stage() -> None:
    definitions = SCHEMA.schema["$defs"]
    assert definitions["Kind"]["enum"] == sorted(kind.value for kind in Kind)
    assert definitions["Stage"]["enum"] == sorted(stage.value for stage in Stage)


@pytest.mark.parametrize("change", [{"verdict": "fine"}, {"ranks": {}}, {"unheard": 1}])
def test_the_schema_refuses_other_documents(tracelink: Run, change: dict[str, Any]) -> None:
    made = document(tracelink, dumps(Path("dumps"), healthy(2)))
    assert not SCHEMA.is_valid(made | change)


@pytest.mark.parametrize("case", [*HANGS, *HEALTHY])
def test_jobs_with_and_without_a_fault_fit_the_schema(tracelink: Run, case: str) -> None:
    made = document(tracelink, traces(case))
    assert all(problem["advice"] and problem["evidence"] for problem in made["problems"])


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_synthetic_jobs_fit_the_schema(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    plan, fault = data.draw(faulty_plans(*FAULTS))
    folder = tmp_path_factory.mktemp("dumps")
    job(plan, fault, Snapshot("timed_out")).write(folder)
    SCHEMA.validate(json.loads(document_text(diagnose(folder, jobs=1))))


def test_the_same_dumps_give_the_same_bytes(tracelink: Run) -> None:
    job(Plan(world=4, tensor=2, kind="mixed"), Fault("never_joined"), Snapshot("timed_out")).write(
        Path("dumps")
    )
    assert tracelink("diagnose", "dumps", "--json").stdout == tracelink("diagnose", "dumps", "--json").stdout
