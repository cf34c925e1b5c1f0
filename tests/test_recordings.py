"""The dumps of a job: what they have in common is there once, and readers of other formats are left alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from builders.recorder import collective, dump, pickled, process_group
from tracelink.diagnosis.recordings import read_recordings
from tracelink.engine import Engine
from tracelink.io.sources import Request, discover

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


def test_the_members_of_a_group_are_kept_once(tmp_path: Path) -> None:
    write(tmp_path, 300)
    found = read_recordings(discover(Request([(str(tmp_path), "")])), Engine(1)).recordings
    members = [group.ranks for one in found.values() for group in one.groups]
    assert members == [tuple(range(300))] * 300
    assert len({id(ranks) for ranks in members}) == 1


def test_readers_of_other_formats_are_not_even_imported_for_dumps(tmp_path: Path) -> None:
    write(tmp_path, 2)
    command = [sys.executable, "-c", FORMATS_IMPORTED_BY_DIAGNOSING, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["flight_recorder"]
