"""Servers on loopback that store objects: S3 by moto, and a web server with the faults of real ones."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

LOOPBACK = "127.0.0.1"
BUCKET = "bucket"
START_SECONDS = 60
RANGE = re.compile(r"bytes=(\d+)-(\d*)")


def free_port() -> int:
    with socket.socket() as found:
        found.bind((LOOPBACK, 0))
        return int(found.getsockname()[1])


# S3


@dataclass
class S3:
    """A server of S3 with one bucket, and the environment in which clients find it."""

    endpoint: str
    environment: dict[str, str]

    def client(self) -> Any:
        """A client that needs no event loop."""
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id="testing",
            aws_secret_access_key="testing-secret",
            region_name="us-east-1",
        )

    def put(self, folder: Path, prefix: str = "") -> None:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.client().upload_file(str(path), BUCKET, f"{prefix}{path.relative_to(folder)}")

    def content(self, key: str) -> bytes:
        return bytes(self.client().get_object(Bucket=BUCKET, Key=key)["Body"].read())

    def keys(self, prefix: str = "") -> list[str]:
        answer = self.client().list_objects_v2(Bucket=BUCKET, Prefix=prefix)
        return sorted(entry["Key"] for entry in answer.get("Contents", []))

    def empty(self) -> None:
        for key in self.keys():
            self.client().delete_object(Bucket=BUCKET, Key=key)


@contextmanager
def s3_server(log: Path | None = None) -> Iterator[S3]:
    """A server of S3 in a process of its own, which logs its requests."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", LOOPBACK, "-p", str(port)]
    quiet = subprocess.DEVNULL
    with (
        (log or Path(os.devnull)).open("wb") as output,
        subprocess.Popen(command, stdout=output, stderr=output, stdin=quiet) as process,
    ):
        try:
            _wait_for(port, process)
            endpoint = f"http://{LOOPBACK}:{port}"
            environment = {
                "AWS_ENDPOINT_URL": endpoint,
                "AWS_ACCESS_KEY_ID": "testing",
                "AWS_SECRET_ACCESS_KEY": "testing-secret",
                "AWS_DEFAULT_REGION": "us-east-1",
                "AWS_EC2_METADATA_DISABLED": "true",
                "AWS_CONFIG_FILE": os.devnull,
                "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            }
            server = S3(endpoint, environment)
            server.client().create_bucket(Bucket=BUCKET)
            yield server
        finally:
            process.kill()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    latest = time.monotonic() + START_SECONDS
    while time.monotonic() < latest and process.poll() is None:
        with contextlib.suppress(OSError):
            connection = http.client.HTTPConnection(LOOPBACK, port, timeout=5)
            connection.request("GET", "/moto-api/")
            connection.getresponse().read()
            return
        time.sleep(0.05)
    raise AssertionError("the server of S3 does not start")


def forwarded(server: S3, handler: BaseHTTPRequestHandler) -> None:
    """Answers a request as a server of S3 does."""
    size = int(handler.headers.get("Content-Length") or 0)
    host = server.endpoint.partition("://")[2]
    connection = http.client.HTTPConnection(host, timeout=60)
    headers = {name: value for name, value in handler.headers.items() if name.lower() != "connection"}
    connection.request(handler.command, handler.path, handler.rfile.read(size), headers)
    answer = connection.getresponse()
    data = answer.read()
    handler.send_response(answer.status)
    for name, value in answer.getheaders():
        if name.lower() not in ("connection", "transfer-encoding", "content-length", "date", "server"):
            handler.send_header(name, value)
    length = answer.getheader("Content-Length") if handler.command == "HEAD" else str(len(data))
    handler.send_header("Content-Length", length or "0")
    handler.end_headers()
    handler.wfile.write(data)
    connection.close()


# The web


@dataclass
class Web:
    """A web server, its objects and its faults."""

    objects: dict[str, bytes] = field(default_factory=dict)
    """By their paths, without the slash at the start."""
    in_ranges: bool = True
    pages: bool = True
    """Whether folders have pages with links."""
    tags: bool = True
    fault: Callable[[Web, BaseHTTPRequestHandler], bool] | None = None
    """Is called before each answer; returns true if it has answered."""
    connections: set[socket.socket] = field(default_factory=set)
    requests: list[str] = field(default_factory=list)
    """Path and range of each request."""
    logins: list[str] = field(default_factory=list)
    """What each request had as authorization."""
    sent: int = 0
    address: str = ""

    def url(self, path: str = "") -> str:
        return f"{self.address}/{path}"

    def put(self, folder: Path, prefix: str = "") -> None:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.objects[f"{prefix}{path.relative_to(folder).as_posix()}"] = path.read_bytes()


@contextmanager
def web_server(web: Web | None = None) -> Iterator[Web]:
    """A web server in a process of threads of its own: the tests that use it fork no processes, or use `forked`."""
    shared = Web() if web is None else web

    class Handler(_Handler):
        state = shared

    server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
    server.daemon_threads = True
    shared.address = f"http://{LOOPBACK}:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield shared
    finally:
        server.shutdown()
        server.server_close()
        for connection in list(shared.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    state: Web
    protocol_version = "HTTP/1.1"  # clients of S3 wait for it to go on before they send objects

    def setup(self) -> None:
        """Remembers the connection, whose thread ends with it."""
        super().setup()
        self.state.connections.add(self.connection)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  its name in the base class
        pass

    def do_GET(self) -> None:
        web = self.state
        web.requests.append(f"{self.path} {self.headers.get('Range', '')}".strip())
        web.logins.append(self.headers.get("Authorization", ""))
        if web.fault and web.fault(web, self):
            return
        path = self.path.partition("?")[0].lstrip("/")
        data = web.objects.get(path)
        if data is None:
            self._page(path)
        else:
            self._object(data)

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815  names of the base class

    def _page(self, path: str) -> None:
        names = sorted(
            {name.removeprefix(path).partition("/") for name in self.state.objects if name.startswith(path)}
        )
        if not names or not self.state.pages:
            self.send_error(404)
            return
        if path and not path.endswith("/"):
            self.answer(301, b"", Location=f"/{path}/")
            return
        links = "".join(f'<a href="{name}{slash}">{name}</a>' for name, slash, _ in names)
        text = f'<html><a href="../">up</a><a href="?C=N">sort</a>{links}</html>'
        self.answer(200, text.encode(), **{"Content-Type": "text/html"})

    def _object(self, data: bytes) -> None:
        headers = {"ETag": f'"{hash(data) & 0xFFFFFFFF:x}"'} if self.state.tags else {}
        match = RANGE.fullmatch(self.headers.get("Range", "")) if self.state.in_ranges else None
        if not match:
            self.answer(200, data, **headers)
            return
        start, stop = int(match[1]), int(match[2] or len(data)) + 1
        if start >= len(data):
            self.answer(416, b"", **{"Content-Range": f"bytes */{len(data)}"})
            return
        part = data[start:stop]
        place = f"bytes {start}-{start + len(part) - 1}/{len(data)}"
        self.answer(206, part, **headers, **{"Content-Range": place})

    def answer(self, status: int, data: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(data))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            with contextlib.suppress(OSError):
                self.wfile.write(data)
                self.state.sent += len(data)
