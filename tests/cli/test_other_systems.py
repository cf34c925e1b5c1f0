"""The same bytes without fork, fcntl, sendfile, termios and /proc: macOS and Windows, simulated on Linux."""

from __future__ import annotations

import ast
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path, PureWindowsPath

import pytest

from tracelink import samples
from tracelink._io.names import host_in_path, rank_in_path
from tracelink.cli.main import COMMANDS as PROGRAM_COMMANDS

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "tests" / "builders" / "other_system.py"
PATIENCE = 300
SYSTEMS = ("linux", "macos", "windows")

COMMANDS = (
    "inspect gpu_pair -v",
    "inspect gpu_pair --json",
    "merge gpu_pair -j 4 -o out/merged.json",
    "merge gpu_pair -j 4 -o out/merged.json.gz",
    "merge gpu_pair -j 4 -o out/merged.pftrace",
    "merge gpu_pair -j 4 -o out/merged.json",
    "merge gpu_pair -j 4 --to chakra -o out/et/job",
    "merge gpu_pair -j 4 --to chakra --variant astra-sim -o out/sim/",
    "merge cpu_job -j 4 --to chakra-json -o out/linked/",
    "merge gpu_pair -j 4 --bundle -o out/bundle.tar",
    "merge gpu_pair.tar -o out/archive.json -q",
    "merge gpu_pair.zip --ranks 1 -o out/one.json -q",
    "merge gpu_pair -q -o no/such/folder/merged.json",
    "validate out/et",
    "inspect out/et",
    "merge out/merged.pftrace -o out/back.json",
    "merge gpu_pair/kineto_0.json.gz -o out/rank0.pftrace",
    "merge out/et/job.0.et -o out/drawing.svg",
    "merge out/et/job.0.et -o out/job.0.nodes.json",
    "diagnose hung_job",
    "diagnose hung_job -q",
    "diagnose hung_job --json",
    "diagnose hung_job --entries -o out/entries.csv",
    "diagnose hung_job -q -o out/report.html",
    "diagnose hung_job -q -o out/flight.sqlite",
    "summary gpu_pair",
    "summary gpu_pair --json",
    "summary gpu_pair -o out/answers.html",
    "summary gpu_pair -o out/answers.csv",
    "diff run_before run_after -v",
    "diff run_before run_after -o out/diff.md",
    "collectives gpu_pair",
    "collectives gpu_pair -o out/collectives.csv",
    "clocks gpu_pair",
    "merge gpu_pair -j 4 -q -o out/job.parquet/",
    "query out/job.parquet --name top-kernels --format csv",
    "open gpu_pair",
    "open out/missing.json",
    "open out/merged.json --no-browser --timeout 30 --port PORT",
    "compile compile_job -v",
    "compile compile_job --json",
    "demo -o out/demo.json",
    "run -o out/traces -- out/missing_program",
    "formats",
    "completion bash",
)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    """The files that all commands wrote, and what they printed, on each system."""
    found = {}
    for system in SYSTEMS:
        folder = tmp_path_factory.mktemp(system) / "same name"
        (folder / "out" / "et").mkdir(parents=True)
        (folder / "texts").mkdir()
        for sample in ("gpu_pair", "cpu_job", "hung_job", "compile_job", "run_before", "run_after"):
            shutil.copytree(samples.path(sample), folder / sample)
        shutil.make_archive(str(folder / "gpu_pair"), "tar", folder / "gpu_pair")
        shutil.make_archive(str(folder / "gpu_pair"), "zip", folder / "gpu_pair")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = str(free.getsockname()[1])
        commands = [command.replace("PORT", port).split() for command in COMMANDS]
        subprocess.run(
            [sys.executable, "-X", "warn_default_encoding", str(PROGRAM), system, "texts"],
            input=json.dumps(commands).encode(),
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "LC_ALL": "C",
                "PYTHONUTF8": "0",
                "PYTHONCOERCECLOCALE": "0",
            },
            cwd=folder,
            timeout=PATIENCE,
            check=True,
        )
        found[system] = {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file() and path.relative_to(folder).parts[0] in {"out", "texts"}
        }
    return found


