"""Remote stores in several processes: real forks, real servers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from builders.stores import BUCKET, S3

pytestmark = pytest.mark.slow

SCRIPT = r"""
import os, sys, threading
import tracelink
from tracelink.converters.kineto import reader
from tracelink._run import processes

reader.WORTH_SPLITTING = 1 << 10
processes.WORTH_FORKING = 1
pids = set()
read_part = reader._read_part

def read(source, part, engine):
    os.write(1, f"part {os.getpid()} {part.start}\n".encode())
    return read_part(source, part, engine)

reader._read_part = read
tracelink.merge(sys.argv[1], output=sys.argv[2], jobs=3)
assert threading.active_count() == 1, threading.enumerate()
"""


def merged(path: str, output: Path, environment: dict[str, str]) -> set[tuple[str, str]]:
    """The processes that read parts, and where these start."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, path, str(output)],
        env=os.environ | environment | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.stderr, done.returncode) == ("", 0)
    return {(process, start) for _, process, start in map(str.split, done.stdout.splitlines())}


def profile(path: Path, events: int) -> None:
    lines = [
        f'{{"ph": "X", "cat": "cpu_op", "name": "op{number % 7}", "pid": 1, "tid": 1, "ts": {number}, "dur": 1}}'
        for number in range(events)
    ]
    text = '{"schemaVersion": 1, "distributedInfo": {"rank": %s}, "traceEvents": [\n%s\n]}\n'
    path.write_text(text % (path.stem[-1], ",\n".join(lines)))


def test_files_are_read_in_parts_by_several_processes(s3: S3, tmp_path: Path) -> None:
    profile(tmp_path / "kineto_0.json", 20_000)
    s3.put(tmp_path)
    parts = merged(f"s3://{BUCKET}/kineto_0.json", tmp_path / "remote.json", s3.environment)
    local = merged(str(tmp_path / "kineto_0.json"), tmp_path / "local.json", {})
    assert len({process for process, _ in parts}) == 3
    assert {start for _, start in parts} == {start for _, start in local}
    assert (tmp_path / "remote.json").read_bytes() == (tmp_path / "local.json").read_bytes()


def test_ranks_are_read_by_several_processes(s3: S3, tmp_path: Path) -> None:
    for rank in range(6):
        profile(tmp_path / f"kineto_{rank}.json", 2_000)
    s3.put(tmp_path, "run/")
    environment = s3.environment | {"AWS_ENDPOINT_URL": s3.endpoint.replace("127.0.0.1", "localhost")}
    parts = merged(f"s3://{BUCKET}/run/", tmp_path / "remote.json", environment)
    merged(str(tmp_path), tmp_path / "local.json.gz", {})
    assert len({process for process, _ in parts}) > 1
    merged(f"s3://{BUCKET}/run/", tmp_path / "remote.json.gz", environment)
    assert (tmp_path / "remote.json.gz").read_bytes() == (tmp_path / "local.json.gz").read_bytes()
