"""The verdict on files: properties, and traces of real jobs."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import tracelink
from builders.chakra_files import EtFile
from builders.data import foreign, traces
from tracelink.converters.chakra.schema import SIMULATED, CollectiveType
from tracelink.converters.chakra.validation import Validation, validate
from tracelink.converters.chakra.validation.comparison import aligned
from tracelink.converters.chakra.validation.file_rules import SPLITS
from tracelink.converters.chakra.validation.trace import issue_order

# Properties: truncated files are never valid, correct ones always, and no input raises.


KINDS = sorted(SIMULATED)


@st.composite
def jobs(draw: st.DrawFn) -> list[EtFile]:
    """Ranks of one program that each computes between its collectives and messages what it likes."""
    world = draw(st.integers(1, 3))
    files = [EtFile(rank) for rank in range(world)]
    last: dict[int, list[Any]] = {rank: [] for rank in range(world)}
    for _ in range(draw(st.integers(1, 5))):
        kind, size = draw(st.sampled_from(KINDS)), draw(st.integers(0, 3))
        size += SPLITS * (kind == CollectiveType.ALL_GATHER)
        source, step = draw(st.integers(0, world - 1)), draw(st.integers(1, 2))
        target = (source + step) % world
        for trace in files:
            for _ in range(draw(st.integers(0, 2))):
                trace.compute(
                    after=draw(st.lists(st.sampled_from(trace.nodes), unique_by=id)) if trace.nodes else []
                )
            before = {node.id: node for node in [*last[trace.rank], *trace.nodes[-2:]]}
            last[trace.rank] = [trace.collective(kind, size, after=[*before.values()])]
        if source != target:
            files[source].send(target, tag=size)
            files[target].receive(source, tag=size)
    return files


def validated(contents: Sequence[tuple[EtFile, bytes]]) -> Validation:
    with tempfile.TemporaryDirectory() as folder:
        for trace, content in contents:
            trace.save(Path(folder), content)
        return validate(folder, jobs=1)


def written(trace: EtFile) -> bytes:
    return b"".join(trace.messages)


@cache
def sample() -> bytes:
    trace = EtFile()
    for _ in range(4):
        trace.collective(after=[trace.compute("kernel", after=trace.nodes[-1:])])
    return written(trace)


def test_truncated_files_are_never_valid() -> None:
    whole = sample()
    assert validated([(EtFile(), whole)]).valid
    assert [size for size in range(len(whole)) if validated([(EtFile(), whole[:size])]).valid] == []


@given(jobs())
@settings(max_examples=60)
def test_correct_files_are_valid(files: list[EtFile]) -> None:
    validation = validated([(trace, written(trace)) for trace in files])
    assert (validation.violations, validation.warnings) == ([], [])


@given(jobs(), st.data())
@settings(max_examples=60)
def test_ids_and_file_order_do_not_matter(files: list[EtFile], data: st.DataObject) -> None:
    """Ids that keep their order, of 64 bits, and nodes in any order in the file, are the same job."""
    for trace in files:
        ids = sorted(
            data.draw(
                st.sets(st.integers(0, 2**64 - 1), min_size=len(trace.nodes), max_size=len(trace.nodes))
            )
        )
        number = {node.id: ids[place] for place, node in enumerate(trace.nodes)}
        for node in trace.nodes:
            node.id = number[node.id]
            node.data_deps[:] = [number[other] for other in node.data_deps]
        trace.nodes = data.draw(st.permutations(trace.nodes))
    assert validated([(trace, written(trace)) for trace in files]).valid


@given(st.data())
@settings(max_examples=150)
def test_damaged_files_never_raise(data: st.DataObject) -> None:
    content = bytearray(sample())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
        content = content or bytearray(1)
    validation = validated([(EtFile(0), bytes(content)), (EtFile(1), sample())])
    assert validation.valid is not bool(validation.violations)
    assert all(one.message for one in validation.violations)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_never_raise(content: bytes) -> None:
    validation = validated([(EtFile(0), content), (EtFile(1), sample())])
    assert not validation.valid


sequences = st.lists(st.integers(0, 3), max_size=30)


@given(sequences, sequences)
def test_aligned_sequences_are_equal_without_their_differences(left: list[int], right: list[int]) -> None:
    differences = aligned(np.array(left, np.int64), np.array(right, np.int64)).differences
    left_out = {one.left for one in differences}, {one.right for one in differences}
    rest = [
        [item for place, item in enumerate(items) if place not in out]
        for items, out in zip((left, right), left_out, strict=True)
    ]
    assert rest[0] == rest[1]
    assert all(
        one.left is None or one.right is None or left[one.left] != right[one.right] for one in differences
    )


@given(sequences, sequences)
def test_alignment_removes_as_few_items_as_possible(left: list[int], right: list[int]) -> None:
    longest = np.zeros((len(left) + 1, len(right) + 1), int)
    for i, one in enumerate(left):
        for j, other in enumerate(right):
            longest[i + 1, j + 1] = (
                longest[i, j] + 1 if one == other else max(longest[i, j + 1], longest[i + 1, j])
            )
    differences = aligned(np.array(left, np.int64), np.array(right, np.int64)).differences
    out = sum((one.left is not None) + (one.right is not None) for one in differences)
    assert out == len(left) + len(right) - 2 * longest[-1, -1]


@given(st.integers(1, 12), st.data())
def test_cycles_are_found_where_networkx_finds_them(count: int, data: st.DataObject) -> None:
    row = st.integers(0, count - 1)
    edges = data.draw(
        st.lists(st.tuples(row, row).filter(lambda edge: edge[0] != edge[1]), unique=True, max_size=25)
    )
    ids = np.array(data.draw(st.permutations(range(count))), np.int64)
    owner, place = (np.array([edge[end] for edge in edges], np.int64) for end in (0, 1))
    found = issue_order(ids, owner, place)
    graph = nx.DiGraph([(other, one) for one, other in edges])
    graph.add_nodes_from(range(count))
    assert bool(found.cycles) is not nx.is_directed_acyclic_graph(graph)
    assert all(
        (one, other) in edges
        for cycle in found.cycles
        for one, other in zip(cycle, [*cycle[1:], cycle[0]], strict=True)
    )
    assert sorted(found.rows.tolist()) == list(range(count))
    if not found.cycles:
        assert found.rows.tolist() == list(
            nx.lexicographical_topological_sort(graph, key=lambda one: ids[one])
        )


def test_the_order_of_files_does_not_matter() -> None:
    files = [EtFile(0), EtFile(1)]
    for trace in files:
        trace.collective()
    first = validated([(trace, written(trace)) for trace in files])
    second = validated([(trace, written(trace)) for trace in files[::-1]])
    assert [replace(file, path="") for file in first.files] == [
        replace(file, path="") for file in second.files
    ]


# What tracelink writes of real jobs is valid, in either variant, and a fault in it is found.


WARNED = {"no_duration", "host_nodes", "comma_in_name"}


@pytest.fixture(params=["full", "astra-sim"])
def variant(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize(
    ("job", "ranks"),
    [
        *(("data_parallel", 4), ("gpu_2023", 2)),
        *foreign(("pairs/dlrm8", 8), ("pairs/torch213_gloo2", 2)),
    ],
)
def test_written_traces_are_valid(tmp_path: Path, job: str, ranks: int, variant: str) -> None:
    tracelink.merge(traces(job), output=tmp_path / "job", to="chakra", options={"variant": variant})
    validation = tracelink.validate(tmp_path)
    assert validation.violations == []
    assert ({rule.value for rule in validation.warning_counts} <= WARNED, len(validation.files)) == (
        True,
        ranks,
    )
    assert {file.variant for file in validation.files} == {variant}


@pytest.mark.parametrize("source", ["gpu_rocm", *foreign("pairs/resnet_110_nccl")])
def test_one_rank_of_two_is_valid_but_for_the_other_rank(source: str, tmp_path: Path, variant: str) -> None:
    tracelink.merge(traces(source), output=tmp_path / "job", to="chakra", options={"variant": variant})
    validation = tracelink.validate(tmp_path)
    assert [(found.rule.value, found.rank) for found in validation.violations] == [("rank_left_out", 1)]
    assert {rule.value for rule in validation.warning_counts} <= WARNED


def test_a_deleted_file_of_a_written_rank_is_missing(tmp_path: Path) -> None:
    tracelink.merge(traces("data_parallel"), output=tmp_path / "job", to="chakra")
    (tmp_path / "job.3.et").unlink()
    assert [(one.rule.value, one.rank) for one in tracelink.validate(tmp_path).violations] == [
        ("missing_rank", 3)
    ]
