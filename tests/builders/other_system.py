"""Runs commands as a system without fork, fcntl and /proc would: a simulation of macOS and Windows on Linux.

python -X warn_default_encoding other_system.py NAME FOLDER < commands.json

Each command is a list of words. Its exit code and output go to FOLDER/<number>.txt. The system NAME is "linux" (nothing
is taken away), "macos" or "windows".
"""

from __future__ import annotations

import builtins
import http.client
import io
import json
import os
import secrets
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import closing, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

MODULES = {
    "macos": (),
    "windows": ("fcntl", "termios", "resource", "pwd", "grp", "tty", "pty", "readline", "curses", "syslog"),
}
"""Modules of the standard library that these systems do not have."""

FUNCTIONS = {
    "macos": ("sched_getaffinity", "sched_setaffinity", "copy_file_range", "posix_fadvise", "O_TMPFILE"),
    "windows": (
        *("fork", "forkpty", "sendfile", "copy_file_range", "pread", "preadv", "pwrite", "pwritev"),
        *("sched_getaffinity", "sched_setaffinity", "posix_fadvise", "mkfifo", "mknod", "sysconf"),
        *("getuid", "geteuid", "getgid", "getegid", "getpgid", "getpgrp", "setsid", "killpg", "getpriority"),
        *("O_NONBLOCK", "O_CLOEXEC", "O_TMPFILE", "WNOHANG", "chown", "getloadavg", "statvfs", "nice"),
    ),
}
SIGNALS = {
    "macos": (),
    "windows": (
        "SIGHUP",
        "SIGKILL",
        "SIGALRM",
        "SIGCHLD",
        "SIGPIPE",
        "SIGUSR1",
        "setitimer",
        "pthread_sigmask",
    ),
}


def become(system: str) -> None:
    """Takes away what the system does not have; before tracelink is imported."""
    import asyncio  # noqa: F401  has its own modules for each system
    import subprocess  # noqa: F401  the same
    import urllib.request  # noqa: F401  the same

    for module in MODULES[system]:
        sys.modules[module] = None  # type: ignore[assignment]
    for owner, names in ((os, FUNCTIONS[system]), (signal, SIGNALS[system])):
        for name in names:
            with suppress(AttributeError):
                delattr(owner, name)
    sys.platform = "darwin"
    _hide("/proc", "/dev/shm")
    tempfile._O_TMPFILE_WORKS = False  # type: ignore[attr-defined]
    if system == "macos":
        os.sendfile = _only_to_sockets  # type: ignore[assignment]
    else:
        tempfile.TemporaryFile = tempfile.NamedTemporaryFile  # type: ignore[misc,assignment]
        os.replace = _unless_open(os.replace)  # type: ignore[assignment]
        os.rename = _never_onto_a_file(_unless_open(os.rename))
        os.unlink = _unless_open(os.unlink)
        os.kill = _unexpected


def _only_to_sockets(*_: object) -> int:
    raise OSError(38, "Socket operation on non-socket")


def _unexpected(*arguments: object) -> None:
    raise AssertionError(f"os.kill{arguments} would end a process")


def _hide(*folders: str) -> None:
    """Lets files of these folders seem to be missing."""

    def hidden(path: object) -> bool:
        return isinstance(path, str | os.PathLike) and os.fspath(path).startswith(folders)

    def hiding(function: Callable[..., Any]) -> Callable[..., Any]:
        def without(path: object, *arguments: Any, **options: Any) -> Any:
            if hidden(path):
                raise FileNotFoundError(2, "No such file or directory", path)
            return function(path, *arguments, **options)

        return without

    for owner, name in ((builtins, "open"), (io, "open"), (os, "open"), (os, "stat"), (os, "readlink")):
        setattr(owner, name, hiding(getattr(owner, name)))


OPEN = {"links": os.readlink, "list": os.listdir}


def _is_open(path: object) -> bool:
    wanted = os.path.realpath(os.fspath(path))  # type: ignore[call-overload]
    for descriptor in OPEN["list"]("/proc/self/fd"):  # type: ignore[operator]
        with suppress(OSError):
            if OPEN["links"](f"/proc/self/fd/{descriptor}") == wanted:  # type: ignore[operator]
                return True
    return False


def _unless_open(function: Callable[..., Any]) -> Callable[..., Any]:
    """Windows neither moves nor removes a file that is open, nor replaces it."""

    def checked(*paths: Any, **options: Any) -> Any:
        for path in paths:
            if _is_open(path):
                raise PermissionError(13, "The process cannot access the file because it is being used", path)
        return function(*paths, **options)

    return checked


def _never_onto_a_file(function: Callable[..., Any]) -> Callable[..., Any]:
    def checked(source: Any, target: Any, **options: Any) -> Any:
        if os.path.exists(target):
            raise FileExistsError(17, "Cannot create a file when that file already exists", target)
        return function(source, target, **options)

    return checked


TOKEN = "token"


def _fetch_later(name: str, port: int) -> None:
    """Fetches a file as the UI would, as soon as it is served, and writes it to out/fetched."""
    secrets.token_urlsafe = lambda _=0: TOKEN  # type: ignore[misc]

    def fetch() -> None:
        while True:
            time.sleep(0.01)
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            with suppress(ConnectionError), closing(connection):
                connection.request(
                    "GET",
                    f"/{TOKEN}/{name}",
                    headers={"Host": "127.0.0.1:9001", "Origin": "https://ui.perfetto.dev"},
                )
                Path("out/fetched").write_bytes(connection.getresponse().read())
                return

    threading.Thread(target=fetch, daemon=True).start()


def main() -> None:
    system, folder = sys.argv[1:]
    commands = json.load(sys.stdin)
    if system != "linux":
        become(system)
    warnings.filterwarnings("error", category=EncodingWarning, module=r"tracelink(\.|$)")
    from tracelink.cli import main as tracelink

    for number, command in enumerate(commands):
        if "--port" in command:
            _fetch_later(Path(command[1]).name, int(command[command.index("--port") + 1]))
        stdout, stderr = (io.TextIOWrapper(io.BytesIO(), "cp1252") for _ in range(2))
        with redirect_stdout(stdout), redirect_stderr(stderr):
            try:
                code = tracelink(command, prog_name="tracelink")
            except SystemExit as end:
                code = end.code
        texts = [stream.buffer.getvalue() for stream in (stdout, stderr) if not stream.flush()]  # type: ignore[attr-defined]
        Path(folder, f"{number}.txt").write_bytes(b"\n".join([str(code).encode(), *texts]))


if __name__ == "__main__":
    main()
