"""Serves one file once to Perfetto's UI, on this machine alone: addresses, access rule, signals, server, port."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from urllib.parse import quote

from msgspec import Struct

from tracelink._io.system import DeferredSignals, deferred_signals, read_at, undelivered
from tracelink._model.errors import TraceError, UsageError
from tracelink._open.trace import OpenTrace

# Addresses: of the UI, of the file, and both in one for a browser.


UI = "https://ui.perfetto.dev"
LOOPBACK = "127.0.0.1"
PORT = 9001
"""The only port of this machine that the UI's content security policy allows, under the name above."""

HOST = f"{LOOPBACK}:{PORT}"
"""The host that the UI requests, also if another port is forwarded to this one."""

ORIGIN = re.compile(r"https?://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::\d{1,5})?", re.ASCII)
USUAL_PORTS = {"https": ":443", "http": ":80"}
REFERRER = "tracelink"
TOKEN_BYTES = 32
"""Random bytes in a path."""


def origin_of(text: str) -> str:
    """An origin as browsers write it; raises `UsageError` for anything else."""
    origin = text.strip().lower().removesuffix("/")
    if not ORIGIN.fullmatch(origin):
        raise UsageError(
            f"{text!r} is not the origin of a web page",
            advice="Write it without a path, such as --origin " + UI,
        )
    return origin.removesuffix(USUAL_PORTS[origin.partition(":")[0]])


def secret_path(name: str) -> str:
    """An unguessable path, for a name in characters that need no escape."""
    return f"/{secrets.token_urlsafe(TOKEN_BYTES)}/{name}"


def ui_address(origin: str, path: str, view: Mapping[str, str]) -> str:
    """The address that makes the UI of `origin` fetch `path` from this machine, with this startup view."""
    parameters = "".join(f"&{name}={quote(value, safe='')}" for name, value in view.items())
    return f"{origin}/#!/?url=http://{HOST}{path}&referrer={REFERRER}{parameters}"


# The head of an HTTP request. Parsing is strict: a request that no browser writes is not answered.


HEAD_END = b"\r\n\r\n"
MAX_HEAD = 8 << 10
"""Most bytes of a head; that of a browser has about 1,000."""

MAX_HEADERS = 64
FIRST_LINE = re.compile(r"([A-Z]{1,16}) (/[!-~]*) HTTP/1\.[01]", re.ASCII)
HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t -~\x80-\xff]*)")


class Request(Struct, frozen=True):
    """A parsed request."""

    method: str
    target: str
    headers: Mapping[str, str]
    """By lower-case names."""

    @classmethod
    def parse(cls, head: bytes) -> Request | None:
        """The request with this head; None if it is invalid."""
        first, *lines = head.removesuffix(HEAD_END).decode("latin-1").split("\r\n")
        match = FIRST_LINE.fullmatch(first)
        if not match or len(lines) > MAX_HEADERS:
            return None
        headers: dict[str, str] = {}
        for line in lines:
            header = HEADER.fullmatch(line)
            if not header or header[1].lower() in headers:
                return None
            headers[header[1].lower()] = header[2].strip(" \t")
        return cls(match[1], match[2], headers)


# Access: the file for the UI alone, and the same empty answer for all other requests.


class Decision(StrEnum):
    """How to answer a request."""

    FILE = "file"
    PREFLIGHT = "preflight"
    REFUSED = "refused"
    OTHER_ORIGIN = "other origin"
    """Refused too, but the client knows the path: the user opened another UI."""


REFUSAL = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
"""The same for every reason, so that it reveals nothing."""


