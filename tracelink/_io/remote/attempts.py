"""Requests to stores: tried again if they can succeed later, and their errors in words, without secrets."""

from __future__ import annotations

import asyncio
import errno
import random
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from tracelink._io.remote.addresses import scheme_of, shown, user_in, without_secrets
from tracelink._model.errors import TraceError, UnreadableError, UsageError, printable

Result = TypeVar("Result")

PACKAGES = {
    **dict.fromkeys(("s3", "s3a"), "s3fs"),
    **dict.fromkeys(("gs", "gcs"), "gcsfs"),
    **dict.fromkeys(("az", "abfs", "abfss", "adl"), "adlfs"),
    **dict.fromkeys(("ssh", "sftp"), "paramiko"),
    "hf": "huggingface_hub",
    "hdfs": "pyarrow",
    "smb": "smbprotocol",
    "oss": "ossfs",
    "oci": "ocifs",
}
"""The package that fsspec needs for the addresses of a store."""

ANYTHING = "Check the address, and read docs/remote.md."
CREDENTIALS = (
    "Credentials come from the environment, configuration files and roles of the machine: docs/remote.md."
)

ATTEMPTS = 5
ATTEMPTS_OF_CLIENTS = 2
"""Attempts by clients that try again by themselves, as those of object stores do."""
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
"""Seconds between attempts; each pause is twice as long as the one before, and up to a half longer by chance."""
LONGEST_MESSAGE = 300


def tried(
    work: Callable[[], Result], url: str, count: Callable[[], None], attempts: int = ATTEMPTS
) -> Result:
    """Returns what `work` returns, after at most so many attempts; calls `count` before each repetition.

    Raises TraceError if it fails in the end; FileNotFoundError is raised as it is.
    """
    for attempt in range(1, attempts + 1):
        try:
            return work()
        except TraceError:
            raise
        except FileNotFoundError as error:
            if _code(error) == "NoSuchBucket":
                raise failed(url, error, attempt) from None
            raise
        except Exception as error:  # noqa: BLE001  libraries raise errors of many kinds
            if attempt == attempts or not _is_transient(error):
                raise failed(url, error, attempt) from None  # the cause can contain secrets
        count()
        pause = min(FIRST_PAUSE * 2 ** (attempt - 1), LONGEST_PAUSE)
        time.sleep(pause * (1 + random.random() / 2))
    raise AssertionError("the last attempt returns or raises")


class ShortReadError(OSError):
    """A store sent less than it announced."""


PASSING = (
    TimeoutError,
    ConnectionError,
    ShortReadError,
    asyncio.TimeoutError,
    asyncio.IncompleteReadError,
    EOFError,
)
PASSING_NAMES = ("Timeout", "Connection", "Disconnected", "Payload", "IncompleteRead", "Throttl", "SSLError")
"""Parts of the names of classes of errors that go by, in libraries that are not imported here."""
PASSING_NUMBERS = {
    errno.EBUSY,
    errno.EAGAIN,
    errno.EPIPE,
    errno.ECONNRESET,
    errno.ETIMEDOUT,
    getattr(errno, "EREMOTEIO", errno.EIO),
}
PASSING_STATUSES = {408, 425, 429}
SERVER_ERROR = 500
NO_CREDENTIALS = ("NoCredentials", "CredentialsNotFound", "DefaultCredentials", "PartialCredentials")


def _is_transient(error: BaseException) -> bool:
    for one in _chain(error):
        if isinstance(one, socket.gaierror) and one.errno != socket.EAI_AGAIN:
            return False
        if status := _status(one):
            return status >= SERVER_ERROR or status in PASSING_STATUSES
        names = [kind.__name__ for kind in type(one).__mro__]
        if isinstance(one, PASSING) or any(part in name for name in names for part in PASSING_NAMES):
            return not any(_is_unknown_host(other) for other in _chain(error))
        if isinstance(one, OSError) and one.errno in PASSING_NUMBERS:
            return True
    return False


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and its causes, the nearest first."""
    for _ in range(8):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__


def _status(error: BaseException) -> int:
    """The HTTP status in an error; 0 if there is none."""
    response = getattr(error, "response", None)
    if isinstance(response, Mapping):
        found = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    else:
        found = getattr(error, "status", None) or getattr(response, "status_code", None)
        found = found or getattr(error, "status_code", None) or getattr(error, "code", None) or 0
    return int(found) if isinstance(found, int | str) and str(found).isdecimal() else 0


def _code(error: BaseException) -> str:
    """The code by which S3 names an error; empty if there is none."""
    codes = [
        str(response.get("Error", {}).get("Code", ""))
        for one in _chain(error)
        if isinstance(response := getattr(one, "response", None), Mapping)
    ]
    return next(filter(None, codes), "")


def _is_unknown_host(error: BaseException) -> bool:
    known = socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)
    return (isinstance(error, socket.gaierror) and error.errno in known) or "DNSError" in type(error).__name__


def failed(url: str, error: BaseException, attempts: int) -> TraceError:
    """The error for the user, whatever a library raised."""
    source, chain = shown(url), list(_chain(error))
    names = " ".join(type(one).__name__ for one in chain)
    status = next(filter(None, map(_status, chain)), 0)
    times = f" after {attempts} attempts" if attempts > 1 else ""
    if isinstance(error, ImportError):
        return missing_package(url)
    if any(map(_is_unknown_host, chain)):
        return UnreadableError("the host of the store is unknown", source=source, advice=ANYTHING)
    if any(name in names for name in NO_CREDENTIALS):
        return UnreadableError("there are no credentials for this store", source=source, advice=CREDENTIALS)
    if isinstance(error, PermissionError) or status in (401, 403):
        return UnreadableError("access is denied", source=source, advice=CREDENTIALS)
    if _code(error) == "NoSuchBucket":
        return UsageError("there is no such bucket", source=source, advice="Check the address.")
    text = without_secrets(str(error).replace(user_in(url), ""))
    text = printable(" ".join(text.split()))[:LONGEST_MESSAGE].rstrip(".")
    reason = text or type(error).__name__
    advice = "Try again later." if _is_transient(error) else ANYTHING
    return UnreadableError(f"the store cannot be used{times} ({reason})", source=source, advice=advice)


def missing_package(url: str) -> UsageError:
    """The error for a store whose package is not installed."""
    scheme = scheme_of(url)
    package = PACKAGES.get(scheme, "")
    try:
        import fsspec  # noqa: F401  the extra `remote`
    except ImportError:
        packages = f"'torch-tracelink[remote]' {package}".strip()
        return UsageError(
            f"{scheme}:// needs fsspec, which is not installed", advice=f"Run: pip install {packages}"
        )
    if not package:
        return UsageError(
            f"fsspec cannot use {scheme}:// here", advice=f"Install its package for {scheme}://."
        )
    return UsageError(
        f"{scheme}:// needs the package {package}, which is not installed",
        advice=f"Run: pip install {package}",
    )


def gone(url: str) -> UnreadableError:
    """The error for an object that does not exist."""
    return UnreadableError("there is no such object", source=shown(url), advice="Check the address.")
