"""Serves one file once to the UI."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import re
import secrets
import signal
import socket
import sys
import termios
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import FrameType
from urllib.parse import quote

from tracelink.errors import TraceError, UsageError
from tracelink.open.offer import Offer

# Addresses: of the UI, of the file that it is to fetch, and both in one for a browser.


UI = "https://ui.perfetto.dev"
LOOPBACK = "127.0.0.1"
PORT = 9001
"""The one port of this machine that the UI's content security policy lets through, under the one name above."""

HOST = f"{LOOPBACK}:{PORT}"
"""Whom the UI asks, also where another port is forwarded to this one."""

ORIGIN = re.compile(r"https?://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::\d{1,5})?", re.ASCII)
USUAL_PORTS = {"https": ":443", "http": ":80"}
REFERRER = "tracelink"
UNGUESSABLE = 32
"""Bytes of chance in a path."""


def origin_of(text: str) -> str:
    """An origin as browsers write it; raises `UsageError` for what is none."""
    origin = text.strip().lower().removesuffix("/")
    if not ORIGIN.fullmatch(origin):
        raise UsageError(
            f"{text!r} is not the origin of a web page",
            advice="Write it without a path, such as --origin " + UI,
        )
    return origin.removesuffix(USUAL_PORTS[origin.partition(":")[0]])


def path_for(name: str) -> str:
    """A path that nobody guesses, for a name of letters that need no escape."""
    return f"/{secrets.token_urlsafe(UNGUESSABLE)}/{name}"


def page_for(origin: str, path: str, view: Mapping[str, str]) -> str:
    """The address that makes the UI of `origin` fetch `path` from this machine, and show it so."""
    shown = "".join(f"&{name}={quote(value, safe='')}" for name, value in view.items())
    return f"{origin}/#!/?url=http://{HOST}{path}&referrer={REFERRER}{shown}"


# The head of an HTTP request, read strictly: whoever writes it otherwise is no browser.


END = b"\r\n\r\n"
LONGEST = 8 << 10
"""Bytes of a head; that of a browser has about 1,000."""

MOST_HEADERS = 64
FIRST_LINE = re.compile(r"([A-Z]{1,16}) (/[!-~]*) HTTP/1\.[01]", re.ASCII)
HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t -~\x80-\xff]*)")


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for."""

    method: str
    target: str
    headers: Mapping[str, str]
    """By names in small letters."""

    @classmethod
    def parse(cls, head: bytes) -> Request | None:
        """The request that begins with `head`; None where it is none."""
        first, *lines = head.removesuffix(END).decode("latin-1").split("\r\n")
        asked = FIRST_LINE.fullmatch(first)
        if not asked or len(lines) > MOST_HEADERS:
            return None
        headers: dict[str, str] = {}
        for line in lines:
            header = HEADER.fullmatch(line)
            if not header or header[1].lower() in headers:
                return None
            headers[header[1].lower()] = header[2].strip(" \t")
        return cls(asked[1], asked[2], headers)


# Who gets what: the file for the UI alone, and for everybody else an answer that says nothing.


class Verdict(StrEnum):
    """What to do about a request."""

    FILE = "file"
    PREFLIGHT = "preflight"
    REFUSED = "refused"
    OTHER_ORIGIN = "other origin"
    """Refused as well, but whoever asks knows the path: the user named another UI."""


REFUSAL = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
"""The same for every reason, so that it tells nothing."""


@dataclass(frozen=True, slots=True)
class Gate:
    """The one path that there is, and the one origin that may ask for it."""

    path: str
    origin: str

    def verdict(self, request: Request) -> Verdict:
        """What a request gets. A page with a name of its own for this machine is refused by its Host."""
        headers = request.headers
        known = secrets.compare_digest(request.target.encode("latin-1"), self.path.encode())
        if not known or headers.get("host") != HOST or request.method not in ("GET", "OPTIONS"):
            return Verdict.REFUSED
        if headers.get("origin") != self.origin:
            return Verdict.OTHER_ORIGIN
        if request.method == "GET":
            return Verdict.FILE
        wanted = headers.get("access-control-request-method")
        return Verdict.PREFLIGHT if wanted == "GET" else Verdict.REFUSED

    def head_of_file(self, size: int) -> bytes:
        """What stands before the file. Ranges are not offered, so whoever asks for one gets the whole."""
        return self._head(
            "200 OK",
            "Content-Type: application/octet-stream",
            f"Content-Length: {size}",
            "Accept-Ranges: none",
        )

    def preflight(self, request: Request) -> bytes:
        """Leave to ask, also from a public page for something on this machine."""
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


# Signals that ask for the end of what runs in a loop.


def _nobody() -> None:
    """There is no loop to be told, yet or any more."""


@dataclass(slots=True)
class Asked:
    """What was asked for so far."""

    signals: list[int] = field(default_factory=list)
    tell: Callable[[], object] = _nobody
    """Called at each signal."""

    def at_each(self, tell: Callable[[], object]) -> None:
        """Tells also of what came before."""
        self.tell = tell
        if self.signals:
            tell()

    def no_more(self) -> None:
        """Nobody is told from now on."""
        self.tell = _nobody


@contextmanager
def kept() -> Iterator[Asked]:
    """Keeps signals until the end, and does then what they do: raised anywhere they would leave half a loop.

    Blocking them is not enough, for threads of libraries take them too.
    """
    asked = Asked()

    def keep(number: int, frame: FrameType | None) -> None:
        asked.signals.append(number)
        asked.tell()

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    if threading.current_thread() is not threading.main_thread():
        before = {}
    heeded = {number: old for number, old in before.items() if old not in (signal.SIG_IGN, None)}
    for number in heeded:
        signal.signal(number, keep)
    try:
        yield asked
    finally:
        for number, old in heeded.items():
            signal.signal(number, old)
    for asked_for in asked.signals[:1]:
        signal.raise_signal(asked_for)


# Serves one file once. Whoever asks wrongly, slowly or a second time gets nothing.


CHUNK = 1 << 20
LEFTOVERS = 64 << 10
"""Bytes that are read at a time to learn when the browser has hung up."""


class Step(StrEnum):
    """What happens, for those who watch."""

    FETCHED = "fetched"
    """The browser asks for the file, with leave to get it."""
    BROKEN_OFF = "broken off"
    """The browser went away before it had everything; it may ask again."""
    OTHER_ORIGIN = "other origin"
    """A page of another origin knows the path: what it says it is comes with this."""


Watcher = Callable[[Step, str], None]


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds to wait, and how many may ask at once."""

    unasked: float = 300
    """Until the UI asks."""
    head: float = 10
    """For a whole request, and for the end of a connection."""
    chunk: float = 60
    """For a megabyte of the file, and for the end of the last one."""
    connections: int = 16


