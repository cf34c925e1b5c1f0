"""Serves one file once. Whoever asks wrongly, slowly or a second time gets nothing."""

from __future__ import annotations

import asyncio
import fcntl
import socket
import sys
import termios
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from tracelink.errors import TraceError
from tracelink.handover.gate import REFUSAL, Gate, Verdict
from tracelink.handover.offer import Offer
from tracelink.handover.request import END, LONGEST, Request
from tracelink.handover.signals import Asked, kept

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
