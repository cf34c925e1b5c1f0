"""The port on which a file is handed over, for this machine alone."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tracelink.errors import TraceError
from tracelink.handover.address import LOOPBACK, PORT

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
