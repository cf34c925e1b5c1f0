"""Rules of the replay: ranks that deadlock, orders that depend on durations, and ranks that end in a message."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from builders.chakra_files import EtFile
from builders.data import shared
from tracelink.converters.chakra.schema import CollectiveType, NodeType
from tracelink.converters.chakra.validation import Rule, Validation, validate

GROUPS = {"1": [0, 1], "2": [0, 1]}


def saved(files: Sequence[EtFile], folder: Path, groups: object = GROUPS) -> Path:
    for trace in files:
        trace.save(folder)
    (folder / "job.groups.json").write_text(json.dumps(groups))
    return folder


def found(validation: Validation) -> list[tuple[str, int | None, int | None]]:
    """Rule, rank and node of each violation and warning."""
    return [(one.rule.value, one.rank, one.node) for one in [*validation.violations, *validation.warnings]]


def chains(*ranks: str) -> list[EtFile]:
    """Ranks that run a collective of each of these groups, one after the other."""
    files = [EtFile(rank) for rank in range(len(ranks))]
    for trace, groups in zip(files, ranks, strict=True):
        for group in groups:
            trace.collective(group=group, after=trace.nodes[-1:])
    return files


class TestDeadlocks:
    def test_groups_in_crossed_order(self, tmp_path: Path) -> None:
        validation = validate(saved(chains("12", "21"), tmp_path))
        assert found(validation) == [("deadlock", 0, 1)]
        assert validation.violations[0].message == (
            "ranks 0 and 1 wait for each other:"
            " rank 0 is in node 1 (ALL_REDUCE of 4,096 bytes in group 1), which needs node 2 of rank 1;"
            " rank 1 is in node 1 (ALL_REDUCE of 4,096 bytes in group 2), which needs node 2 of rank 0;"
            " 4 communication ops of ranks 0-1 never complete"
        )

    def test_only_dependencies_that_cross_are_a_violation_for_every_consumer(self, tmp_path: Path) -> None:
        assert not validate(saved(chains("12", "21"), tmp_path), variant="full").valid
        unordered = [EtFile(0), EtFile(1)]
        for trace, groups in zip(unordered, ("12", "21"), strict=True):
            for group in groups:
                trace.collective(group=group)
        strict, full = validate(saved(unordered, tmp_path)), validate(tmp_path, variant="full")
        assert found(strict) == found(full) == [("deadlock", 0, 1)]
        assert (strict.valid, full.valid) == (False, True)

    def test_a_long_circle_names_the_first_ranks(self, tmp_path: Path) -> None:
        count = 6
        groups = {str(1 + rank): sorted([rank, (rank + 1) % count]) for rank in range(count)}
        files = chains(*(f"{1 + rank}{1 + (rank - 1) % count}" for rank in range(count)))
        (violation,) = validate(saved(files, tmp_path, groups)).violations
        assert violation.message == (
            "ranks 0-5 wait for each other:"
            " rank 0 is in node 1 (ALL_REDUCE of 4,096 bytes in group 1), which needs node 2 of rank 1;"
            " rank 1 is in node 1 (ALL_REDUCE of 4,096 bytes in group 2), which needs node 2 of rank 2;"
            " rank 2 is in node 1 (ALL_REDUCE of 4,096 bytes in group 3), which needs node 2 of rank 3;"
            " rank 3 is in node 1 (ALL_REDUCE of 4,096 bytes in group 4), which needs node 2 of rank 4;"
            " and 2 more ranks; 12 communication ops of ranks 0-5 never complete"
        )

    def test_messages_that_are_received_before_they_are_sent(self, tmp_path: Path) -> None:
        files = [EtFile(0), EtFile(1)]
        for trace in files:
            trace.send(1 - trace.rank, after=[trace.receive(1 - trace.rank)])
        (violation,) = validate(saved(files, tmp_path)).violations
        assert (violation.rule, violation.message) == (
            Rule.DEADLOCK,
            "ranks 0 and 1 wait for each other:"
            " rank 0 is in node 1 (receives 64 bytes with tag 0 from rank 1), which needs node 2 of rank 1;"
            " rank 1 is in node 1 (receives 64 bytes with tag 0 from rank 0), which needs node 2 of rank 0;"
            " 4 communication ops of ranks 0-1 never complete",
        )

    def test_consequences_of_a_missing_collective_are_not_reported(self, tmp_path: Path) -> None:
        assert found(validate(saved(chains("12", "2"), tmp_path))) == [("collective_missing", 1, None)]

    def test_a_cycle_is_not_a_deadlock_of_ranks(self, tmp_path: Path) -> None:
        files = chains("11", "11")
        files[0].nodes[0].data_deps.append(files[0].compute(after=files[0].nodes[:1]).id)
        assert found(validate(saved(files, tmp_path)))[0] == ("no_root", 0, None)
        assert "deadlock" not in {rule for rule, *_ in found(validate(tmp_path))}


class TestRaces:
    def test_a_pair_that_no_dependency_orders(self, tmp_path: Path) -> None:
        files = [EtFile(0), EtFile(1)]
        for trace in files:
            gemm = trace.compute()
            for group in (0, 1):
                trace.collective(group=str(1 + group), after=[gemm] * (group == trace.rank))
        validation = validate(saved(files, tmp_path))
        assert (validation.valid, found(validation)) == (True, [("race", 0, 2)])
        assert validation.warnings[0].message == (
            "node 2 (ALL_REDUCE of 4,096 bytes in group 1) and node 3 (ALL_REDUCE of 4,096 bytes in group 2) of rank 0"
            " are not ordered by dependencies: if node 3 runs first, ranks 0 and 1 deadlock"
        )

    def test_two_collectives_of_one_group(self, tmp_path: Path) -> None:
        files = [EtFile(0), EtFile(1)]
        for trace in files:
            gemm = trace.compute()
            for number in (0, 1):
                trace.collective(size=64 << number, group="1", after=[gemm] * (number == trace.rank))
        assert found(validate(saved(files, tmp_path))) == [("race", 0, 2)]

    def test_collectives_that_wait_for_equal_computation_are_in_order(self, tmp_path: Path) -> None:
        files = [EtFile(0), EtFile(1)]
        for trace in files:
            for group in "1212":
                trace.collective(group=group, after=[trace.compute()])
        assert found(validate(saved(files, tmp_path))) == []

    def test_receives_run_next_to_other_ops(self, tmp_path: Path) -> None:
        """Each rank sends and receives at once, then computes for another time, and joins a collective."""
        files = [EtFile(0), EtFile(1)]
        for trace in files:
            for tag in range(3):
                last = trace.nodes[-1:]
                ends = [
                    trace.send(1 - trace.rank, tag, after=last),
                    trace.receive(1 - trace.rank, tag, after=last),
                ]
                kernels = [trace.compute(after=ends[place:]) for place in range(trace.rank, 2)]
                trace.collective(group="1", after=[*ends, *kernels])
        assert found(validate(saved(files, tmp_path))) == []


class TestEnds:
    def host(self, rank: int) -> EtFile:
        trace = EtFile(rank)
        trace.node(NodeType.COMP, "op", is_cpu_op=("bool_val", True))
        return trace

    def ends(self, validation: Validation) -> list[tuple[int | None, int | None]]:
        return [(rank, node) for rule, rank, node in found(validation) if rule == "ends_in_message"]

    def test_a_rank_with_host_nodes_ends_in_a_message(self, tmp_path: Path) -> None:
        files = [self.host(0), self.host(1)]
        files[0].send(1, after=files[0].nodes)
        received = files[1].receive(0, after=files[1].nodes)
        strict, full = validate(saved(files, tmp_path)), validate(tmp_path, variant="full")
        assert self.ends(strict) == self.ends(full) == [(0, 2), (1, 2)]
        assert (strict.valid, full.valid) == (False, True)
        assert strict.violations[0].message == (
            "node 2 (send) is a message, and the last node of a rank with host nodes"
        )
        files[1].compute(after=[received])
        assert self.ends(validate(saved(files, tmp_path))) == [(0, 2)]

    @pytest.mark.parametrize(("computed", "expected"), [(1, [(0, 2), (1, 2)]), (3, [])])
    def test_of_several_last_nodes_the_latest_counts(
        self, tmp_path: Path, computed: int, expected: list[tuple[int, int]]
    ) -> None:
        files = [self.host(0), self.host(1)]
        files[0].send(1, after=files[0].nodes)
        files[1].receive(0, after=files[1].nodes)
        for trace in files:
            for _ in range(computed):
                trace.compute(after=trace.nodes[-1:] if len(trace.nodes) > 2 else [])
        assert self.ends(validate(saved(files, tmp_path))) == expected

    def test_without_host_nodes_a_message_may_be_last(self, tmp_path: Path) -> None:
        files = [EtFile(0), EtFile(1)]
        files[0].send(1)
        files[1].receive(0)
        assert found(validate(saved(files, tmp_path))) == []


class TestMessagesAndCollectives:
    def test_a_send_does_not_wait_for_the_receiver(self, tmp_path: Path) -> None:
        files = [EtFile(0), EtFile(1)]
        files[0].collective(after=[files[0].send(1, tag=5)])
        files[1].receive(0, tag=5, after=[files[1].collective()])
        assert found(validate(saved(files, tmp_path))) == []

    @pytest.mark.parametrize("ordered", [True, False])
    def test_tags_of_messages_are_no_numbers_of_collectives(self, tmp_path: Path, ordered: bool) -> None:
        files = [EtFile(0), EtFile(1)]
        for trace in files:
            for tag in range(1 + ordered):
                trace.collective(group="0", after=trace.nodes[-1:])
                last = trace.nodes[-1:] if ordered else []
                if trace.rank == 0:
                    trace.send(1, tag, after=last)
                else:
                    trace.receive(0, tag, after=last)
        assert found(validate(saved(files, tmp_path))) == []

    def test_host_nodes_before_a_collective_are_a_warning(self, tmp_path: Path) -> None:
        files = [EtFile(0), EtFile(1)]
        for trace in files:
            trace.collective(after=[trace.node(NodeType.COMP, "op", is_cpu_op=("bool_val", True))])
        validation = validate(saved(files, tmp_path))
        assert (validation.valid, {rule for rule, *_ in found(validation)}) == (True, {"host_nodes"})


@pytest.mark.foreign
@pytest.mark.parametrize(
    ("case", "valid", "expected"),
    [
        ("A_crossed", False, ["deadlock"]),
        ("B_race", True, ["race"]),
        ("C_samegroup_race", True, ["race"]),
        ("D_send_coll", True, []),
        ("E_both_recv", False, ["deadlock"]),
        ("F_tag_collision", True, []),
        ("F2_tag_collision", True, []),
        ("G_circle3", False, ["deadlock"]),
        ("H_host_coll", True, ["host_nodes"]),
        ("I_host_p2p", False, ["ends_in_message", "host_nodes"]),
        ("J_host_p2p_more", False, ["ends_in_message", "host_nodes"]),
    ],
)
def test_jobs_that_were_run_in_astra_sim(case: str, valid: bool, expected: list[str]) -> None:
    validation = validate(shared(f"chakra_rules/{case}"))
    rules = [*validation.counts, *validation.warning_counts]
    assert (validation.valid, [rule.value for rule in rules]) == (valid, expected)


def test_types_that_astra_sim_cannot_run_are_not_valid_in_a_full_file(tmp_path: Path) -> None:
    files = [EtFile(rank, metadata={"variant": ("string_val", "full")}) for rank in range(2)]
    for trace in files:
        for kind in (CollectiveType.BARRIER, CollectiveType.GATHER):
            trace.collective(kind, group="1", after=trace.nodes[-1:])
    validation = validate(saved(files, tmp_path))
    assert (validation.valid, validation.counts) == (False, {Rule.UNSIMULATED_COLLECTIVE: 4})
