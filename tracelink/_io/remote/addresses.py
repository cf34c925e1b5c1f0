"""Addresses of objects in remote stores, and texts without the secrets that addresses and errors can contain."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from urllib.parse import unquote

URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
"""The start of an address; the drive of a Windows path has one letter."""

LOCAL = ("file", "local")
WEB = ("http", "https")

SECRET_WORDS = (
    "signature|sig|token|secret|password|passwd|pwd|credentials?|authorization"
    "|access_?key|account_?key|api_?key|sas"
)
SECRET_QUERY = re.compile(
    rf"(?i)(?:^|[&?;_-])(?:x-(?:amz|goog)-[\w-]+|\w*(?:{SECRET_WORDS})|awsaccesskeyid|googleaccessid|policy|key-pair-id)="
)
"""A name in a query that comes with a secret: presigned addresses of S3, Google and Azure, and tokens."""

STATED = re.compile(
    rf"(?i)(\b[\w-]*(?:{SECRET_WORDS})[\w-]*[\"']?\s*[=:]\s*)(?:(?:bearer|basic|aws4-hmac-sha256)\s+)?[\"']?[^\s\"'&,;)}}]+"
)
"""A secret after its name."""
BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{6,}")
ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://[^\s\"'<>]+")
HIDDEN = "***"

SECRET_VARIABLES = re.compile(r"(?i)secret|token|passw|credential|_key$|_sas|connection_string")
SHORTEST_SECRET = 8
"""Characters: shorter values of variables are words that appear elsewhere too."""


def is_remote(path: str) -> bool:
    """True if a path is the address of an object or a folder in a remote store."""
    return URL.match(path) is not None and scheme_of(path) not in LOCAL


def scheme_of(url: str) -> str:
    """The scheme of an address in lower case."""
    return url.partition("://")[0].lower()


def plain_path(path: str) -> str:
    """The same path; that of a local file without `file://`."""
    if URL.match(path) is None or scheme_of(path) not in LOCAL:
        return path
    rest = path.partition("://")[2].removeprefix("localhost")
    return rest if os.path.exists(rest) else unquote(rest)


def within_store(path: str) -> str:
    """The path within its store, without scheme, host and bucket; of a local path all of it."""
    return path.partition("://")[2].partition("/")[2] if is_remote(path) else path


def folder_of(url: str) -> str:
    """The address of a folder, which ends with a slash."""
    return f"{url.rstrip('/')}/"


def shown(path: str) -> str:
    """A path as it is printed and stored: an address without passwords and without what presigns it."""
    if not is_remote(path):
        return path
    scheme, _, rest = path.partition("://")
    host, slash, key = rest.partition("/")
    if scheme.lower() in WEB:
        host, key = host.rpartition("@")[2].partition("?")[0], re.split(r"[?#]", key, maxsplit=1)[0]
    elif ":" in host.rpartition("@")[0]:
        host = host.rpartition("@")[2]
    address, mark, query = key.partition("?")
    if mark and SECRET_QUERY.search(query):
        key = address
    return f"{scheme}://{host}{slash}{key}"


def user_in(url: str) -> str:
    """User and password in an address, with the sign behind them; libraries take them for a part of the bucket."""
    user, sign, _ = url.partition("://")[2].partition("/")[0].rpartition("@")
    return user + sign


def shown_in(text: str) -> str:
    """A text with its addresses as they are shown."""
    return ADDRESS.sub(lambda match: shown(match[0]), text) if "://" in text else text


def without_secrets(text: str) -> str:
    """The text of an error of a library without passwords, signatures, tokens, and secrets of the environment."""
    for secret in _secrets():
        text = text.replace(secret, HIDDEN)
    text = BEARER.sub(rf"\1 {HIDDEN}", shown_in(text))
    return STATED.sub(rf"\1{HIDDEN}", text)


def _secrets() -> Iterator[str]:
    """Values of environment variables that are named as secrets are, the longest first."""
    named = {value for name, value in os.environ.items() if SECRET_VARIABLES.search(name)}
    yield from sorted((value for value in named if len(value) >= SHORTEST_SECRET), key=len, reverse=True)
