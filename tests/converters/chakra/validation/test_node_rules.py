"""Each rule of one file: one fault breaks exactly one rule."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from builders.chakra_files import EtFile, put, take
from tracelink.converters.chakra.chakra_pb2 import Node
from tracelink.converters.chakra.schema import SIMULATED, CollectiveType, NodeType
from tracelink.converters.chakra.validation import Level, Rule, Validation, validate

Fault = Callable[[EtFile], None]

GEMM, REDUCE, SEND, RECEIVE, LAST = range(5)
"""The nodes of a clean file."""


def clean() -> EtFile:
    """Rank 0 of a job of two."""
    trace = EtFile(metadata={"world_size": ("uint64_val", 2)})
    gemm = trace.compute("gemm")
    reduce = trace.collective(after=[gemm])
    send = trace.send(1, after=[gemm])
    trace.receive(1)
    trace.compute("last", after=[reduce, send])
    return trace


def found(validation: Validation) -> list[tuple[str, int | None, int | None]]:
    """Rule, rank and node of each violation and warning."""
    return [(one.rule.value, one.rank, one.node) for one in [*validation.violations, *validation.warnings]]


def validated(
    trace: EtFile, folder: Path, content: bytes | None = None, variant: str | None = None
) -> Validation:
    """The verdict on one file, next to that of the other rank; `content` are its bytes if not those of the trace."""
    EtFile(1).save(folder)
    return validate(trace.save(folder, content), variant=variant)


def test_a_clean_file_is_valid(tmp_path: Path) -> None:
    validation = validated(clean(), tmp_path)
    assert (validation.valid, found(validation), validation.nodes) == (True, [], 5)


def depends_on(place: int, *ids: int, control: bool = False) -> Fault:
    def fault(trace: EtFile) -> None:
        node = trace.nodes[place]
        (node.ctrl_deps if control else node.data_deps).extend(ids)

    return fault


def with_attribute(place: int, name: str, kind: str, value: object) -> Fault:
    return lambda trace: put(trace.nodes[place], name, kind, value)


def without(place: int, *names: str) -> Fault:
    def fault(trace: EtFile) -> None:
        for name in names:
            take(trace.nodes[place], name)

    return fault


def with_fields(place: int, **fields: object) -> Fault:
    def fault(trace: EtFile) -> None:
        for name, value in fields.items():
            setattr(trace.nodes[place], name, value)

    return fault


def gathers(kind: CollectiveType, size: int) -> Fault:
    def fault(trace: EtFile) -> None:
        put(trace.nodes[REDUCE], "comm_type", "int64_val", int(kind))
        put(trace.nodes[REDUCE], "comm_size", "int64_val", size)

    return fault


def times(before: int, after: int) -> Fault:
    def fault(trace: EtFile) -> None:
        trace.nodes[GEMM].start_time_micros = before
        trace.nodes[REDUCE].start_time_micros = after

    return fault


def adds(kind: NodeType, **attributes: tuple[str, object]) -> Fault:
    def fault(trace: EtFile) -> None:
        trace.node(kind, "more", **attributes)

    return fault


def twice(place: int, name: str) -> Fault:
    def fault(trace: EtFile) -> None:
        node = trace.nodes[place]
        node.attr.add().CopyFrom(next(one for one in node.attr if one.name == name))

    return fault


def copied(node: Node) -> Node:
    return Node.FromString(node.SerializeToString())


def no_version(trace: EtFile) -> None:
    trace.version = ""


def uncounted(trace: EtFile) -> None:
    trace.counted = False


@pytest.mark.parametrize(
    ("rule", "fault", "node"),
    [
        (Rule.DUPLICATE_ID, lambda trace: trace.nodes.insert(0, copied(trace.nodes[GEMM])), 1),
        (Rule.NO_NAME, with_fields(GEMM, name=""), 1),
        (Rule.NO_NAME, with_fields(GEMM, name=" "), 1),
        (Rule.NODE_TYPE, with_fields(LAST, type=NodeType.INVALID), 5),
        (Rule.NODE_TYPE, with_fields(LAST, type=NodeType.METADATA), 5),
        (Rule.NODE_TYPE, with_fields(LAST, type=8), 5),
        (Rule.ABSURD_TIME, with_fields(LAST, start_time_micros=1 << 63), 5),
        (Rule.ABSURD_TIME, with_fields(LAST, duration_micros=(1 << 64) - 1), 5),
        (Rule.ABSURD_TIME, with_fields(LAST, start_time_micros=(1 << 63) - 1), 5),
        (Rule.MISSING_DEPENDENCY, depends_on(LAST, 99), 5),
        (Rule.MISSING_DEPENDENCY, depends_on(LAST, (1 << 64) - 1, control=True), 5),
        (Rule.SELF_DEPENDENCY, depends_on(LAST, 5), 5),
        (Rule.SELF_DEPENDENCY, depends_on(LAST, 5, control=True), 5),
        (Rule.DUPLICATE_DEPENDENCY, depends_on(LAST, 2), 5),
        (Rule.DUPLICATE_DEPENDENCY, depends_on(LAST, 1, 1, control=True), 5),
        (Rule.CYCLE, depends_on(REDUCE, 5), 2),
        (Rule.CYCLE, depends_on(REDUCE, 5, control=True), 2),
        (Rule.BACKWARD_TIME, times(before=8, after=7), 2),
        (Rule.ATTRIBUTE_KIND, with_attribute(REDUCE, "comm_type", "int32_val", 0), 2),
        (Rule.ATTRIBUTE_KIND, with_attribute(REDUCE, "comm_type", "string_val", "ALL_REDUCE"), 2),
        (Rule.ATTRIBUTE_KIND, with_attribute(REDUCE, "comm_size", "double_val", 4096.0), 2),
        (Rule.ATTRIBUTE_KIND, with_attribute(REDUCE, "comm_size", "int64_list", [4096]), 2),
        (Rule.ATTRIBUTE_KIND, with_attribute(REDUCE, "comm_priority", "int64_val", 1), 2),
        (Rule.ATTRIBUTE_KIND, with_attribute(REDUCE, "pg_name", "int32_val", 1), 2),
        (Rule.ATTRIBUTE_KIND, with_attribute(SEND, "comm_tag", "int64_val", 0), 3),
        (Rule.ATTRIBUTE_KIND, with_attribute(GEMM, "is_cpu_op", "int64_val", 0), 1),
        (Rule.ATTRIBUTE_KIND, with_attribute(GEMM, "tensor_size", "int64_val", 8), 1),
        (Rule.ATTRIBUTE_KIND, with_attribute(GEMM, "op_schema", "bytes_val", b""), 1),
        (Rule.ATTRIBUTE_TWICE, twice(REDUCE, "comm_size"), 2),
        (Rule.HOST_COMMUNICATION, with_attribute(REDUCE, "is_cpu_op", "bool_val", True), 2),
        (Rule.INCOMPLETE_COLLECTIVE, without(REDUCE, "comm_type"), 2),
        (Rule.INCOMPLETE_COLLECTIVE, without(REDUCE, "comm_size", "comm_type"), 2),
        (Rule.UNKNOWN_COLLECTIVE, with_attribute(REDUCE, "comm_type", "int64_val", 10), 2),
        (Rule.UNKNOWN_COLLECTIVE, with_attribute(REDUCE, "comm_type", "int64_val", -1), 2),
        (Rule.NEGATIVE_SIZE, with_attribute(REDUCE, "comm_size", "int64_val", -1), 2),
        (Rule.GROUP_NAME, with_attribute(REDUCE, "pg_name", "string_val", "default_pg"), 2),
        (Rule.GROUP_NAME, with_attribute(REDUCE, "pg_name", "string_val", "-1"), 2),
        (Rule.UNKNOWN_GROUP, with_attribute(REDUCE, "pg_name", "string_val", "7"), 2),
        (Rule.INCOMPLETE_MESSAGE, without(SEND, "comm_dst"), 3),
        (Rule.INCOMPLETE_MESSAGE, without(SEND, "comm_tag"), 3),
        (Rule.INCOMPLETE_MESSAGE, without(RECEIVE, "comm_src", "comm_size"), 4),
        (Rule.FOREIGN_MESSAGE, with_attribute(SEND, "comm_src", "int32_val", 1), 3),
        (Rule.FOREIGN_MESSAGE, with_attribute(RECEIVE, "comm_dst", "int32_val", 1), 4),
        (Rule.INCOMPLETE_MEMORY, adds(NodeType.MEM_LOAD), 6),
        (Rule.INCOMPLETE_MEMORY, adds(NodeType.MEM_STORE), 6),
        (Rule.ROOFLINE, with_attribute(GEMM, "num_ops", "int64_val", 5), 1),
        (Rule.ROOFLINE, adds(NodeType.COMP, num_ops=("int64_val", 5), tensor_size=("uint64_val", 0)), 6),
        (Rule.TENSOR_LISTS, with_attribute(GEMM, "inputs", "string_list", ["one"]), 1),
        (Rule.TENSOR_LISTS, with_attribute(GEMM, "outputs", "string_val", "one"), 1),
        (Rule.INVOLVED_DIMENSIONS, with_attribute(REDUCE, "involved_dim", "int32_list", [1]), 2),
        (Rule.NO_DURATION, with_fields(GEMM, duration_micros=0), 1),
        (Rule.NO_HOST_MARK, without(GEMM, "is_cpu_op"), 1),
        (Rule.COMMA_IN_NAME, with_fields(GEMM, name="gemm<8, 8>"), 1),
        (Rule.HOST_NODES, with_attribute(GEMM, "is_cpu_op", "bool_val", True), 1),
        (Rule.NO_VERSION, no_version, None),
        (Rule.NO_NODE_COUNT, uncounted, None),
    ],
)  # fmt: skip
def test_each_fault_breaks_only_its_rule(tmp_path: Path, rule: Rule, fault: Fault, node: int | None) -> None:
    trace = clean()
    fault(trace)
    validation = validated(trace, tmp_path)
    assert found(validation) == [(rule.value, 0, node)]
    assert validation.valid is (rule.level is Level.WARNING)


@pytest.mark.parametrize(
    "harmless",
    [
        with_attribute(REDUCE, "pg_name", "string_val", ""),
        with_attribute(REDUCE, "pg_name", "string_val", "0"),
        with_attribute(REDUCE, "involved_dim", "bool_list", [True, False]),
        with_attribute(SEND, "pg_name", "string_val", "default_pg"),
        with_attribute(RECEIVE, "pg_name", "string_val", "7"),
        with_attribute(SEND, "comm_tag", "int32_val", (1 << 31) - 1),
        *(gathers(kind, 0) for kind in SIMULATED - {CollectiveType.ALL_GATHER}),
        gathers(CollectiveType.ALL_GATHER, 4),
        with_attribute(SEND, "comm_src", "int32_val", 0),
        with_attribute(GEMM, "inputs", "string_list", ["tensor", "8"]),
        with_attribute(GEMM, "anything", "double_list", [1.5]),
        adds(NodeType.MEM_LOAD, tensor_size=("uint64_val", 8)),
        adds(NodeType.COMP, num_ops=("int64_val", 5), tensor_size=("uint64_val", 8)),
        times(before=7, after=7),
        depends_on(LAST, 2, control=True),
        times(before=7, after=0),
        lambda trace: trace.nodes.reverse(),
        lambda trace: trace.metadata.update(rank=("uint64_val", 0)),
    ],
)
def test_harmless_changes_break_no_rule(tmp_path: Path, harmless: Fault) -> None:
    trace = clean()
    harmless(trace)
    assert found(validated(trace, tmp_path)) == []


class TestSimulatorLimits:
    """ASTRA-sim loads it, but deadlocks or aborts: a warning if the full variant is requested."""

    @pytest.mark.parametrize(
        ("rule", "fault", "node"),
        [
            (Rule.SMALL_GATHER, gathers(CollectiveType.ALL_GATHER, 0), 2),
            (Rule.SMALL_GATHER, gathers(CollectiveType.ALL_GATHER, 3), 2),
            (Rule.NO_BYTES, with_attribute(SEND, "comm_size", "int64_val", 0), 3),
            (Rule.NO_BYTES, with_attribute(RECEIVE, "comm_size", "int64_val", 0), 4),
            (Rule.NEGATIVE_TAG, with_attribute(SEND, "comm_tag", "int32_val", -1), 3),
            (Rule.NEGATIVE_TAG, with_attribute(RECEIVE, "comm_tag", "int32_val", -(1 << 31)), 4),
        ],
    )
    def test_violation_or_warning(self, tmp_path: Path, rule: Rule, fault: Fault, node: int) -> None:
        trace = clean()
        fault(trace)
        strict, full = validated(trace, tmp_path), validated(trace, tmp_path, variant="full")
        assert found(strict) == found(full) == [(rule.value, 0, node)]
        assert (strict.valid, full.valid) == (False, True)

    def test_a_message_of_a_rank_to_itself(self, tmp_path: Path) -> None:
        trace = EtFile()
        trace.send(0)
        trace.receive(0)
        expected = [("own_message", 0, 1), ("own_message", 0, 2)]
        strict, full = validated(trace, tmp_path), validated(trace, tmp_path, variant="full")
        assert found(strict) == found(full) == expected
        assert (strict.valid, full.valid) == (False, True)


class TestCollectivesThatCannotBeSimulated:
    @pytest.mark.parametrize("kind", CollectiveType)
    def test_are_violations_unless_the_full_variant_is_requested(
        self, tmp_path: Path, kind: CollectiveType
    ) -> None:
        trace = clean()
        put(trace.nodes[REDUCE], "comm_type", "int64_val", int(kind))
        expected = [] if kind in SIMULATED else [("unsimulated_collective", 0, 2)]
        strict, full = validated(trace, tmp_path), validated(trace, tmp_path, variant="full")
        assert found(strict) == found(full) == expected
        assert (strict.valid, full.valid) == (not expected, True)

    def test_a_file_that_is_recorded_as_full_is_not_valid_either(self, tmp_path: Path) -> None:
        trace = clean()
        put(trace.nodes[REDUCE], "comm_type", "int64_val", int(CollectiveType.BARRIER))
        trace.metadata["variant"] = ("string_val", "full")
        recorded, requested = validated(trace, tmp_path), validated(trace, tmp_path, variant="full")
        assert found(recorded) == found(requested) == [("unsimulated_collective", 0, 2)]
        assert (recorded.valid, requested.valid) == (False, True)
        assert recorded.files[0].variant == requested.files[0].variant == "full"


class TestBytes:
    def test_an_empty_file(self, tmp_path: Path) -> None:
        assert found(validated(clean(), tmp_path, b"")) == [("no_metadata", 0, None)]

    def test_no_nodes(self, tmp_path: Path) -> None:
        assert found(validated(EtFile(), tmp_path)) == [("no_root", 0, None)]

    def test_metadata_may_be_empty(self, tmp_path: Path) -> None:
        trace = EtFile()
        trace.compute()
        validation = validated(trace, tmp_path, b"\0" + b"".join(trace.messages[1:]))
        assert (validation.valid, validation.nodes) == (True, 1)

    def test_a_node_instead_of_metadata(self, tmp_path: Path) -> None:
        trace = EtFile()
        for _ in range(3):
            trace.compute()
        content = b"".join(trace.messages[1:])
        assert found(validated(trace, tmp_path, content)) == [("no_metadata", 0, None)]

    def test_zeros_behind_the_end(self, tmp_path: Path) -> None:
        trace = clean()
        content = b"".join(trace.messages) + b"\0"
        assert found(validated(trace, tmp_path, content)) == [("empty_message", 0, None)]

    @pytest.mark.parametrize(
        "rest", [b"\x05abc", b"\x80", b"\xff\xff\xff\xff\xff\x01", b"\xff\xff\xff\xff\x0f"]
    )
    def test_trailing_bytes_that_are_not_a_message(self, tmp_path: Path, rest: bytes) -> None:
        trace = clean()
        content = b"".join(trace.messages) + rest
        assert found(validated(trace, tmp_path, content)) == [("broken_message", 0, None)]

    def test_a_message_that_is_not_a_node(self, tmp_path: Path) -> None:
        trace = clean()
        content = b"".join(trace.messages) + b"\x02\xff\xff"
        assert found(validated(trace, tmp_path, content)) == [("unreadable_node", 0, None)]

    @pytest.mark.parametrize("places", [slice(0, -1), slice(0, 2)])
    def test_fewer_nodes_than_the_metadata_count(self, tmp_path: Path, places: slice) -> None:
        trace = clean()
        content = b"".join(trace.messages[places])
        assert found(validated(trace, tmp_path, content)) == [("node_count", 0, None)]

    def test_a_compressed_file_is_checked_too(self, tmp_path: Path) -> None:
        trace = clean()
        depends_on(LAST, 99)(trace)
        content = gzip.compress(b"".join(trace.messages))
        assert found(validated(trace, tmp_path, content)) == [
            ("compressed", 0, None),
            ("missing_dependency", 0, 5),
        ]

    def test_a_truncated_compressed_file(self, tmp_path: Path) -> None:
        trace = clean()
        content = gzip.compress(b"".join(trace.messages))[:-9]
        assert [one.rule for one in validated(trace, tmp_path, content).violations][:2] == [
            Rule.COMPRESSED,
            Rule.BROKEN_MESSAGE,
        ]

    @pytest.mark.parametrize(
        "text", [b'{"traceEvents": []}' * 20, b"\x80\x02}q\x00." * 40, b"PK\x05 no zip" * 9]
    )
    def test_a_file_of_another_format(self, tmp_path: Path, text: bytes) -> None:
        validation = validated(clean(), tmp_path, text)
        assert found(validation) == [("not_chakra", 0, None)]
        assert f"the file starts with {text[:24]!r}" in validation.violations[0].message


class TestCycles:
    def test_each_cycle_is_reported_with_its_nodes(self, tmp_path: Path) -> None:
        trace = EtFile()
        trace.compute("root")
        for name in ("a", "b", "c", "d", "e"):
            trace.compute(name)
        for node, other in ((2, 3), (3, 2), (4, 5), (5, 4), (6, 5)):
            trace.nodes[node - 1].data_deps.append(other)
        first, second = validated(trace, tmp_path).violations
        assert first.message == (
            "node 2 (a), which depends on node 3 (b), which depends on node 2 again: "
            "5 nodes in cycles or behind them never start"
        )
        assert (first.node, second.node) == (2, 4)

    def test_a_file_with_only_a_cycle_has_no_root(self, tmp_path: Path) -> None:
        trace = EtFile()
        a, b = trace.compute("a"), trace.compute("b")
        a.data_deps.append(2)
        b.ctrl_deps.append(1)
        assert found(validated(trace, tmp_path)) == [("no_root", 0, None), ("cycle", 0, 1)]

    @pytest.mark.parametrize("step", [1, -1])
    def test_long_chains_are_not_cycles(self, tmp_path: Path, step: int) -> None:
        trace = EtFile()
        for _ in range(20_000):
            trace.compute()
        for node, other in zip(trace.nodes[::step][1:], trace.nodes[::step], strict=False):
            node.data_deps.append(other.id)
        assert validated(trace, tmp_path).valid


def test_the_limit_applies_to_the_list_and_not_to_the_counts(tmp_path: Path) -> None:
    trace = EtFile()
    for _ in range(10):
        trace.compute("")
    trace.save(tmp_path)
    few, everything = validate(tmp_path, limit=3), validate(tmp_path, limit=None)
    assert [len(few.violations), len(everything.violations)] == [3, 10]
    assert few.counts == everything.counts == {Rule.NO_NAME: 10}
