"""Web servers as stores: objects are read in ranges, folders are pages with links."""

from __future__ import annotations

import base64
import http.client
import netrc
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from email.utils import parsedate_to_datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit

from tracelink._io.remote.addresses import WEB, folder_of, shown
from tracelink._io.remote.attempts import ANYTHING
from tracelink._io.remote.stores import UNKNOWN_SIZE, Entry, Folder, Store
from tracelink._model.errors import ChangedError, UnreadableError, UsageError

PATIENCE = 60.0
"""Seconds without a byte after which a request is tried again."""
LARGEST_PAGE = 8 << 20
"""Bytes of a page with the links of a folder."""
DEEPEST = 16
"""Folders within each other: a server can make up any number of them."""
PIECE = 1 << 20

REDIRECTS = (301, 302, 303, 307, 308)
PARTIAL, NOT_FOUND, GONE, UNSATISFIABLE = 206, 404, 410, 416


class WebStore(Store):
    """A web server; what it redirects to is on the web as well."""

    def __init__(self) -> None:
        super().__init__()
        self._opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.ProxyHandler(),
            urllib.request.HTTPHandler(),
            urllib.request.HTTPSHandler(),
            urllib.request.HTTPDefaultErrorHandler(),
            urllib.request.HTTPErrorProcessor(),
            _Redirects(),
        ):
            self._opener.add_handler(handler)

    def find(self, url: str) -> Entry | None:
        """The object; None for a page with the links of a folder, and if there is nothing."""
        try:
            return self._tried(url, lambda: self._found(url))
        except FileNotFoundError:
            return None

    def _found(self, url: str) -> Entry | None:
        with self._get(url, "bytes=0-0") as answer:
            if _is_folder(answer):
                return None
            tag, modified = answer.headers.get("ETag", ""), _modified(answer.headers)
            tag = f"etag {tag}" if tag else f"time {modified // 10**9}" if modified else ""
            if answer.status == UNSATISFIABLE:
                return Entry(url, 0, tag, modified)
            if answer.status == PARTIAL:
                size = _size_in_range(answer.headers.get("Content-Range", ""))
                return Entry(url, size, tag, modified, in_ranges=size != UNKNOWN_SIZE)
            length = answer.headers.get("Content-Length", "")
            return Entry(
                url, int(length) if length.isdecimal() else UNKNOWN_SIZE, tag, modified, in_ranges=False
            )

    def folder(self, url: str, *, deep: bool, most: int) -> Folder:
        """The objects to which the page of a folder links, and with `deep` those of the folders in it."""
        found, waiting = Folder(), [(folder_of(url), 0)]
        seen = {waiting[0][0]}
        while waiting and len(found.entries) <= most:
            page, depth = waiting.pop()
            for link in self._links(page, found.strange):
                if link in seen:
                    continue
                seen.add(link)
                if not link.endswith("/"):
                    found.entries.append(Entry(link, UNKNOWN_SIZE))
                elif not deep:
                    found.folders.append(link)
                elif depth < DEEPEST and not urlsplit(link).path.rstrip("/").rpartition("/")[2].startswith(
                    "."
                ):
                    waiting.append((link, depth + 1))
        return found

    def _links(self, url: str, strange: list[str]) -> list[str]:
        """The addresses below a folder to which its page links, without queries, which sort the page."""
        try:
            text, base = self._tried(url, lambda: self._page(url))
        except FileNotFoundError:
            return []
        links = _Links()
        links.feed(text)
        found = []
        for link in links.found:
            try:
                parts = urlsplit(urljoin(base, link))
            except ValueError:
                continue
            target = urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))
            if not target.startswith(base) or target == base:
                continue
            if {".", ".."} & set(unquote(target).removeprefix(unquote(base)).split("/")):
                strange.append(target)
                continue
            found.append(url + target.removeprefix(base))
        return list(dict.fromkeys(found))

    def _page(self, url: str) -> tuple[str, str]:
        with self._get(url, "") as answer:
            if "html" not in answer.headers.get("Content-Type", ""):
                return "", url
            text = _read(answer, LARGEST_PAGE + 1)
            if len(text) > LARGEST_PAGE:
                raise UnreadableError(
                    "the page of this folder is too long", source=shown(url), advice=ANYTHING
                )
            return text.decode("utf-8", "replace"), answer.geturl().partition("?")[0]

    def _range(self, entry: Entry, start: int, stop: int) -> bytes:
        with self._get(entry.url, f"bytes={start}-{stop - 1}") as answer:
            whole = _size_in_range(answer.headers.get("Content-Range", ""))
            if answer.status != PARTIAL or whole not in (entry.bytes, UNKNOWN_SIZE):
                raise changed(entry)
            return _read(answer, stop - start)

    def _pieces(self, entry: Entry) -> Iterator[bytes]:
        with self._get(entry.url, "") as answer:
            while data := _read(answer, PIECE):
                yield data

    def write(self, file: Path, url: str) -> None:
        """Raises UsageError: web servers take no files."""
        self.check_writable(url)

    def remove(self, url: str) -> None:
        """Raises UsageError: web servers take no files."""
        self.check_writable(url)

    def check_writable(self, url: str) -> None:
        """Raises UsageError: web servers take no files."""
        raise UsageError(
            "nothing can be written to web servers",
            source=shown(url),
            advice="Write to a file or to an object store, such as s3://",
        )

    def _get(self, url: str, ranged: str) -> Any:
        """The answer to a request; raises FileNotFoundError if there is nothing."""
        parts = _checked(url)
        host = parts.netloc.rpartition("@")[2]
        path = "".join(char if " " < char < "\x7f" else _quoted(char) for char in parts.path) or "/"
        request = urllib.request.Request(urlunsplit((parts.scheme, host, path, parts.query, "")))
        request.add_header("Accept-Encoding", "identity")
        request.add_header("User-Agent", "tracelink")
        if ranged:
            request.add_header("Range", ranged)
        if login := _login(parts):
            text = base64.b64encode(":".join(login).encode()).decode()
            request.add_unredirected_header("Authorization", f"Basic {text}")
        try:
            return self._opener.open(request, timeout=PATIENCE)
        except urllib.error.HTTPError as error:
            if error.code == UNSATISFIABLE and ranged == "bytes=0-0":
                return error
            error.close()
            if error.code in (NOT_FOUND, GONE):
                raise FileNotFoundError(url) from None
            if error.code in REDIRECTS:
                raise _elsewhere(url) from None
            raise _RefusedError(error.code) from None
        except urllib.error.URLError as error:
            raise error.reason if isinstance(error.reason, OSError) else OSError(str(error.reason)) from None


