"""The command under faults: kills, limits of files, closed and full streams, full disks, clients that hang up."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from builders.kills import Bench, Goal, Kill, random_kills, run
from generators.jobs import write_cluster
from tracelink import samples
from tracelink._open.server import HEAD_END, HOST, UI

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("heeded_signals")]
COMMAND = (sys.executable, "-m", "tracelink")
PATIENCE = 60
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the system is not Linux")


def tracelink(*arguments: object, **options: object) -> subprocess.CompletedProcess[bytes]:
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.run([*COMMAND, *map(str, arguments)], timeout=PATIENCE, check=False, **streams)  # type: ignore[call-overload]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job of 8 ranks with enough events for several processes."""
    folder = tmp_path_factory.mktemp("job")
    write_cluster(folder, ranks=8, ranks_per_host=4, steps=10)
    return folder


# Kills.


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("bench"), steps=10)


@LINUX
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("goal", [*Goal])
def test_a_kill_leaves_no_half_file_and_no_process(goal: Goal, number: signal.Signals, bench: Bench) -> None:
    kills = [
        Kill(goal, number, 0.6, *kill) for kill in (("perfetto-json", "out/job.json"), ("chakra", "out/job"))
    ]
    outcomes, wrong = run(kills, bench)
    assert (outcomes.total(), wrong) == (2, [])


@LINUX
def test_kills_at_random_moments(bench: Bench) -> None:
    """`python -m builders.kills` makes more of them."""
    _, wrong = run([*random_kills(5, seed=1)], bench)
    assert wrong == []


def test_python_m_is_interrupted_without_a_traceback_while_it_imports(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    result = tracelink(
        "formats", env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{Path(__file__).parents[2]}"}
    )
    assert (result.returncode, result.stderr) == (-signal.SIGINT, b"")


def test_a_signal_in_a_callback_of_the_interpreter_is_not_lost(tmp_path: Path) -> None:
    code = """
import os, signal, time
from tracelink.cli import console, main
class Interrupted:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
def info(self, *lines, **options):
    Interrupted()
    time.sleep(60)
console.Console.info = info
main(['formats'])
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=30, check=False)
    assert (result.returncode, result.stderr) == (130, b"tracelink: interrupted.\n")


@pytest.mark.parametrize(
    ("name", "code", "message"), [("SIGINT", 130, b"interrupted"), ("SIGTERM", 143, b"terminated")]
)
@pytest.mark.parametrize("instead", ["raise ValueError", "pass"])
def test_a_signal_that_became_another_error_is_not_lost(
    name: str, code: int, message: bytes, instead: str
) -> None:
    """The interpreter raises an ImportError or a SyntaxError if a signal arrives while it imports."""
    program = f"""
import os, signal
from tracelink.cli import console, main
def info(self, *lines, **options):
    try:
        os.kill(os.getpid(), signal.{name})
    except BaseException:
        {instead}
console.Console.info = info
main(['formats'])
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=30, check=False)
    assert (result.returncode, result.stderr) == (code, b"tracelink: %s.\n" % message)


# Limits of open files.


