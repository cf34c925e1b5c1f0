"""Strategies for generated jobs, summaries of their dumps, and their diagnosis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from builders.dumps import diagnosis_of, recording
from generators.recorded_jobs import Fault, Plan, RecordedJob, faults
from generators.recorded_plan import KINDS
from tracelink._hang.facts.journal import journal_of
from tracelink._hang.facts.model import Diagnosis
from tracelink._hang.facts.stalls import Clues
from tracelink._model.errors import UnreadableError

BACKENDS = ["nccl", "nccl2", "nccl-lazy", "gloo", "ucc", "xccl", "own"]
LARGE = 100_000
Look = tuple[Any, ...]


@st.composite
def plans(draw: st.DrawFn, backends: list[str] = BACKENDS, buffers: list[int] = [LARGE, 17, 40]) -> Plan:  # noqa: B006
    """Jobs of up to 24 ranks, of every kind."""
    tensor, stages = draw(st.sampled_from([(1, 1), (2, 1), (1, 2), (2, 2), (1, 4), (4, 1)]))
    return Plan(
        world=tensor * stages * draw(st.sampled_from([1, 2, 3, 4])) if tensor * stages > 1 else 4,
        tensor=tensor,
        stages=stages,
        kind=draw(st.sampled_from(KINDS)),
        steps=draw(st.integers(1, 3)),
        layers=draw(st.integers(1, 2)),
        microbatches=draw(st.integers(1, 5)),
        backend=draw(st.sampled_from(backends)),
        buffer=draw(st.sampled_from(buffers)),
        seed=draw(st.integers(0, 99)),
        timing=draw(st.booleans()),
        unknown_operations=draw(st.booleans()),
        triangle=tensor * stages == 4 and draw(st.booleans()),
        clock_skew_ns=draw(st.sampled_from([0, 10**7])),
        ranks_per_host=2,
    )


@st.composite
def faulty_plans(draw: st.DrawFn, *kinds: str) -> tuple[Plan, Fault]:
    """A job whose buffers keep everything, and one of these faults, or of all."""
    plan = draw(plans(buffers=[LARGE]).filter(lambda plan: any(kind in faults(plan) for kind in kinds)))
    return plan, Fault(draw(st.sampled_from([kind for kind in kinds if kind in faults(plan)])))


def keeping_all(plan: Plan) -> Plan:
    """The same job with buffers that do not wrap."""
    return replace(plan, buffer=LARGE)


def looks(recorded: RecordedJob, rank: int, group: str) -> dict[int, list[Look]]:
    """The collectives of a group on a rank, by sequence number: operation, sizes and dtype."""
    found: dict[int, list[Look]] = {}
    for entry in recorded.dumps[rank]["entries"]:
        if entry["process_group"][0] == group and not is_message(entry):
            found.setdefault(entry["collective_seq_id"], []).append(look(entry))
    return found


def is_message(entry: dict[str, Any]) -> bool:
    """Whether an entry is a message or closes a batch of messages."""
    ends_batch = entry["profiling_name"].endswith(":coalesced") and entry["p2p_seq_id"] > 0
    return bool(entry["is_p2p"] or (ends_batch and entry["process_group"][1] in ("mesh_pp", "mesh_cp")))


def look(entry: dict[str, Any]) -> Look:
    """What the members of a group have in common; sizes of an all_to_all may differ."""
    name = entry["profiling_name"]
    sizes = [] if name.endswith("all_to_all") else [entry["input_sizes"], entry["output_sizes"]]
    return name, str(sizes), str(entry["input_dtypes"])


def numbered(recorded: RecordedJob, rank: int, group: str, number: int) -> list[dict[str, Any]]:
    """The entries of a collective on a rank."""
    return [
        entry
        for entry in recorded.dumps[rank]["entries"]
        if entry["process_group"][0] == group
        and entry["collective_seq_id"] == number
        and not is_message(entry)
    ]


def diagnosed(dumps: Mapping[int, Any], *, hung: bool = False) -> Diagnosis:
    """The diagnosis of dumps by rank: contents, or bytes as they stand; of a job that is known to hang if `hung`."""
    recordings, unreadable = {}, {}
    for rank, content in dumps.items():
        try:
            recordings[rank] = recording(rank, content)
        except UnreadableError as error:
            unreadable[rank] = str(error)
    journal = journal_of(recordings)
    return diagnosis_of(journal, unreadable, clues=Clues(hung=hung))