class _RefusedError(OSError):
    """An answer that is an error."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the server answers with status {status}")
        self.status = status


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects on the web, and none from an encrypted connection to a plain one."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        """The request to follow; raises HTTPError for another place."""
        scheme = urlsplit(newurl).scheme
        if scheme not in WEB or (req.type == "https" and scheme == "http"):
            raise _elsewhere(req.full_url)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _elsewhere(url: str) -> UnreadableError:
    return UnreadableError(
        "the server redirects to an address that is not followed",
        source=shown(url),
        advice="Name the address of the object itself.",
    )


class _Links(HTMLParser):
    """The targets of the links of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keeps the target of a link."""
        if tag == "a":
            self.found += [value for name, value in attrs if name == "href" and value]


def changed(entry: Entry) -> ChangedError:
    """The error for an object that is not as it was found."""
    return ChangedError(
        "the object was changed since it was first read",
        source=shown(entry.url),
        advice="Run the command again when no program writes to it.",
    )


def _read(answer: Any, size: int) -> bytes:
    """At most `size` bytes; fewer only at the end."""
    parts, left = [], size
    while left:
        try:
            part = answer.read(min(left, PIECE))
        except http.client.IncompleteRead as error:
            parts.append(error.partial[:left])
            break
        if not part:
            break
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _checked(url: str) -> Any:
    try:
        parts = urlsplit(url)
        if parts.hostname and parts.port != 0:
            return parts
    except ValueError:
        pass
    raise UsageError(f"{shown(url)} is not an address", advice="Write it as http://host/path")


def _quoted(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogateescape"))


def _login(parts: Any) -> tuple[str, str] | None:
    """Name and password of an address, else those of ~/.netrc for its host."""
    if parts.username is not None:
        return unquote(parts.username), unquote(parts.password or "")
    with suppress(OSError, netrc.NetrcParseError, KeyError):
        found = netrc.netrc(os.environ.get("NETRC")).authenticators(parts.hostname)
        if found:
            return found[0], found[2] or ""
    return None


def _is_folder(answer: Any) -> bool:
    path = urlsplit(answer.geturl()).path
    return path.endswith("/") and "html" in answer.headers.get("Content-Type", "")


def _size_in_range(text: str) -> int:
    size = text.rpartition("/")[2]
    return int(size) if size.isdecimal() else UNKNOWN_SIZE


def _modified(headers: Any) -> int:
    with suppress(ValueError, TypeError, OverflowError):
        return int(parsedate_to_datetime(headers.get("Last-Modified", "")).timestamp()) * 10**9
    return 0
