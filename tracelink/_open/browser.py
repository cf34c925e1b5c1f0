"""The user's browser: whether one can be shown, and starting it."""

from __future__ import annotations

import os
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Mapping

from tracelink._open.server import LOOPBACK, PORT

DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
REMOTE = ("SSH_CONNECTION", "SSH_TTY")
WITHOUT_DISPLAY = ("darwin", "win32")
"""Systems that show windows without such a variable."""


def has_display(environment: Mapping[str, str] = os.environ, system: str = sys.platform) -> bool:
    """True if a browser that is started here would be visible."""
    if any(environment.get(name) for name in DISPLAYS):
        return True
    return system in WITHOUT_DISPLAY and not is_remote(environment)


def is_remote(environment: Mapping[str, str] = os.environ) -> bool:
    """True if the user is connected over SSH."""
    return any(environment.get(name) for name in REMOTE)


def forwarding_command(port: int) -> str:
    """The command to run where the browser is, so that it reaches a port of this machine."""
    return f"ssh -L {PORT}:{LOOPBACK}:{port} {socket.gethostname()}"


def start(page: str, failed: Callable[[], None]) -> None:
    """Opens a page in a thread, because some browsers block until they end; calls `failed` if none starts."""

    def run() -> None:
        if not webbrowser.open(page):
            failed()

    threading.Thread(target=run, name="browser", daemon=True).start()
