"""Rewrites recorded files with a known clock error."""

from __future__ import annotations

import gzip
import io
import pickle
import re
import shutil
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

from builders.recorder import pickled
from generators.job import HostClock

NUMBER = rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"
TIMES = re.compile(rb'("ts"\s*:\s*)(' + NUMBER + rb')(?:(\s*,\s*"dur"\s*:\s*)(' + NUMBER + rb"))?")
"""A start, and the duration if it stands right behind it, as in all profiles."""

DURATION = re.compile(rb'"dur"\s*:')
BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d+)')
HOST = re.compile(rb'("host_name"\s*:\s*)"[^"]*"')
RECORDED_TIMES = ("time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns")
RECORDED_TIME = re.compile(rb'("(?:' + "|".join(RECORDED_TIMES).encode() + rb')"\s*:\s*)([1-9]\d*)')
"""In the JSON variant of a dump, which says 0 where there is no time."""

RANK = re.compile(r"(\d+)(?:\.json)?(?:\.gz)?$")


def mistime_job(folder: Path, target: Path, clocks: Mapping[int, HostClock]) -> None:
    """Copies a job's files; those of a rank in `clocks` get its clock and a host of their own."""
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        copy = target / file.relative_to(folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        rank = RANK.search(file.name)
        if rank and int(rank[1]) in clocks:
            number = int(rank[1])
            mistime_file(file, copy, clocks[number], f"node{number:03d}")
        else:
            shutil.copyfile(file, copy)


def mistime_file(file: Path, copy: Path, clock: HostClock, host: str | None = None) -> None:
    """Copies a profile or a dump with other times; anything else as it is."""
    data = file.read_bytes()
    plain = gzip.decompress(data) if file.suffix == ".gz" else data
    if plain.startswith(b"\x80\x02"):
        data = mistimed_dump(plain, clock)
    else:
        plain = (
            mistimed_profile(plain, clock, host) if b'"traceEvents"' in plain else mistimed_json(plain, clock)
        )
        data = gzip.compress(plain, 1, mtime=0) if file.suffix == ".gz" else plain
    copy.write_bytes(data)


def mistimed_profile(text: bytes, clock: HostClock, host: str | None = None) -> bytes:
    """A profile as `clock` would have timed it, and another host would have named itself; all else as it is."""
    found = BASE.search(text)
    base = int(found[1]) if found else 0
    seen = 0

    def rewritten(times: re.Match[bytes]) -> bytes:
        nonlocal seen
        start = base + nanoseconds(times[2])
        shown = clock.shown(start)
        result = times[1] + microseconds(shown - base)
        if times[4] is None:
            return result
        seen += 1
        return result + times[3] + microseconds(clock.shown(start + nanoseconds(times[4])) - shown)

    result = TIMES.sub(rewritten, text)
    if seen != len(DURATION.findall(text)):
        raise ValueError("a duration does not stand behind its start")
    return result if host is None else HOST.sub(rb'\1"' + host.encode() + b'"', result)


def nanoseconds(text: bytes) -> int:
    return round(Decimal(text.decode()) * 1000)


def microseconds(value: int) -> bytes:
    """Nanoseconds as microseconds with three decimals."""
    sign = "-" if value < 0 else ""
    return f"{sign}{abs(value) // 1000}.{abs(value) % 1000:03d}".encode()


def mistimed_dump(data: bytes, clock: HostClock) -> bytes:
    content = _PlainData(io.BytesIO(data)).load()
    for entry in content["entries"]:
        if entry.get("duration_ms") and entry.get("time_discovered_completed_ns"):
            end = entry["time_discovered_completed_ns"]
            lasted = round(entry["duration_ms"] * 1e6)
            entry["duration_ms"] = (clock.shown(end) - clock.shown(end - lasted)) / 1e6
        for name in RECORDED_TIMES:
            if entry.get(name):
                entry[name] = clock.shown(entry[name])
    return pickled(content)


def mistimed_json(text: bytes, clock: HostClock) -> bytes:
    """A dump in JSON as `clock` would have timed it; what holds no such times, as it is."""
    return RECORDED_TIME.sub(lambda found: found[1] + str(clock.shown(int(found[2]))).encode(), text)


class _PlainData(pickle.Unpickler):
    """Loads texts, numbers and containers, and nothing that runs."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"a dump holds no {module}.{name}")

    def persistent_load(self, number: Any) -> NoReturn:
        raise pickle.UnpicklingError(f"a dump refers to no {number}")
