"""Addresses: of the UI, of the file that it is to fetch, and both in one for a browser."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from urllib.parse import quote

from tracelink.errors import UsageError

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