class AccessRule(Struct, frozen=True):
    """The only path, and the only origin that may fetch it."""

    path: str
    origin: str

    def decide(self, request: Request) -> Decision:
        """How to answer a request. Checking the Host rejects pages with a name of their own for this machine."""
        headers = request.headers
        path_matches = secrets.compare_digest(request.target.encode("latin-1"), self.path.encode())
        if not path_matches or headers.get("host") != HOST or request.method not in ("GET", "OPTIONS"):
            return Decision.REFUSED
        if headers.get("origin") != self.origin:
            return Decision.OTHER_ORIGIN
        if request.method == "GET":
            return Decision.FILE
        requested = headers.get("access-control-request-method")
        return Decision.PREFLIGHT if requested == "GET" else Decision.REFUSED

    def head_of_file(self, size: int) -> bytes:
        """The head previous the file. Ranges are not supported: a request for one gets the whole file."""
        return self._head(
            "200 OK",
            "Content-Type: application/octet-stream",
            f"Content-Length: {size}",
            "Accept-Ranges: none",
        )

    def preflight(self, request: Request) -> bytes:
        """The answer to a preflight request, also of a public page that wants to reach this machine."""
        private = request.headers.get("access-control-request-private-network") == "true"
        return self._head(
            "204 No Content",
            "Access-Control-Allow-Methods: GET",
            *(["Access-Control-Allow-Private-Network: true"] if private else []),
        )

    def _head(self, status: str, *headers: str) -> bytes:
        lines = (
            f"HTTP/1.1 {status}",
            *headers,
            f"Access-Control-Allow-Origin: {self.origin}",
            "Vary: Origin",
            "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff",
            "Connection: close",
        )
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


# The server. An invalid, a slow or a second request gets nothing.


CHUNK = 1 << 20
LEFTOVERS = 64 << 10
"""Bytes that are read at a time until the browser closes the connection."""


class Step(StrEnum):
    """What happens, for the observer."""

    FETCHED = "fetched"
    """An allowed request for the file."""
    BROKEN_OFF = "broken off"
    """The connection closed previous the browser had everything; it can fetch the file again."""
    OTHER_ORIGIN = "other origin"
    """A page of another origin knows the path; the detail is that origin."""


Observer = Callable[[Step, str], None]


class Limits(Struct, frozen=True):
    """Seconds to wait, and the number of simultaneous connections."""

    idle: float = 300
    """For the first request."""
    head: float = 10
    """For a whole request, and for the end of a connection."""
    chunk: float = 60
    """For a megabyte of the file, and for the end of the last one."""
    connections: int = 16


def serve(
    listener: socket.socket, trace: OpenTrace, access: AccessRule, limits: Limits, observer: Observer
) -> bool:
    """Serves until the file was fetched; False if no allowed request arrived in time."""
    with deferred_signals() as signals:
        return asyncio.run(_Server(trace, access, limits, observer).run(listener, signals))


