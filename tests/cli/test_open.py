"""`tracelink open` and `tracelink merge --open`."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jsonschema
import pytest

from builders.command_line import Job, Run
from builders.handover import TRACE
from tracelink import samples, schemas
from tracelink._model.errors import UnreadableError
from tracelink._model.findings import Finding, Severity
from tracelink._open import browser
from tracelink._open import server as port
from tracelink._open.server import HOST, UI, AccessRule, Limits, Observer, Step
from tracelink._open.trace import OpenTrace
from tracelink.cli import open as handing_over

COMMAND = (sys.executable, "-c", "from tracelink.cli import main; main(prog_name='tracelink')")
PATIENCE = 60


class Door:
    """Stands in for a socket on a port."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.listens = False

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", self.number

    def listen(self) -> None:
        self.listens = True


@dataclass
class Served:
    """Stands in for the server: what it was given, what it says, and how it ends."""

    loaded: bool = True
    steps: Sequence[tuple[Step, str]] = ((Step.FETCHED, ""),)
    error: BaseException | None = None
    pages: list[str] = field(default_factory=list)
    """What the browser was told to open."""
    gates: list[AccessRule] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    limits: list[Limits] = field(default_factory=list)

    def serve(
        self, door: Door, offer: OpenTrace, gate: AccessRule, limits: Limits, watcher: Observer
    ) -> bool:
        self.gates.append(gate)
        self.names.append(offer.path)
        self.limits.append(limits)
        assert door.listens
        for step, detail in self.steps:
            watcher(step, detail)
        if self.error:
            raise self.error
        return self.loaded


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Served:
    """A server and a browser that only remember, on a machine with a screen, and a trace."""

    @contextmanager
    def reserved_port(number: int = 9001) -> Iterator[Door]:
        doors.append(Door(number))
        yield doors[-1]

    def start(page: str, failed: Callable[[], None]) -> None:
        assert doors[-1].listens
        made.pages.append(page)

    doors: list[Door] = []
    made = Served()
    monkeypatch.setattr(handing_over, "serve", made.serve)
    monkeypatch.setattr(port, "reserved_port", reserved_port)
    monkeypatch.setattr(browser, "start", start)
    for name in ("SSH_CONNECTION", "SSH_TTY", "BROWSER", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DISPLAY", ":0")
    (tmp_path / "t.json").write_bytes(TRACE)
    return made


def query_of(page: str) -> dict[str, str]:
    """The parameters in the address of the UI."""
    output = parse_qs(urlsplit(urlsplit(page).fragment.removeprefix("!")).query)
    return {name: value for name, (value,) in output.items()}


class TestOpen:
    def test_serves_the_file_and_opens_the_ui(self, tracelink: Run, served: Served) -> None:
        result = tracelink("open", "t.json")
        (page,), (gate,) = served.pages, served.gates
        assert result.exit_code == 0
        assert result.stdout.splitlines() == [
            "Serving t.json (85 B) on 127.0.0.1:9001, once, only to https://ui.perfetto.dev",
            f"Opening {page}",
            "The browser is fetching the file.",
            "Loaded. The file is no longer served.",
        ]
        assert page.startswith(f"{UI}/#!/?")
        assert query_of(page)["url"] == f"http://127.0.0.1:9001{gate.path}"
        assert (gate.origin, served.names, served.limits) == (UI, ["t.json"], [Limits()])

    def test_another_ui(self, tracelink: Run, served: Served) -> None:
        tracelink("open", "t.json", "--origin", "https://Perfetto.example.org/")
        assert served.gates[0].origin == "https://perfetto.example.org"
        assert served.pages[0].startswith("https://perfetto.example.org/#!/?")

    def test_the_timeout(self, tracelink: Run, served: Served) -> None:
        tracelink("open", "t.json", "--timeout", "20")
        assert served.limits == [Limits(idle=20)]

    def test_json_contains_the_address(self, tracelink: Run, served: Served) -> None:
        result = tracelink("open", "t.json", "--no-browser", "--json")
        document = json.loads(result.stdout)
        jsonschema.validate(document, schemas.load("open"))
        assert query_of(document.pop("url"))["url"] == f"http://127.0.0.1:9001{served.gates[0].path}"
        assert document == {
            "file": "t.json",
            "bytes": len(TRACE),
            "origin": UI,
            "listening": "127.0.0.1:9001",
            "findings": [],
        }
        assert result.stderr == ""

    def test_quiet_prints_nothing(self, tracelink: Run, served: Served) -> None:
        result = tracelink("open", "t.json", "-q")
        assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")

    def test_a_timeout_is_exit_code_1(self, tracelink: Run, served: Served) -> None:
        served.loaded, served.steps = False, ()
        result = tracelink("open", "t.json", "--timeout", "20")
        assert result.exit_code == 1
        assert result.stderr.startswith("tracelink: t.json: the UI did not fetch it within 20 s. ")

    def test_an_interrupt_is_one_line(self, tracelink: Run, served: Served) -> None:
        served.error = KeyboardInterrupt()
        result = tracelink("open", "t.json")
        assert (result.exit_code, result.stderr) == (130, "tracelink: interrupted.\n")

    def test_steps_and_refused_requests_are_reported(self, tracelink: Run, served: Served) -> None:
        served.steps = (
            (Step.OTHER_ORIGIN, "https://other\x1b.example"),
            (Step.OTHER_ORIGIN, ""),
            (Step.FETCHED, ""),
            (Step.BROKEN_OFF, ""),
        )
        result = tracelink("open", "t.json")
        assert "The browser stopped the download. Reload the page to fetch the file again." in result.stdout
        assert result.stderr.splitlines() == [
            "tracelink: refused a request from https://other\\x1b.example. To use your own UI, give its address with "
            "--origin.",
            "tracelink: refused a request without an origin. Open the address of the page above, not that of the file.",
        ]

    def test_a_file_that_is_too_large_for_browsers_is_a_warning(
        self, tracelink: Run, served: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        heavy = Finding(Severity.WARNING, "larger_than_a_browser_takes", "Too large. Take fewer --steps.")
        monkeypatch.setattr(handing_over, "memory_findings", lambda offer: [heavy])
        assert tracelink("open", "t.json").stdout.startswith("warning: Too large. Take fewer --steps.\n")
        (finding,) = json.loads(tracelink("open", "t.json", "--json").stdout)["findings"]
        assert finding["reason"] == "larger_than_a_browser_takes"


class TestWithoutABrowser:
    def test_the_address_is_printed(self, tracelink: Run, served: Served) -> None:
        result = tracelink("open", "t.json", "--no-browser")
        assert served.pages == []
        assert result.stdout.splitlines()[1] == "Open this address in a browser on this machine:"
        assert query_of(result.stdout.splitlines()[2])["referrer"] == "tracelink"

    def test_quiet_prints_only_the_address(self, tracelink: Run, served: Served) -> None:
        (line,) = tracelink("open", "t.json", "--no-browser", "-q").stdout.splitlines()
        assert line.startswith(UI)

    def test_over_ssh_the_port_forwarding_is_explained(
        self, tracelink: Run, served: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("DISPLAY")
        monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 5000 10.0.0.2 22")
        output = tracelink("open", "t.json").stdout
        assert served.pages == []
        assert f"  ssh -L 9001:127.0.0.1:9001 {socket.gethostname()}\n" in output
        assert UI in output

    def test_another_port_must_be_forwarded(self, tracelink: Run, served: Served) -> None:
        output = tracelink("open", "t.json", "--port", "9002").stdout
        assert served.pages == []
        assert "on 127.0.0.1:9002, once" in output
        assert f"The UI fetches only from {HOST}." in output
        assert "  ssh -L 9001:127.0.0.1:9002 " in output
        assert "url=http://127.0.0.1:9001/" in output

    def test_a_browser_that_does_not_start_is_reported(
        self, tracelink: Run, monkeypatch: pytest.MonkeyPatch, served: Served
    ) -> None:
        monkeypatch.setattr(browser, "start", lambda page, failed: failed())
        assert (
            "No browser could be started. Open https://ui.perfetto.dev/#!/?url="
            in tracelink("open", "t.json").stdout
        )

    def test_starting_a_browser_does_not_block_and_failures_call_back(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        failures: list[str] = []
        monkeypatch.setattr(webbrowser, "open", lambda page: page == "works")
        for page in ("works", "fails"):
            browser.start(page, lambda page=page: failures.append(page))  # type: ignore[misc]
        deadline = time.monotonic() + PATIENCE
        while not failures and time.monotonic() < deadline:
            time.sleep(0.01)
        assert failures == ["fails"]
        monkeypatch.setattr(webbrowser, "open", lambda page: time.sleep(2) or True)
        began = time.monotonic()
        browser.start("lasts", failures.clear)
        assert time.monotonic() - began < 1


class TestRefused:
    def test_other_files(self, tracelink: Run, served: Served, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").write_text("nothing to see")
        result = tracelink("open", "notes.txt")
        assert result.exit_code == 3
        assert "notes.txt: this is not a trace that Perfetto's UI shows" in result.stderr
        assert served.gates == []

    @pytest.mark.parametrize(
        "arguments",
        [
            (),
            ("gone.json",),
            ("t.json", "--origin", "*"),
            ("t.json", "--port", "0"),
            ("t.json", "--timeout", "0"),
        ],
    )
    def test_invalid_arguments(self, tracelink: Run, served: Served, arguments: tuple[str, ...]) -> None:
        assert tracelink("open", *arguments).exit_code == 2
        assert served.gates == []


class TestMergeOpen:
    FOLDER = str(samples.path("cpu_job"))

    def test_opens_the_output_with_the_slowest_rank_in_view(self, tracelink: Run, served: Served) -> None:
        result = tracelink("merge", self.FOLDER, "-o", "m.json.gz", "--open")
        assert result.exit_code == 0
        assert served.names == ["m.json.gz"]
        lines = result.stdout.splitlines()
        wrote = next(number for number, line in enumerate(lines) if line.startswith("Wrote m.json.gz"))
        assert lines[wrote + 1].startswith("Serving m.json.gz (")
        commands = json.loads(query_of(served.pages[0])["startupCommands"])
        assert [command["args"][0].split()[0] for command in commands] == [
            "(?:^|·",
            "^rank",
            "^rank",
            "^group",
        ]

    def test_json_is_the_document_of_merge_and_that_of_open(self, tracelink: Run, served: Served) -> None:
        text = tracelink("merge", self.FOLDER, "-o", "m.json", "--open", "--json").stdout
        merged, end = json.JSONDecoder().raw_decode(text)
        jsonschema.validate(merged, schemas.load("merge"))
        jsonschema.validate(json.loads(text[end:]), schemas.load("open"))

    def test_has_the_exit_code_of_the_merge(
        self, tracelink: Run, served: Served, job: Job, tmp_path: Path
    ) -> None:
        (tmp_path / "merged.json").write_bytes(TRACE)
        job.findings = [Finding(Severity.ERROR, "unreadable", "empty.")]
        assert tracelink("merge", "traces/", "--open").exit_code == 1
        assert served.names == ["merged.json"]

    def test_opens_nothing_if_nothing_was_read(self, tracelink: Run, served: Served, job: Job) -> None:
        job.error = UnreadableError("the file is empty")
        assert tracelink("merge", "traces/", "--open").exit_code == 3
        assert served.names == []

    @pytest.mark.parametrize("arguments", [("-o", "-"), ("--to", "chakra"), ("--to", "chakra-json")])
    def test_outputs_that_the_ui_cannot_open_are_refused_before_anything_is_read(
        self, tracelink: Run, served: Served, job: Job, arguments: tuple[str, ...]
    ) -> None:
        result = tracelink("merge", "traces/", "--open", *arguments)
        assert result.exit_code == 2
        assert job.arguments == {}

    def test_a_port_in_use_is_reported_before_anything_is_read(
        self, tracelink: Run, job: Job, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as other:
            taken = other.getsockname()[1]
            real = port.reserved_port
            monkeypatch.setattr(port, "reserved_port", lambda: real(taken))
            result = tracelink("merge", "traces/", "--open")
        assert result.exit_code == 1
        assert f"127.0.0.1:{taken} is taken by" in result.stderr
        assert job.arguments == {}


@pytest.mark.usefixtures("heeded_signals")
class TestAsAProcess:
    def test_exits_when_the_file_is_fetched(self, tmp_path: Path) -> None:
        with opened(tmp_path) as (process, document):
            path = urlsplit(query_of(document["url"])["url"]).path
            connection = http.client.HTTPConnection(document["listening"], timeout=PATIENCE)
            connection.request("GET", path, headers={"Host": HOST, "Origin": UI})
            assert connection.getresponse().read() == TRACE
            connection.close()
            stdout, stderr = process.communicate(timeout=PATIENCE)
        assert (process.returncode, stdout, stderr) == (0, "", "")

    @pytest.mark.parametrize(
        ("signal_number", "code", "message"),
        [
            (signal.SIGINT, 130, "tracelink: interrupted.\n"),
            (signal.SIGTERM, 143, "tracelink: terminated.\n"),
        ],
    )
    def test_signals_end_it_with_one_line_at_most(
        self, tmp_path: Path, signal_number: signal.Signals, code: int, message: str
    ) -> None:
        with opened(tmp_path) as (process, _):
            process.send_signal(signal_number)
            _, stderr = process.communicate(timeout=PATIENCE)
        assert (process.returncode, stderr) == (code, message)

    def test_an_interrupt_during_the_download_is_one_line(self, tmp_path: Path) -> None:
        with opened(tmp_path) as (process, document):
            path = urlsplit(query_of(document["url"])["url"]).path
            connection = http.client.HTTPConnection(document["listening"], timeout=PATIENCE)
            connection.request("GET", path, headers={"Host": HOST, "Origin": UI})
            connection.sock.recv(1)
            process.send_signal(signal.SIGINT)
            _, stderr = process.communicate(timeout=PATIENCE)
            connection.close()
        assert (process.returncode, stderr) == (130, "tracelink: interrupted.\n")

    def test_the_timeout_ends_it(self, tmp_path: Path) -> None:
        with opened(tmp_path, "--timeout", "1") as (process, _):
            _, stderr = process.communicate(timeout=PATIENCE)
        assert process.returncode == 1
        assert "the UI did not fetch it within 1 s." in stderr


@contextmanager
def opened(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """The command on a port that nobody uses, and what it printed first."""
    trace = folder / "t.json"
    trace.write_bytes(TRACE)
    with socket.create_server(("127.0.0.1", 0)) as free:
        number = free.getsockname()[1]
    process = subprocess.Popen(
        [*COMMAND, "open", str(trace), "--port", str(number), "--no-browser", "--json", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
    )
    try:
        yield process, first_document(process)
    finally:
        process.kill()
        process.wait(PATIENCE)


def first_document(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    lines = []
    while not lines or lines[-1] != "}\n":
        lines.append(process.stdout.readline())
        assert lines[-1], process.stderr and process.stderr.read()
    document: dict[str, Any] = json.loads("".join(lines))
    return document
