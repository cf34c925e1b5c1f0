"""A file that is being served, and clients that request it byte by byte, as a browser would or would not."""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tracelink._open.server import HOST, UI, AccessRule, Limits, Step, reserved_port, serve
from tracelink._open.trace import OpenTrace

TRACE = b'{"traceEvents": [{"ph": "X", "name": "step", "ts": 1, "dur": 2, "pid": 1, "tid": 1}]}'
PATH = "/the-token/trace.json"
PATIENCE = 20
PATIENT = Limits(idle=PATIENCE, head=PATIENCE, chunk=PATIENCE)
QUICK = Limits(idle=PATIENCE, head=0.5, chunk=1)


@dataclass(frozen=True)
class Answer:
    """The answer until the end of the connection."""

    raw: bytes

    @property
    def status(self) -> int:
        """0 without an answer."""
        return int(self.raw.split(b" ", 2)[1]) if self.raw else 0

    @property
    def headers(self) -> dict[str, str]:
        head = self.raw.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
        return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head)}

    @property
    def body(self) -> bytes:
        return self.raw.partition(b"\r\n\r\n")[2]


@dataclass
class Handover:
    """A server in a thread of its own, on a port that the system chooses."""

    trace: Path
    limits: Limits = PATIENT
    steps: list[tuple[Step, str]] = field(default_factory=list)
    loaded: bool | None = None
    error: Exception | None = None

    def __enter__(self) -> Handover:
        self._opened = OpenTrace.of(self.trace)
        self._reserved = reserved_port(0)
        self._listener = self._reserved.__enter__()
        self._listener.listen()
        self.address = self._listener.getsockname()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        return self

    def _serve(self) -> None:
        try:
            with self._opened:
                rule = AccessRule(PATH, UI)
                self.loaded = serve(self._listener, self._opened, rule, self.limits, self._observe)
        except Exception as error:  # noqa: BLE001  shown to the test in place of the result
            self.error = error

    def _observe(self, step: Step, detail: str) -> None:
        self.steps.append((step, detail))

    def __exit__(self, *_: object) -> None:
        if self._thread.is_alive():
            with suppress(OSError):  # it may be about to end
                self.get()
        self.end()

    def end(self) -> bool | None:
        """Waits until the server ends by itself; returns its result."""
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        self._reserved.__exit__(None, None, None)
        return self.loaded

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=PATIENCE)

    def send(self, request: bytes) -> Answer:
        with self.connect() as connection:
            connection.sendall(request)
            return Answer(received(connection))

    def get(self, path: str = PATH, method: str = "GET", **changed: str | None) -> Answer:
        """Requests as the UI does, except for what is changed; None omits a header."""
        return self.send(request(path, method, **changed))


def request(path: str = PATH, method: str = "GET", **changed: str | None) -> bytes:
    headers: Mapping[str, str | None] = {"Host": HOST, "Origin": UI, "Accept": "*/*"} | {
        name.replace("_", "-"): value for name, value in changed.items()
    }
    lines = [f"{name}: {value}" for name, value in headers.items() if value is not None]
    return "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode("latin-1")


def received(connection: socket.socket) -> bytes:
    """Everything until the other end closes the connection."""
    parts = []
    try:
        while part := connection.recv(1 << 16):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)
