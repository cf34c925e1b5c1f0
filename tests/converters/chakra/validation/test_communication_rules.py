"""Rules across ranks: collectives, messages, files and groups of a job."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from builders.chakra_files import EtFile, put, take
from tracelink._model.errors import UnreadableError, UsageError
from tracelink.converters.chakra.schema import CollectiveType
from tracelink.converters.chakra.validation import Rule, Validation, validate

RANKS = 4
STEPS = 6


def job(ranks: int = RANKS) -> list[EtFile]:
    """Each rank computes, reduces with all, gathers with its half, and passes a message on around a ring."""
    files = []
    for rank in range(ranks):
        trace = EtFile(rank)
        for step in range(STEPS):
            gemm = trace.compute()
            trace.collective(after=[gemm])
            trace.collective(CollectiveType.ALL_GATHER, 8 << step, str(1 + rank // 2), after=[gemm])
            trace.send((rank + 1) % ranks, tag=step, after=[gemm])
            trace.receive((rank - 1) % ranks, tag=step, after=[gemm])
        files.append(trace)
    return files


def nodes(step: int) -> tuple[int, int, int, int]:
    """The ids of the collective of all, that of the group, the sending and the receiving of a step."""
    first = 5 * step + 1
    return first + 1, first + 2, first + 3, first + 4


def saved(files: Sequence[EtFile], folder: Path, groups: object = None) -> Path:
    for trace in files:
        trace.save(folder)
    text = json.dumps({"1": [0, 1], "2": [2, 3]} if groups is None else groups)
    (folder / "job.groups.json").write_text(text)
    return folder


def found(validation: Validation) -> list[tuple[str, int | None, int | None]]:
    """Rule, rank and node of each violation and warning."""
    return [(one.rule.value, one.rank, one.node) for one in [*validation.violations, *validation.warnings]]


def test_a_clean_job_is_valid(tmp_path: Path) -> None:
    validation = validate(saved(job(), tmp_path))
    assert found(validation) == []
    assert [(file.rank, file.nodes) for file in validation.files] == [
        (rank, 5 * STEPS) for rank in range(RANKS)
    ]


def test_parallel_checks_give_the_same_verdict(tmp_path: Path) -> None:
    files = job()
    files[2].nodes[7].data_deps.append(999)
    saved(files, tmp_path)
    assert validate(tmp_path, jobs=1) == validate(tmp_path, jobs=4)


class TestCollectives:
    @pytest.mark.parametrize("step", range(STEPS))
    @pytest.mark.parametrize("rank", [0, 3])
    @pytest.mark.parametrize("which", [0, 1])
    def test_one_missing_collective_is_one_violation(
        self, tmp_path: Path, rank: int, step: int, which: int
    ) -> None:
        files = job()
        files[rank].nodes = [node for node in files[rank].nodes if node.id != nodes(step)[which]]
        (violation,) = validate(saved(files, tmp_path)).violations
        assert (violation.rule, violation.rank) == (Rule.COLLECTIVE_MISSING, rank)

    def test_the_message_names_the_collective_and_a_rank_that_runs_it(self, tmp_path: Path) -> None:
        files = job()
        del files[3].nodes[nodes(2)[1] - 1]
        (violation,) = validate(saved(files, tmp_path)).violations
        assert violation.message == (
            "rank 3 does not run ALL_GATHER of 32 bytes, the 3rd collective in group 2, which is node 13 of rank 2"
        )

    def test_an_extra_collective_is_reported_on_its_rank(self, tmp_path: Path) -> None:
        files = job()
        extra = files[1].collective(size=8)
        assert found(validate(saved(files, tmp_path))) == [("collective_missing", 1, extra.id)]

    @pytest.mark.parametrize("change", [("comm_size", 4097), ("comm_type", int(CollectiveType.ALL_TO_ALL))])
    @pytest.mark.parametrize("step", [0, 3, STEPS - 1])
    def test_a_different_collective_is_reported_on_its_rank(
        self, tmp_path: Path, step: int, change: tuple[str, int]
    ) -> None:
        files = job()
        place, (name, value) = nodes(step)[0], change
        put(files[2].nodes[place - 1], name, "int64_val", value)
        assert found(validate(saved(files, tmp_path))) == [("collective_differs", 2, place)]

    def test_a_different_order(self, tmp_path: Path) -> None:
        files = job()
        first, second = nodes(0)[1], nodes(1)[1]
        for node, size in ((first, 16), (second, 8)):
            put(files[1].nodes[node - 1], "comm_size", "int64_val", size)
        assert {rule for rule, _, _ in found(validate(saved(files, tmp_path)))} <= {
            "collective_differs",
            "collective_missing",
        }
        assert not validate(tmp_path).valid

    def test_collectives_are_compared_in_issue_order(self, tmp_path: Path) -> None:
        """Node 1 waits for node 2, so rank 1 gathers first as rank 0 does."""
        files = [EtFile(0), EtFile(1)]
        files[0].collective(CollectiveType.ALL_GATHER, 8)
        files[0].collective(CollectiveType.ALL_REDUCE, 8)
        reduce = files[1].collective(CollectiveType.ALL_REDUCE, 8)
        gather = files[1].collective(CollectiveType.ALL_GATHER, 8)
        reduce.data_deps.append(gather.id)
        assert validate(saved(files, tmp_path, {})).valid
        reduce.data_deps.pop()
        assert not validate(saved(files, tmp_path, {})).valid

    def test_a_member_without_collectives_is_one_violation(self, tmp_path: Path) -> None:
        files = job()
        files[1].nodes = [node for node in files[1].nodes if node.name != "all_gather"]
        (violation,) = validate(saved(files, tmp_path)).violations
        assert violation.message == "rank 1 runs none of the 6 collectives in group 1 that rank 0 runs"

    def test_two_different_programs_are_one_violation(self, tmp_path: Path) -> None:
        files = [EtFile(0), EtFile(1)]
        for step in range(120):
            files[0].collective(CollectiveType.ALL_REDUCE, size=step)
            files[1].collective(CollectiveType.ALL_TO_ALL, size=step)
        (violation,) = validate(saved(files, tmp_path, {})).violations
        assert violation.node == 1
        assert violation.message == (
            "ranks 0 and 1 run 120 and 120 collectives of all ranks that are not of the same program,"
            " starting at node 1 of rank 1, the 1st"
        )

    def test_many_different_sizes_are_one_violation(self, tmp_path: Path) -> None:
        files = [EtFile(0), EtFile(1)]
        for step in range(120):
            files[0].collective(size=8)
            files[1].collective(size=8 + step)
        (violation,) = validate(saved(files, tmp_path, {})).violations
        assert violation.node == 2
        assert violation.message == (
            "119 of 120 collectives of all ranks have different sizes on ranks 0 and 1,"
            " starting at node 2 of rank 1, the 2nd"
        )

    def test_a_member_whose_only_collective_is_in_an_unknown_group(self, tmp_path: Path) -> None:
        files = [EtFile(0), EtFile(1)]
        for step in range(120):
            files[0].collective(size=step)
        files[1].collective(size=0, group="77")
        assert found(validate(saved(files, tmp_path, {}))) == [
            ("unknown_group", 1, 1),
            ("collective_missing", 1, None),
        ]

    @pytest.mark.parametrize("name", ["comm_type", "comm_size"])
    def test_incomplete_collectives_are_not_compared(self, tmp_path: Path, name: str) -> None:
        files = job()
        place = nodes(1)[1]
        take(files[0].nodes[place - 1], name)
        assert found(validate(saved(files, tmp_path))) == [("incomplete_collective", 0, place)]

    def test_a_collective_of_an_unknown_group_is_not_missing_elsewhere(self, tmp_path: Path) -> None:
        files = job()
        place = nodes(1)[1]
        put(files[3].nodes[place - 1], "pg_name", "string_val", "77")
        assert found(validate(saved(files, tmp_path))) == [("unknown_group", 3, place)]

    def test_a_collective_of_a_foreign_group(self, tmp_path: Path) -> None:
        files = job()
        extra = files[3].collective(group="1")
        assert found(validate(saved(files, tmp_path))) == [("foreign_group", 3, extra.id)]


class TestMessages:
    def test_a_different_tag_is_one_violation_with_both_ends(self, tmp_path: Path) -> None:
        files = job()
        _, _, send, receive = nodes(2)
        put(files[1].nodes[receive - 1], "comm_tag", "int32_val", 99)
        (violation,) = validate(saved(files, tmp_path)).violations
        assert (violation.rule, violation.rank, violation.node) == (Rule.UNMATCHED_MESSAGE, 1, receive)
        assert violation.message == (
            f"node {receive} of rank 1 receives 64 bytes with tag 99 from rank 0, but"
            f" node {send} of rank 0 sends 64 bytes with tag 2 to rank 1: tag and size must be equal"
        )

    def test_a_different_size(self, tmp_path: Path) -> None:
        files = job()
        _, _, _, receive = nodes(2)
        put(files[1].nodes[receive - 1], "comm_size", "int64_val", 65)
        assert found(validate(saved(files, tmp_path))) == [("unmatched_message", 1, receive)]

    @pytest.mark.parametrize("which", [2, 3])
    def test_an_end_without_its_counterpart(self, tmp_path: Path, which: int) -> None:
        files = job()
        lost, left = nodes(4)[which], nodes(4)[5 - which]
        files[0].nodes = [node for node in files[0].nodes if node.id != lost]
        other = 1 if which == 2 else RANKS - 1
        assert found(validate(saved(files, tmp_path))) == [("unmatched_message", other, left)]

    def test_repeated_messages(self, tmp_path: Path) -> None:
        files = [EtFile(0), EtFile(1)]
        for _ in range(3):
            files[0].send(1)
        for _ in range(2):
            files[1].receive(0)
        assert found(validate(saved(files, tmp_path, {}))) == [("unmatched_message", 0, 3)]

    def test_an_unknown_peer(self, tmp_path: Path) -> None:
        files = job()
        extra = files[2].send(RANKS)
        assert found(validate(saved(files, tmp_path))) == [("unknown_peer", 2, extra.id)]

    def test_an_incomplete_message_excuses_its_counterpart(self, tmp_path: Path) -> None:
        files = job()
        _, _, send, _ = nodes(2)
        take(files[1].nodes[send - 1], "comm_dst")
        assert found(validate(saved(files, tmp_path))) == [("incomplete_message", 1, send)]


class TestFiles:
    def test_a_missing_file(self, tmp_path: Path) -> None:
        files = job()
        del files[1]
        (violation,) = validate(saved(files, tmp_path)).violations
        assert (violation.rule, violation.rank, violation.node) == (Rule.MISSING_RANK, 1, None)
        assert violation.message == "file job.1.et is missing"

    def test_a_missing_last_rank_that_groups_list(self, tmp_path: Path) -> None:
        assert found(validate(saved(job()[:-1], tmp_path)))[0] == ("missing_rank", 3, None)

    def test_the_world_size_in_the_metadata(self, tmp_path: Path) -> None:
        trace = EtFile(metadata={"world_size": ("uint64_val", 3)})
        trace.compute()
        assert found(validate(saved([trace], tmp_path, {}))) == [
            ("missing_rank", rank, None) for rank in (1, 2)
        ]

    def test_a_job_without_a_rank_that_was_not_written_cannot_run(self, tmp_path: Path) -> None:
        trace = EtFile(metadata={"world_size": ("uint64_val", 2), "ranks": ("string_val", "0")})
        trace.compute()
        strict, full = validate(saved([trace], tmp_path, {})), validate(tmp_path, variant="full")
        assert found(strict) == found(full) == [("rank_left_out", 1, None)]
        assert (strict.valid, full.valid) == (False, True)

    def test_a_missing_file_is_not_a_rank_that_was_not_written(self, tmp_path: Path) -> None:
        trace = EtFile(metadata={"world_size": ("uint64_val", 3), "ranks": ("string_val", "0-1")})
        trace.compute()
        validation = validate(saved([trace], tmp_path, {}))
        assert found(validation) == [("missing_rank", 1, None), ("rank_left_out", 2, None)]

    def test_a_single_file_is_validated_alone(self, tmp_path: Path) -> None:
        validation = validate(saved(job(), tmp_path) / "job.2.et")
        assert (validation.valid, found(validation), len(validation.files)) == (True, [], 1)

    def test_two_files_of_one_rank(self, tmp_path: Path) -> None:
        saved(job(), tmp_path)
        (tmp_path / "job.03.et").write_bytes((tmp_path / "job.3.et").read_bytes())
        assert found(validate(tmp_path)) == [("duplicate_rank", 3, None)]

    def test_metadata_and_name_with_different_ranks(self, tmp_path: Path) -> None:
        files = job()
        files[1].metadata["rank"] = ("uint64_val", 3)
        assert found(validate(saved(files, tmp_path))) == [("rank_mismatch", 1, None)]

    def test_names_without_a_rank(self, tmp_path: Path) -> None:
        for name, rank in (("b", 0), ("a", 1)):
            trace = EtFile(metadata={"rank": ("uint64_val", rank)})
            trace.collective(size=5)
            trace.save(tmp_path).rename(tmp_path / f"{name}.et")
        validation = validate(tmp_path)
        assert [(Path(file.path).stem, file.rank) for file in validation.files] == [("b", 0), ("a", 1)]
        assert found(validation) == [("file_name", 0, None), ("file_name", 1, None)]

    def test_prefixes_are_separate_jobs(self, tmp_path: Path) -> None:
        saved(job(), tmp_path)
        other = EtFile()
        other.collective(size=1)
        other.save(tmp_path / "..").rename(tmp_path / "other.0.et")
        assert found(validate(tmp_path)) == []

    def test_a_truncated_file_is_not_compared(self, tmp_path: Path) -> None:
        saved(job(), tmp_path)
        path = tmp_path / "job.2.et"
        path.write_bytes(path.read_bytes()[:-1])
        assert found(validate(tmp_path)) == [("broken_message", 2, None), ("not_compared", 2, None)]

    def test_an_unreadable_file(self, tmp_path: Path) -> None:
        saved(job(), tmp_path)
        (tmp_path / "job.2.et").write_bytes(b"PK\x03\x04 cut off")
        (violation,) = validate(tmp_path).violations
        assert (violation.rule, violation.rank) == (Rule.UNREADABLE, 2)

    def test_other_files_are_ignored(self, tmp_path: Path) -> None:
        saved(job(), tmp_path)
        (tmp_path / "notes.txt").write_text("nothing")
        assert validate(tmp_path).valid

    def test_nothing_to_read(self, tmp_path: Path) -> None:
        (tmp_path / "profile.json").write_text("{}")
        with pytest.raises(UnreadableError, match=r"no file name ends in \.et; found profile\.json"):
            validate(tmp_path)

    def test_a_file_of_another_format(self, tmp_path: Path) -> None:
        profile = tmp_path / "profile.json"
        profile.write_text('{"traceEvents": []}')
        with pytest.raises(
            UnreadableError, match=r"profile\.json: it is not a Chakra trace, but of format kineto\."
        ):
            validate(profile)


class TestGroups:
    @pytest.mark.parametrize("name", ["comm_group.json", "comm_groups.json"])
    def test_a_file_for_the_folder(self, tmp_path: Path, name: str) -> None:
        saved(job(), tmp_path)
        (tmp_path / "job.groups.json").rename(tmp_path / name)
        assert validate(tmp_path).valid

    def test_a_file_that_is_named(self, tmp_path: Path) -> None:
        saved(job(), tmp_path)
        elsewhere = tmp_path / "elsewhere.json"
        (tmp_path / "job.groups.json").rename(elsewhere)
        assert not validate(tmp_path / "job.*.et").valid
        assert validate(tmp_path / "job.*.et", groups=elsewhere).valid

    def test_groups_in_the_metadata(self, tmp_path: Path) -> None:
        files = job()
        for trace in files:
            said = {
                str(1 + trace.rank // 2): {
                    "name": "tp",
                    "ranks": [trace.rank // 2 * 2, trace.rank // 2 * 2 + 1],
                }
            }
            trace.metadata["groups"] = ("string_val", json.dumps(said))
        saved(files, tmp_path)
        (tmp_path / "job.groups.json").unlink()
        assert found(validate(tmp_path)) == []

    @pytest.mark.parametrize("kind", [CollectiveType.ALL_REDUCE, CollectiveType.ALL_TO_ALL])
    def test_a_collective_of_one_member(self, tmp_path: Path, kind: CollectiveType) -> None:
        files = [EtFile(0), EtFile(1)]
        files[1].collective(CollectiveType.BROADCAST, group="2")
        lone = files[1].collective(kind, group="2")
        for trace in files:
            trace.collective(kind, group="1")
        saved(files, tmp_path, {"1": [0, 1], "2": [1]})
        strict, full = validate(tmp_path), validate(tmp_path, variant="full")
        assert found(strict) == found(full) == [("lone_collective", 1, lone.id)]
        assert (strict.valid, full.valid) == (False, True)
        assert strict.violations[0].message == (
            f"node 2 is {kind.name} of 4,096 bytes in group 2, which has one rank"
        )

    @pytest.mark.parametrize(
        ("kind", "number", "miscounted"),
        [
            (CollectiveType.ALL_TO_ALL, None, True),
            (CollectiveType.ALL_TO_ALL, "0", True),
            (CollectiveType.ALL_TO_ALL, "2", False),
            (CollectiveType.BROADCAST, None, False),
        ],
    )
    def test_a_collective_of_all_ranks_after_one_of_a_group(
        self, tmp_path: Path, kind: CollectiveType, number: str | None, miscounted: bool
    ) -> None:
        """The count of all collectives is the number of one among all; under a number of its own it is not."""
        files = [EtFile(rank) for rank in range(3)]
        for trace in files[1:]:
            trace.collective(kind, group="1")
        for trace in files:
            trace.collective(CollectiveType.ALL_REDUCE, group=number, after=trace.nodes[-1:])
        saved(files, tmp_path, {"1": [1, 2], "2": [0, 1, 2]})
        strict, full = validate(tmp_path), validate(tmp_path, variant="full")
        expected = [("miscounted", 1, 2), ("miscounted", 2, 2)] if miscounted else []
        assert found(strict) == found(full) == expected
        assert (strict.valid, full.valid) == (not miscounted, True)

    def test_collectives_of_all_ranks_after_groups_with_different_splits(self, tmp_path: Path) -> None:
        """Of 4,098 bytes are made five parts, of 4,096 four; so groups that differ in size count differently."""
        for size, miscounted in ((4096, []), (4098, ["miscounted", "miscounted"])):
            files = [EtFile(rank) for rank in range(4)]
            for trace in files:
                trace.collective(
                    CollectiveType.ALL_REDUCE, 4096 if trace.rank < 2 else size, str(1 + trace.rank // 2)
                )
                trace.collective(CollectiveType.ALL_REDUCE, after=trace.nodes)
            assert [rule for rule, _, _ in found(validate(saved(files, tmp_path)))] == miscounted

    @pytest.mark.parametrize("told", [True, False])
    def test_a_collective_of_a_job_of_one_rank(self, tmp_path: Path, told: bool) -> None:
        """Where no file says how many ranks there are, the others may be elsewhere."""
        trace = EtFile(metadata={"world_size": ("uint64_val", 1)} if told else {})
        trace.collective()
        trace.save(tmp_path)
        assert found(validate(tmp_path)) == ([("lone_collective", 0, 1)] if told else [])

    def test_a_groups_file_that_astra_sim_ignores(self, tmp_path: Path) -> None:
        saved(job(), tmp_path)
        groups = tmp_path / "not_empty.json"
        (tmp_path / "job.groups.json").rename(groups)
        (violation,) = validate(tmp_path / "job.*.et", groups=groups).violations
        assert (violation.rule, violation.file) == (Rule.IGNORED_GROUPS, str(groups))
        assert validate(tmp_path / "job.*.et", groups=groups, variant="full").valid

    def test_contradicting_groups(self, tmp_path: Path) -> None:
        for rank, members in enumerate(([0, 1], [1])):
            trace = EtFile(rank, metadata={"groups": ("string_val", json.dumps({"1": {"ranks": members}}))})
            trace.compute()
            trace.save(tmp_path)
        (violation,) = validate(tmp_path).violations
        assert violation.message.endswith("job.1.et lists group 1 as [1], and another file lists it as [0-1]")

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("{", "is not JSON"),
            ("[]", "is not a JSON object of groups"),
            ('{"tp": [0, 1]}', "is not an integer"),
            ('{"0": [0, 1]}', "0 means all ranks"),
            ('{"1": []}', "has no list of ranks"),
            ('{"1": 3}', "has no list of ranks"),
            ('{"1": {"name": "tp", "ranks": [0]}}', "has no list of ranks"),
            ('{"-1": [0]}', "is not an integer"),
            ('{" 1": [0]}', "is not an integer"),
            ('{"2147483648": [0]}', "is not an integer"),
            ('{"1": [0, -1]}', "has members that are not ranks"),
            ('{"1": [0, true]}', "has members that are not ranks"),
            ('{"1": [0, 0]}', "has a duplicate rank"),
        ],
    )
    def test_invalid_groups(self, tmp_path: Path, text: str, why: str) -> None:
        trace = EtFile()
        trace.compute()
        trace.save(tmp_path)
        (tmp_path / "job.groups.json").write_text(text)
        (violation,) = validate(tmp_path).violations
        assert (violation.rule, violation.rank, violation.node) == (Rule.BAD_GROUPS, None, None)
        assert why in violation.message


@pytest.mark.parametrize(
    "asked", [lambda path: validate(path, variant="mine"), lambda path: validate(path, limit=0)]
)
def test_invalid_arguments(tmp_path: Path, asked: Callable[[Path], object]) -> None:
    with pytest.raises(UsageError):
        asked(saved(job(), tmp_path))