class _Server:
    def __init__(self, trace: OpenTrace, access: AccessRule, limits: Limits, observer: Observer) -> None:
        self.trace = trace
        self.access = access
        self.limits = limits
        self.observer = observer
        self.sending = False
        self.tasks: set[asyncio.Task[None]] = set()

    async def run(self, listener: socket.socket, signals: DeferredSignals) -> bool:
        """Ends when the file was fetched, at a timeout, at a signal, or with an error."""
        self.loop = asyncio.get_running_loop()
        self.loaded: asyncio.Future[None] = self.loop.create_future()
        self.last_request = self.loop.time()
        server = await asyncio.start_server(self._connected, sock=listener, limit=MAX_HEAD)
        signals.on_signal(lambda: self.loop.call_soon_threadsafe(self._end, None))
        try:
            return await self._until_loaded()
        finally:
            signals.ignore()
            server.close()
            for task in self.tasks:
                task.cancel()
            await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _until_loaded(self) -> bool:
        """Time does not count while the file is sent; refused requests do not extend it."""
        while not self.loaded.done():
            left = self.last_request + self.limits.idle - self.loop.time()
            if left <= 0 and not self.sending:
                return False
            await asyncio.wait([self.loaded], timeout=left if left > 0 else self.limits.idle)
        self.loaded.result()
        return True

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self.tasks) >= self.limits.connections:
            writer.transport.abort()
            return
        self.tasks.add(task)
        try:
            await self._handle(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
            writer.transport.abort()  # asyncio would report a cancelled task on the terminal
        finally:
            self.tasks.discard(task)
            writer.close()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(self.limits.head):
            request = Request.parse(await reader.readuntil(HEAD_END))
        if request is None:
            return
        decision = self.access.decide(request)
        if decision is Decision.OTHER_ORIGIN:
            self._report(Step.OTHER_ORIGIN, request.headers.get("origin", ""))
        if decision is Decision.FILE and not self.sending and not self.loaded.done():
            await self._send(reader, writer)
            return
        if decision is Decision.PREFLIGHT:
            self.last_request = self.loop.time()
        writer.write(self.access.preflight(request) if decision is Decision.PREFLIGHT else REFUSAL)
        await _hang_up(reader, writer, self.limits.head)

    async def _send(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Sends the file; no other request gets it meanwhile. If the connection breaks, it can be fetched again."""
        self.sending = True
        self._report(Step.FETCHED)
        try:
            await self._send_all(writer)
            await self._delivered(reader, writer)
            self._end(None)
        except OSError:
            self._report(Step.BROKEN_OFF)
            raise
        finally:
            self.sending = False
            self.last_request = self.loop.time()

    async def _send_all(self, writer: asyncio.StreamWriter) -> None:
        writer.write(self.access.head_of_file(self.trace.size))
        await writer.drain()
        at = 0
        while at < self.trace.size:
            chunk = read_at(self.trace.file.fileno(), min(CHUNK, self.trace.size - at), at)
            if not chunk:
                problem = "the file became shorter while it was sent"
                self._end(TraceError(problem, source=self.trace.path, advice="Open it again."))
                raise ConnectionAbortedError(problem)
            if writer.transport.is_closing():
                raise ConnectionAbortedError("the browser hung up between two chunks")
            async with asyncio.timeout(self.limits.chunk):
                writer.write(chunk)
                await writer.drain()
            at += len(chunk)

    async def _delivered(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Waits until the browser closes the connection; one that does not may still have received everything."""
        try:
            await _hang_up(reader, writer, self.limits.chunk)
        except TimeoutError:
            if undelivered(writer.get_extra_info("socket")):
                raise

    def _report(self, step: Step, detail: str = "") -> None:
        """Reports a step; if the observer can no longer be reached, the server ends."""
        try:
            self.observer(step, detail)
        except OSError as error:
            self._end(error)

    def _end(self, error: Exception | None) -> None:
        if self.loaded.done():
            return
        if error:
            self.loaded.set_exception(error)
        else:
            self.loaded.set_result(None)


async def _hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float) -> None:
    """Ends the answer, and waits until the other end closes."""
    writer.write_eof()
    async with asyncio.timeout(seconds):
        while await reader.read(LEFTOVERS):
            pass


# The port, for this machine alone.


REUSE = getattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_REUSEADDR)
"""Lets a port be used again at once; on Windows, where that is the default, keeps other programs from it."""

PROC = Path("/proc")
LISTENING = "0A"
INODE = 9
"""Column of inode numbers in the system's tables of sockets."""


@contextmanager
def reserved_port(port: int = PORT) -> Iterator[socket.socket]:
    """A socket on the loopback address; no client can connect until it listens."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, REUSE, 1)
        try:
            listener.bind((LOOPBACK, port))
        except OSError as error:
            raise _refused(port, error) from error
        yield listener


def listen(listener: socket.socket) -> None:
    """Starts listening; raises if another process that reserved_port the same port was faster."""
    try:
        listener.listen()
    except OSError as error:
        raise _refused(listener.getsockname()[1], error) from error


def _refused(port: int, error: OSError) -> TraceError:
    address = f"{LOOPBACK}:{port}"
    if error.errno != errno.EADDRINUSE:
        return TraceError(f"{address} cannot be used: {(error.strerror or str(error)).lower()}")
    program = port_holder(port)
    stop = "it" if program else "the program that uses it, such as another tracelink or a trace_processor,"
    return TraceError(
        f"{address} is taken" + (f" by {program}" if program else ""),
        advice=f"Stop {stop} and try again: Perfetto's UI fetches only from port {PORT}.",
    )


def port_holder(port: int, proc: Path = PROC) -> str:
    """The program and process that listen on a port, if the system reports them; else empty."""
    sockets = {f"socket:[{inode}]" for inode in _listening(port, proc)}
    if not sockets:
        return ""
    for descriptor in proc.glob("[0-9]*/fd/*"):
        with suppress(OSError):  # processes of other users, and those that end meanwhile
            if os.readlink(descriptor) in sockets:
                process = descriptor.parent.parent
                name = (process / "comm").read_text("utf-8", "replace")
                return f"{name.strip()} (process {process.name})"
    return ""


def _listening(port: int, proc: Path) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (proc / "net" / table).read_text("ascii").splitlines()[1:]:
                columns = line.split()
                if columns[3] == LISTENING and columns[1].endswith(f":{port:04X}"):
                    yield columns[INODE]
