"""The user's browser: whether there is one here, and starting it."""

from __future__ import annotations

import os
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Mapping

from tracelink.handover.address import LOOPBACK, PORT

DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
REMOTE = ("SSH_CONNECTION", "SSH_TTY")
WITHOUT_DISPLAY = ("darwin", "win32")
"""Systems that show windows without saying where."""


def is_here(environment: Mapping[str, str] = os.environ, system: str = sys.platform) -> bool:
    """Whether a browser that is started here can be seen."""
    if any(environment.get(name) for name in DISPLAYS):
        return True
    return system in WITHOUT_DISPLAY and not is_remote(environment)


def is_remote(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the user came here over SSH."""
    return any(environment.get(name) for name in REMOTE)


def forwarding(port: int) -> str:
    """What to type where the browser is, so that it reaches a port of this machine."""
    return f"ssh -L {PORT}:{LOOPBACK}:{port} {socket.gethostname()}"


def start(page: str, failed: Callable[[], None]) -> None:
    """Opens a page; `failed` is called where no browser starts. Some last as long as this call: nobody waits."""

    def run() -> None:
        if not webbrowser.open(page):
            failed()

    threading.Thread(target=run, name="browser", daemon=True).start()