def normal(text: bytes) -> bytes:
    """Without what differs from run to run: random paths, ports, the kind of an error of the system."""
    lines = (line for line in text.splitlines() if b"http" not in line and b"127.0.0.1" not in line)
    return b"\n".join(lines)


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS[1:])
class TestWithoutLinux:
    def test_all_files_have_the_same_bytes(self, system: str, results: dict[str, dict[str, bytes]]) -> None:
        linux, other = (
            {name: text for name, text in results[name_of].items() if name.startswith("out/")}
            for name_of in ("linux", system)
        )
        assert sorted(linux) == sorted(other)
        assert len(linux) > 20
        assert [name for name in linux if linux[name] != other[name]] == []

    @pytest.mark.parametrize("command", COMMANDS)
    def test_prints_the_same(self, system: str, command: str, results: dict[str, dict[str, bytes]]) -> None:
        name = f"texts/{COMMANDS.index(command)}.txt"
        assert normal(results[system][name]) == normal(results["linux"][name])
        assert b"unexpected" not in results[system][name]


@pytest.mark.slow
def test_the_commands_succeed(results: dict[str, dict[str, bytes]]) -> None:
    """Else equal outputs would prove nothing."""
    codes = {
        command: results["linux"][f"texts/{number}.txt"].partition(b"\n")[0].decode()
        for number, command in enumerate(COMMANDS)
    }
    failed = {command for command, code in codes.items() if code not in {"0", "None"}}
    expected = {command for command in COMMANDS if "missing" in command or "no/such" in command}
    expected |= {command for command in COMMANDS if command.startswith(("compile", "diagnose", "open"))}
    assert failed <= expected
    assert results["linux"]["out/fetched"] == results["linux"]["out/merged.json"]


def test_every_command_is_run() -> None:
    assert {command.split()[0] for command in COMMANDS} == {*PROGRAM_COMMANDS}


# Paths of Windows: / separates folders in the graph on every system.


@pytest.mark.parametrize(
    ("path", "rank", "host"),
    [
        (r"C:\traces\rank_3\profile.json", 3, ""),
        (r"C:\traces\node7\rank_12.json", 12, "node7"),
        (r"\\server\share\job\comm_lib_trace_rank_5", 5, ""),
        (r"D:\dumps\host-a.example.org\rank0.json", 0, "host-a.example.org"),
    ],
)
def test_ranks_and_hosts_in_paths_of_windows(path: str, rank: int, host: str) -> None:
    shown = PureWindowsPath(path).as_posix()
    hint = rank_in_path(shown)
    assert hint
    assert (hint.rank, host_in_path(shown)) == (rank, host)


def calls(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node.func.attr, node


def test_texts_are_read_and_written_with_an_encoding() -> None:
    """The default is not UTF-8 on Windows."""
    without = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for folder in ("tracelink", "converters", "samples", "schemas")
        for path in (ROOT / folder).rglob("*.py")
        for name, call in calls(ast.parse(path.read_text("utf-8")))
        if (name == "read_text" and not call.args and not call.keywords)
        or (name == "write_text" and len(call.args) < 2 and not call.keywords)
    ]
    assert without == []


ONE_SYSTEM = {"fcntl", "termios", "resource", "pwd", "grp", "msvcrt", "winreg", "ctypes"}


def test_modules_of_one_system_are_imported_by_one_module() -> None:
    found = set()
    for folder in ("tracelink", "converters", "samples", "schemas"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom) and node.module:
                    names = [node.module]
                if ONE_SYSTEM & {name.partition(".")[0] for name in names}:
                    found.add(path.relative_to(ROOT).as_posix())
    assert found == {"tracelink/_io/system.py"}
