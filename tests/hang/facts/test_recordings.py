"""Reading dumps, and replicas that number their own ranks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from builders.recorder import collective, dump, pickled, process_group
from tracelink._hang.facts.journal import journal_of
from tracelink._hang.facts.recordings import read_recordings, renumber_replicas
from tracelink._io.sources import Request, discover
from tracelink._model.columns import UNKNOWN
from tracelink._model.findings import Severity
from tracelink._model.records import Recording, Records, Requests
from tracelink._model.trace import ProcessGroup, SourceInfo
from tracelink._run.processes import Processes

# Reading dumps.


FORMATS_IMPORTED_BY_DIAGNOSING = """
import sys, tracelink
tracelink.diagnose(sys.argv[1])
print(*sorted({name.split(".")[2] for name in sys.modules if name.startswith("tracelink.converters.")}))
"""


def write(folder: Path, ranks: int) -> None:
    """The dumps of a job whose one group has all ranks."""
    content = dump(collective(), pg_config=process_group("0", list(range(ranks)), "default_pg"))
    for rank in range(ranks):
        (folder / f"comm_lib_trace_rank_{rank}").write_bytes(pickled(content))


def test_members_of_groups_are_shared(tmp_path: Path) -> None:
    write(tmp_path, 300)
    found = read_recordings(discover(Request([(str(tmp_path), "")])), Processes(1)).by_rank
    members = [group.ranks for one in found.values() for group in one.groups]
    assert members == [tuple(range(300))] * 300
    assert len({id(ranks) for ranks in members}) == 1


def test_other_formats_are_not_imported(tmp_path: Path) -> None:
    write(tmp_path, 2)
    command = [sys.executable, "-c", FORMATS_IMPORTED_BY_DIAGNOSING, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["flight_recorder"]


# Replicas.


REQUEST = {name: [UNKNOWN] for name in Requests.__struct_fields__}


def recording(rank: int, *groups: ProcessGroup) -> Recording:
    """A dump with one collective in each of these groups."""
    names = [group.name for group in groups]
    columns = {name: np.array([UNKNOWN]) for name in REQUEST} | {"operation": np.array([len(names)])}
    return Recording(
        SourceInfo(f"dump_{rank}", "flight-recorder", rank=rank),
        [*names, "nccl:all_reduce"],
        Records.of(len(names), group=range(len(names)), request=[0] * len(names), sequence=[1] * len(names)),
        Requests(**columns),
        groups,
    )


def default(*ranks: int, name: str = "0") -> ProcessGroup:
    return ProcessGroup(name, "default_pg", ranks, len(ranks))


def ranks_of(made: Recording) -> Sequence[tuple[int, ...]]:
    return [group.ranks for group in made.groups]


class TestJobRanks:
    def test_replicas_count_from_0(self) -> None:
        made, findings = renumber_replicas({rank: recording(rank, default(0, 1)) for rank in range(6)}, 2)
        assert [ranks_of(one) for one in made.values()] == [
            [(0, 1)], [(0, 1)], [(2, 3)], [(2, 3)], [(4, 5)], [(4, 5)],
        ]  # fmt: skip
        assert findings == []

    def test_groups_with_the_same_name(self) -> None:
        made, _ = renumber_replicas({rank: recording(rank, default(0, 1)) for rank in range(4)}, 2)
        groups = journal_of(made).groups
        assert [(group.name, group.ranks) for group in groups] == [("0", (0, 1)), ("0", (2, 3))]

    def test_subgroups_of_a_replica(self) -> None:
        tensor = ProcessGroup("3", "tp", (2, 3), 2)
        made, _ = renumber_replicas({7: recording(7, default(0, 1, 2, 3), tensor)}, 4)
        assert ranks_of(made[7]) == [(4, 5, 6, 7), (6, 7)]

    def test_group_across_replicas(self) -> None:
        across = ProcessGroup("quorum", "torchft", (1, 3, 5), 3)
        made, _ = renumber_replicas({3: recording(3, default(0, 1), across)}, 2)
        assert ranks_of(made[3]) == [(2, 3), (1, 3, 5)]

    def test_group_with_job_ranks(self) -> None:
        made, _ = renumber_replicas({5: recording(5, default(4, 5, 6, 7, name="9f3c"))}, 4)
        assert ranks_of(made[5]) == [(4, 5, 6, 7)]

    def test_group_of_other_ranks(self) -> None:
        foreign = ProcessGroup("8", "", (0, 1), 2)
        assert ranks_of(renumber_replicas({7: recording(7, foreign)}, 4)[0][7]) == [(0, 1)]


class TestGroupsWithoutRanks:
    """As torch leaves them on gloo."""

    def test_default_group_is_the_replica(self) -> None:
        made, _ = renumber_replicas({5: recording(5, default())}, 4)
        assert ranks_of(made[5]) == [(4, 5, 6, 7)]

    def test_other_groups_are_their_users(self) -> None:
        tensor = ProcessGroup("3", "tp")
        dumps = {rank: recording(rank, tensor) for rank in (0, 1, 4, 6)} | {5: recording(5)}
        made, _ = renumber_replicas(dumps, 4)
        assert [ranks_of(made[rank]) for rank in (0, 1, 4, 6)] == [[(0, 1)], [(0, 1)], [(4, 6)], [(4, 6)]]

    def test_unnamed_group_may_span_replicas(self) -> None:
        assert ranks_of(renumber_replicas({5: recording(5, ProcessGroup(""))}, 4)[0][5]) == [()]


def test_wrong_replica_size() -> None:
    ((finding,),) = renumber_replicas({rank: recording(rank, default(0, 1, 2, 3)) for rank in range(8)}, 2)[
        1:
    ]
    assert (finding.severity, finding.reason, finding.count) == (Severity.WARNING, "replica_size_differs", 8)
    assert finding.example == "rank 0: 4 ranks"


@pytest.mark.parametrize("rank", [0, 3])
def test_other_fields_are_unchanged(rank: int) -> None:
    one = recording(rank, default(0, 1, 2, 3))
    made = renumber_replicas({rank: one}, 4)[0][rank]
    assert replace(made, groups=one.groups) == one
    assert tuple(made.groups) == one.groups


@given(st.integers(1, 9), st.integers(0, 99), st.data())
def test_any_rank_is_a_member_of_its_groups(size: int, replica: int, data: st.DataObject) -> None:
    within = data.draw(st.sets(st.integers(0, size - 1), min_size=1))
    rank = replica * size + data.draw(st.sampled_from(sorted(within)))
    group = ProcessGroup("3", "tp", tuple(sorted(within)), len(within))
    (ranks,) = ranks_of(renumber_replicas({rank: recording(rank, group)}, size)[0][rank])
    assert rank in ranks
    assert [one - replica * size for one in ranks] == sorted(within)
