"""The command as a process: pipes, signals, and a full disk."""

from __future__ import annotations

import errno
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tracelink import samples
from tracelink._io.temporary import temporary_for
from tracelink.cli.main import ended_cleanly

COMMAND = (sys.executable, "-m", "tracelink")
PATIENCE = 60


def run(*arguments: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        timeout=PATIENCE,
        check=False,
        **options,  # type: ignore[call-overload]
    )


def test_standard_output_is_only_json() -> None:
    result = run("inspect", str(samples.path("cpu_job")), "--json", "-v")
    assert result.returncode == 0
    assert len(json.loads(result.stdout)["sources"]) == 8
    assert result.stderr == b""


def test_a_closed_pipe_is_not_an_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.Popen([*COMMAND, "formats", "--json"], stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    _, stderr = process.communicate(timeout=PATIENCE)
    assert (process.returncode, stderr) == (141, b"")


def test_a_closed_pipe_of_a_trace_is_not_an_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [*COMMAND, "merge", str(samples.path("cpu_job")), "-o", "-"]
    process = subprocess.Popen(command, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    _, stderr = process.communicate(timeout=PATIENCE)
    assert (process.returncode, stderr) == (141, b"")


@pytest.mark.parametrize(
    ("signal_number", "code", "message"),
    [
        (signal.SIGINT, 130, b"tracelink: interrupted.\n"),
        (signal.SIGTERM, 143, b"tracelink: terminated.\n"),
        (signal.SIGHUP, 129, b"tracelink: terminated.\n"),
    ],
)
@pytest.mark.usefixtures("heeded_signals")
def test_signals_end_it_with_one_line_at_most(
    tmp_path: Path, signal_number: signal.Signals, code: int, message: bytes
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    process = subprocess.Popen([*COMMAND, "merge", str(pipe)], stderr=subprocess.PIPE, cwd=tmp_path)
    writing = _once_read(pipe)
    process.send_signal(signal_number)
    _, stderr = process.communicate(timeout=PATIENCE)
    os.close(writing)
    assert (process.returncode, stderr) == (code, message)
    assert list(tmp_path.iterdir()) == [pipe]


def test_ignored_signals_stay_ignored(tmp_path: Path) -> None:
    """As `nohup`, and a shell that starts it in the background, demand; SIGTERM ends it all the same."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = shlex.join([*COMMAND, "merge", str(pipe), "-o", "out.json"])
    process = subprocess.Popen(
        f"trap '' INT HUP; exec {command}", shell=True, stderr=subprocess.PIPE, cwd=tmp_path
    )
    writing = _once_read(pipe)
    for number in (signal.SIGINT, signal.SIGHUP):
        process.send_signal(number)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.3)
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=PATIENCE)
    os.close(writing)
    assert (process.returncode, stderr) == (143, b"tracelink: terminated.\n")
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_query_is_interrupted_by_signals(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    pytest.importorskip("pyarrow")
    sql, output = "SELECT * FROM range(1000000000000)", tmp_path / "rows.parquet"
    command = [*COMMAND, "query", str(samples.path("hung_job")), sql, "-o", str(output)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    while not list(tmp_path.iterdir()):
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=PATIENCE)
    assert (process.returncode, stderr, list(tmp_path.iterdir())) == (143, b"tracelink: terminated.\n", [])


def test_a_closed_pipe_ends_a_query() -> None:
    pytest.importorskip("duckdb")
    pytest.importorskip("pyarrow")
    sql = "SELECT * FROM range(1000000000000)"
    command = [*COMMAND, "query", str(samples.path("hung_job")), sql, "--format", "csv"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        assert process.stdout.readline() == b"range\n"
        process.stdout.close()
        assert (process.wait(PATIENCE), process.stderr.read()) == (141, b"")


def test_unfinished_files_are_removed_on_exit(tmp_path: Path) -> None:
    def ended_meanwhile() -> None:
        with ended_cleanly(), temporary_for(tmp_path / "merged.json") as place:
            assert place.exists()
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(SystemExit) as ended:
        ended_meanwhile()
    assert ended.value.code == 143
    assert list(tmp_path.iterdir()) == []


def test_names_that_are_not_text_are_escaped(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(folder)
    Path(os.fsdecode(folder), "k_0.json").write_bytes(b"")
    Path(os.fsdecode(folder), "k_1.json").write_text('{"traceEvents": []}')
    result = run("inspect", os.fsdecode(folder), env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert result.returncode in (1, 3)
    assert b"\\udcff" in result.stdout + result.stderr
    assert b"Traceback" not in result.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_full_disk_is_one_line() -> None:
    with open("/dev/full", "wb") as full:
        result = subprocess.run(
            [*COMMAND, "formats"],
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=PATIENCE,
            check=False,
        )
    assert (result.returncode, result.stderr) == (
        1,
        b"tracelink: no space left on device. The operating system reported this error (-v shows the traceback).\n",
    )


def _once_read(pipe: Path) -> int:
    """The writing end of a pipe that the command has begun to read."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
        time.sleep(0.01)
    raise TimeoutError(pipe)