def serve(door: socket.socket, offer: Offer, gate: Gate, limits: Limits, watcher: Watcher) -> bool:
    """Serves until the file is fetched; False where nobody asked for it in time."""
    with kept() as asked:
        return asyncio.run(_Handover(offer, gate, limits, watcher).run(door, asked))


class _Handover:
    def __init__(self, offer: Offer, gate: Gate, limits: Limits, watcher: Watcher) -> None:
        self.offer = offer
        self.gate = gate
        self.limits = limits
        self.watcher = watcher
        self.sending = False
        self.talks: set[asyncio.Task[None]] = set()

    async def run(self, door: socket.socket, asked: Asked) -> bool:
        """Serves; ends with the file fetched, with nobody asking, when asked to, or with an error."""
        self.loop = asyncio.get_running_loop()
        self.loaded: asyncio.Future[None] = self.loop.create_future()
        self.asked_at = self.loop.time()
        server = await asyncio.start_server(self._connected, sock=door, limit=LONGEST)
        asked.at_each(lambda: self.loop.call_soon_threadsafe(self._end, None))
        try:
            return await self._until_loaded()
        finally:
            asked.no_more()
            server.close()
            for talk in self.talks:
                talk.cancel()
            await asyncio.gather(*self.talks, return_exceptions=True)

    async def _until_loaded(self) -> bool:
        """Time does not run while the file is sent, and is not won by who is refused."""
        while not self.loaded.done():
            left = self.asked_at + self.limits.unasked - self.loop.time()
            if left <= 0 and not self.sending:
                return False
            await asyncio.wait([self.loaded], timeout=left if left > 0 else self.limits.unasked)
        self.loaded.result()
        return True

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = asyncio.current_task()
        assert talk is not None
        if len(self.talks) >= self.limits.connections:
            writer.transport.abort()
            return
        self.talks.add(talk)
        try:
            await self._talk(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
            writer.transport.abort()  # one that ends as cancelled is told of on the terminal
        finally:
            self.talks.discard(talk)
            writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(self.limits.head):
            request = Request.parse(await reader.readuntil(END))
        if request is None:
            return
        verdict = self.gate.verdict(request)
        if verdict is Verdict.OTHER_ORIGIN:
            self._tell(Step.OTHER_ORIGIN, request.headers.get("origin", ""))
        if verdict is Verdict.FILE and not self.sending and not self.loaded.done():
            await self._send(reader, writer)
            return
        if verdict is Verdict.PREFLIGHT:
            self.asked_at = self.loop.time()
        writer.write(self.gate.preflight(request) if verdict is Verdict.PREFLIGHT else REFUSAL)
        await _hang_up(reader, writer, self.limits.head)

    async def _send(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Sends the file to the one who holds the claim on it, and gives the claim back if that breaks off."""
        self.sending = True
        self._tell(Step.FETCHED)
        try:
            await self._send_all(writer)
            await self._delivered(reader, writer)
            self._end(None)
        except OSError:
            self._tell(Step.BROKEN_OFF)
            raise
        finally:
            self.sending = False
            self.asked_at = self.loop.time()

    async def _send_all(self, writer: asyncio.StreamWriter) -> None:
        writer.write(self.gate.head_of_file(self.offer.size))
        await writer.drain()
        for at in range(0, self.offer.size, CHUNK):
            count = min(CHUNK, self.offer.size - at)
            async with asyncio.timeout(self.limits.chunk):
                sent = await self.loop.sendfile(writer.transport, self.offer.file, at, count)
            if sent < count:
                problem = "the file became shorter while it was sent"
                self._end(TraceError(problem, source=self.offer.path, advice="Open it again."))
                raise ConnectionAbortedError(problem)

    async def _delivered(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Waits until the browser hangs up; one that does not do so may still have everything."""
        try:
            await _hang_up(reader, writer, self.limits.chunk)
        except TimeoutError:
            if _undelivered(writer):
                raise

    def _tell(self, step: Step, detail: str = "") -> None:
        """Says what happens; where nobody can hear it any more, everything ends."""
        try:
            self.watcher(step, detail)
        except OSError as error:
            self._end(error)

    def _end(self, error: Exception | None) -> None:
        if self.loaded.done():
            return
        if error:
            self.loaded.set_exception(error)
        else:
            self.loaded.set_result(None)


def _undelivered(writer: asyncio.StreamWriter) -> int:
    """Bytes that the other end's system has not confirmed."""
    answer = fcntl.ioctl(writer.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
    return int.from_bytes(answer, sys.byteorder)


async def _hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, patience: float) -> None:
    """Waits until the other end has everything and closes, which it is told to do."""
    writer.write_eof()
    async with asyncio.timeout(patience):
        while await reader.read(LEFTOVERS):
            pass


# The port on which a file is handed over, for this machine alone.


PROC = Path("/proc")
LISTENING = "0A"
INODE = 9
"""Column of the sockets' numbers in the system's tables."""


@contextmanager
def reserved(port: int = PORT) -> Iterator[socket.socket]:
    """A socket on the loopback address that nobody can connect to until it listens."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as door:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            door.bind((LOOPBACK, port))
        except OSError as error:
            raise _refused(port, error) from error
        yield door


def listen(door: socket.socket) -> None:
    """Lets the browser in; raises where somebody else who reserved the same port was faster."""
    try:
        door.listen()
    except OSError as error:
        raise _refused(door.getsockname()[1], error) from error


def _refused(port: int, error: OSError) -> TraceError:
    place = f"{LOOPBACK}:{port}"
    if error.errno != errno.EADDRINUSE:
        return TraceError(f"{place} cannot be used: {(error.strerror or str(error)).lower()}")
    who = holder(port)
    return TraceError(
        f"{place} is taken" + (f" by {who}" if who else ""),
        advice=f"Stop {'it' if who else 'who uses it, such as another tracelink or a trace_processor,'} and try "
        f"again: Perfetto's UI fetches from no other port than {PORT}.",
    )


def holder(port: int, proc: Path = PROC) -> str:
    """The program that listens on a port and its process, as far as the system tells; else empty."""
    sockets = {f"socket:[{inode}]" for inode in _listening(port, proc)}
    if not sockets:
        return ""
    for descriptor in proc.glob("[0-9]*/fd/*"):
        with suppress(OSError):  # processes of others, and those that end meanwhile
            if os.readlink(descriptor) in sockets:
                process = descriptor.parent.parent
                return f"{(process / 'comm').read_text().strip()} (process {process.name})"
    return ""


def _listening(port: int, proc: Path) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (proc / "net" / table).read_text().splitlines()[1:]:
                columns = line.split()
                if columns[3] == LISTENING and columns[1].endswith(f":{port:04X}"):
                    yield columns[INODE]
