"""Metrics that other programs sampled: what a user says about them, and what a reader returns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from zoneinfo import ZoneInfo

from msgspec import Struct

from tracelink._model.columns import SECOND
from tracelink._model.errors import UsageError
from tracelink._model.events import Counters
from tracelink._model.findings import Finding
from tracelink._model.trace import SourceInfo

# What a reader returns.


class Basis(StrEnum):
    """What the times of readings count from."""

    EPOCH = "epoch"
    """1970 in UTC."""
    LOCAL = "local"
    """1970 in the time zone of the machine."""
    DAY = "day"
    """Midnight of the first day in the time zone of the machine."""
    START = "start"
    """The first sample, or any other unknown moment."""
    ROUND = "round"
    """Nothing: times are numbers of the round of sampling, from 0 on."""


class Gauge(Struct, frozen=True):
    """What one counter of a file of metrics measures; empty and None where the file does not say it."""

    name: str
    """The name of the metric in the file, without its unit: `power.draw`."""
    unit: str = ""
    host: str = ""
    device: str = ""
    """The index of the GPU."""
    uuid: str = ""
    """The UUID of the GPU."""
    pid: int | None = None
    rank: int | None = None

    @property
    def of_device(self) -> bool:
        """Whether it measures one GPU and not the host."""
        return bool(self.device or self.uuid)


class Readings(Struct, frozen=True):
    """A file of metrics as it is: of which ranks they are, and often when they were, only other sources tell."""

    source: SourceInfo
    basis: Basis
    gauges: Sequence[Gauge]
    counters: Counters
    """Tracks are indexes of `gauges`; times are nanoseconds, or numbers of rounds."""
    findings: Sequence[Finding] = ()


# What a user says.

FIXED_ZONE = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2})(?::?(\d\d))?", re.ASCII)
FARTHEST_ZONE = timedelta(hours=18)
NUMBER = re.compile(r"\d{1,19}(?:\.\d{1,12})?", re.ASCII)
LATEST_SECONDS = 4_000_000_000
"""Larger numbers are milliseconds, microseconds or nanoseconds since 1970."""
INTERVAL = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)\s*(ms|s|min)?", re.ASCII)
IN_NANOSECONDS = {"ms": 10**6, "s": SECOND, "min": 60 * SECOND}
RANGE = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?", re.ASCII)
MOST_MAPPED = 100_000
"""Devices that a map can list."""

EXAMPLE = "node1:0-7=8-15, 0=3 or GPU-1bdee8b4-22ac-536c-208b-bfb4ed38b878=3"


@dataclass(frozen=True, slots=True, init=False)
class Metrics:
    """Zone, start and interval of metrics that do not contain them, and the ranks of devices."""

    tz: str | None
    start: str | None
    interval: float | None
    map: Mapping[str, int]
    """The rank of each device: `node1:0`, `0` or a UUID."""
    zone: tzinfo | None = field(repr=False, compare=False)

    def __init__(
        self,
        tz: str | None = None,
        start: str | datetime | None = None,
        interval: float | str | None = None,
        map: str | Mapping[str, int] | Iterable[str] | None = None,  # noqa: A002  the name of the option
    ) -> None:
        """Facts about metrics, as the command line takes them.

        Args:
            tz: The zone of local times: a name such as "Europe/Berlin", or an offset such as "+02:00".
            start: The time of the first sample, for files without times: "2026-11-18 06:42:10.5" in `tz`, with a zone
                such as "2026-11-18T06:42:10Z", or seconds since 1970.
            interval: Seconds between two samples, for files without times.
            map: Ranks of devices: "0-7=8-15", "node1:0=3" or "GPU-1bdee8b4-...=3", several in a list or separated by
                commas; or a mapping such as {"node1:0": 3}.

        Raises:
            UsageError: An argument is malformed.
        """
        object.__setattr__(self, "tz", tz)
        object.__setattr__(self, "zone", None if tz is None else _zone(tz))
        text = start.isoformat() if isinstance(start, datetime) else start
        object.__setattr__(self, "start", text)
        if text is not None:
            parse_time(text)
        object.__setattr__(self, "interval", None if interval is None else _seconds(interval))
        object.__setattr__(self, "map", _ranks_of_devices(map))

    @property
    def interval_ns(self) -> int | None:
        """Nanoseconds between two samples."""
        return None if self.interval is None else round(self.interval * SECOND)


def _zone(text: str) -> tzinfo:
    if match := FIXED_ZONE.fullmatch(text.strip()):
        offset = timedelta(hours=int(match[2]), minutes=int(match[3] or 0))
        if offset <= FARTHEST_ZONE and int(match[3] or 0) < 60:
            return timezone(-offset if match[1] == "-" else offset)
    if text.strip().upper() in ("UTC", "Z"):
        return UTC
    try:
        return ZoneInfo(text.strip())
    except (KeyError, OSError, ValueError):
        raise UsageError(
            f"--tz: there is no time zone {text!r}",
            advice="Write a name such as Europe/Berlin, or an offset such as +02:00.",
        ) from None


def parse_time(text: str) -> tuple[int, bool]:
    """Nanoseconds since 1970 of a time that the user gave, and whether it is local and not in UTC."""
    stripped = text.strip()
    try:
        if NUMBER.fullmatch(stripped):
            number = Decimal(stripped)
            scale = next(
                (scale for scale in (SECOND, 10**6, 10**3) if number * scale < LATEST_SECONDS * SECOND), 1
            )
            return int(number * scale), False
        found = datetime.fromisoformat(stripped.replace("/", "-"))
        local = found.tzinfo is None
        elapsed = (found.replace(tzinfo=UTC) if local else found) - datetime.fromtimestamp(0, UTC)
        return (elapsed.days * 86400 + elapsed.seconds) * SECOND + elapsed.microseconds * 1000, local
    except (ValueError, OverflowError, InvalidOperation):
        raise UsageError(
            f"--metrics-start: {text!r} is not a time",
            advice="Write, for example, '2026-11-18 06:42:10.5', 2026-11-18T06:42:10+01:00, or seconds since 1970.",
        ) from None


def _seconds(value: float | str) -> float:
    if isinstance(value, str) and (match := INTERVAL.fullmatch(value.strip())):
        value = int(Decimal(match[1]) * IN_NANOSECONDS[match[2] or "s"]) / SECOND
    if isinstance(value, str) or not 0 < value < 1e9:
        raise UsageError(
            f"--interval: {value!r} is not a time between two samples", advice="Write seconds, such as 0.5."
        )
    return float(value)


def _ranks_of_devices(given: str | Mapping[str, int] | Iterable[str] | None) -> dict[str, int]:
    """The rank of each device that the user mapped; ranges are written out."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        parts = [f"{key}={rank}" for key, rank in given.items()]
    else:
        texts = [given] if isinstance(given, str) else list(given)
        parts = [part for text in texts for part in text.split(",") if part.strip()]
    found: dict[str, int] = {}
    for part in parts:
        for key, rank in _mapped(part.strip()):
            if found.setdefault(key, rank) != rank:
                raise UsageError(
                    f"--map: {key} has two ranks, {found[key]} and {rank}", advice="Name each device once."
                )
    return found


def _mapped(part: str) -> Iterable[tuple[str, int]]:
    """Devices and ranks of `node1:0-7=8-15`."""
    key, _, ranks = part.rpartition("=")
    host, colon, device = key.rpartition(":")
    numbers, devices = _range(ranks), _range(device)
    if not key or numbers is None:
        raise UsageError(f"--map: {part!r} is not of the form DEVICE=RANK", advice=f"Write {EXAMPLE}.")
    if devices is None:
        if len(numbers) != 1:
            raise UsageError(f"--map: {part!r} gives one device several ranks", advice=f"Write {EXAMPLE}.")
        return [(key.lower(), numbers[0])]
    if len(devices) != len(numbers):
        raise UsageError(
            f"--map: {part!r} has {len(devices)} devices, but {len(numbers)} ranks",
            advice="Give as many ranks as devices.",
        )
    return [(f"{host.lower()}{colon}{number}", rank) for number, rank in zip(devices, numbers, strict=True)]


def _range(text: str) -> range | None:
    match = RANGE.fullmatch(text.strip())
    if not match:
        return None
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first or last - first >= MOST_MAPPED:
        raise UsageError(f"--map: {text!r} is not a range of numbers", advice=f"Write {EXAMPLE}.")
    return range(first, last + 1)
