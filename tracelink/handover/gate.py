"""Who gets what: the file for the UI alone, and for everybody else an answer that says nothing."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from enum import StrEnum

from tracelink.handover.address import HOST
from tracelink.handover.request import Request


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