def limited(limit: int, number: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(limit, (number, number))


@pytest.mark.parametrize("output", ["out.json", "out.pftrace", "chakra/job"])
def test_64_open_files_are_enough(job: Path, tmp_path: Path, output: str) -> None:
    to = ("--to", "chakra") if "chakra" in output else ()
    (tmp_path / "chakra").mkdir()
    written = []
    for files in (64, 1024):
        result = tracelink(
            *("merge", job, "-q", "-j", 32, "-o", tmp_path / output, *to),
            preexec_fn=limited(resource.RLIMIT_NOFILE, files),
        )
        assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")
        written.append({path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()})
    assert written[0] == written[1]


# Standard streams that are closed or full.


def closed(*descriptors: int) -> Callable[[], None]:
    return lambda: [os.close(descriptor) for descriptor in descriptors] and None


def test_merge_works_without_standard_streams(tmp_path: Path) -> None:
    for number, streams in enumerate([(), (0, 1, 2), (1,), (2,), (0, 2)]):
        result = tracelink(
            *("merge", samples.path("gpu_pair"), "-o", tmp_path / f"{number}.json"),
            preexec_fn=closed(*streams),
        )
        assert result.returncode == 0
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1


@pytest.mark.parametrize(
    ("arguments", "stream", "message"),
    [(("-", "-o", "x.json"), 0, b"input is closed"), (("cpu_job", "-o", "-"), 1, b"output is closed")],
)
def test_a_closed_stream_that_is_needed_is_an_error(
    arguments: tuple[str, ...], stream: int, message: bytes
) -> None:
    result = tracelink("merge", *arguments, cwd=samples.path("cpu_job").parent, preexec_fn=closed(stream))
    assert result.returncode == 2
    assert result.stderr.startswith(b"tracelink: standard " + message)
    assert result.stderr.count(b"\n") == 1


FULL = b"tracelink: no space left on device. The operating system reported this error (-v shows the traceback).\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("--version",),
        ("merge", "--help"),
        ("merge", "PAIR", "-o", "-"),
        ("merge", "PAIR", "-o", "OUT"),
        ("merge", "PAIR", "-o", "OUT", "--json"),
        ("inspect", "PAIR"),
        ("inspect", "PAIR", "--json"),
        ("diagnose", "HUNG", "-q"),
        ("diagnose", "HUNG", "--json"),
        ("collectives", "PAIR"),
        ("formats",),
        ("completion", "bash"),
    ],
    ids=" ".join,
)
def test_a_full_standard_output_is_one_line(arguments: tuple[str, ...], tmp_path: Path) -> None:
    names = {"PAIR": samples.path("gpu_pair"), "HUNG": samples.path("hung_job"), "OUT": tmp_path / "out.json"}
    with open("/dev/full", "wb") as full:
        result = tracelink(*(names.get(word, word) for word in arguments), stdout=full)
        both = tracelink(*(names.get(word, word) for word in arguments), stdout=full, stderr=full)
    assert (result.returncode, result.stderr, both.returncode) == (1, FULL, 1)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_full_standard_error_does_not_change_the_exit_code(tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        codes = [
            tracelink(*arguments, stderr=full).returncode
            for arguments in (
                ("nonsense",),
                ("merge", "--nonsense"),
                ("merge", tmp_path / "missing"),
                ("formats",),
            )
        ]
    assert codes == [2, 2, 2, 0]


# A full disk: a limit of the size of files has the same effect.


@pytest.mark.parametrize(
    ("arguments", "limit", "message"),
    [
        (("merge", "JOB", "-j", "4", "-o", "OUT/out.json"), 6_000_000, "OUT/out.json: cannot"),
        (("merge", "JOB", "-j", "1", "-o", "OUT/out.json"), 6_000_000, "OUT/out.json: cannot"),
        (("merge", "JOB", "-j", "4", "-o", "OUT/out.json"), 100_000, "cannot"),
        (("merge", "PAIR", "-o", "OUT/out.pftrace"), 60_000, "cannot"),
        (("merge", "JOB", "-j", "4", "--to", "chakra-json", "-o", "OUT/et/"), 1_500_000, "cannot"),
        (("diagnose", "HUNG", "-o", "OUT/x.sqlite"), 20_000, "OUT/x.sqlite: cannot"),
        (("diagnose", "HUNG", "-o", "OUT/x.html"), 20_000, "OUT/x.html: cannot"),
    ],
)
def test_a_full_disk_leaves_nothing(
    arguments: tuple[str, ...], limit: int, message: str, job: Path, tmp_path: Path
) -> None:
    names = {"PAIR": str(samples.path("gpu_pair")), "HUNG": str(samples.path("hung_job")), "JOB": str(job)}
    words = [names.get(word, word).replace("OUT", str(tmp_path)) for word in arguments]
    result = tracelink(*words, preexec_fn=limited(resource.RLIMIT_FSIZE, limit))
    (line,) = result.stderr.decode().splitlines()
    assert result.returncode == 1
    assert f"{message.replace('OUT', str(tmp_path))} " in line
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


# Clients of `open` that hang up.


class Hangup:
    """Ways to leave a server."""

    def __init__(self, sent: float, received: int, *, reset: bool) -> None:
        self.sent = sent
        """How much of the request is sent."""
        self.received = received
        self.reset = reset

    def leave(self, address: tuple[str, int], request: bytes) -> None:
        with socket.create_connection(address, timeout=PATIENCE) as client:
            client.sendall(request[: int(len(request) * self.sent)])
            left = self.received
            while left and (part := client.recv(left)):
                left -= len(part)
            if self.reset:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


HANGUPS = [
    Hangup(sent, received, reset=reset)
    for reset in (False, True)
    for sent, received in ((0, 0), (0.5, 0), (1, 0), (1, 1), (1, 1000), (1, 3 << 20))
]


@contextmanager
def serving(path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [*COMMAND, "open", str(path), "--port", str(port), "--no-browser", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout
        text = ""
        while not text.endswith("\n}\n"):
            text += process.stdout.readline()
        yield process, json.loads(text)["url"]
    finally:
        process.kill()
        process.wait(PATIENCE)


def test_open_survives_clients_that_hang_up(tmp_path: Path) -> None:
    trace = tmp_path / "t.json"
    trace.write_bytes(b'{"traceEvents":[]}' + bytes(12 << 20))
    with serving(trace) as (process, url):
        wanted = urlsplit(parse_qs(urlsplit(urlsplit(url).fragment).query)["url"][0])
        request = f"GET {wanted.path} HTTP/1.1\r\nHost: {HOST}\r\nOrigin: {UI}\r\n\r\n".encode()
        port = int(process.args[process.args.index("--port") + 1])  # type: ignore[union-attr,arg-type]
        for hangup in HANGUPS * 2:
            hangup.leave(("127.0.0.1", port), request)
        answer = b""
        while not answer.startswith(
            b"HTTP/1.1 200"
        ):  # the server notices a moment later that a client is gone
            with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as client:
                client.sendall(request)
                answer = b"".join(iter(lambda: client.recv(1 << 20), b""))
        _, stderr = process.communicate(timeout=PATIENCE)
    assert (process.returncode, stderr) == (0, "")
    assert answer.partition(HEAD_END)[2] == trace.read_bytes()
