"""Mutations that keep the structure of an input: values of JSON and of pickles, fields of protobuf, lines, bytes."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import sqlite3
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

from fuzz.seeds import Seed
from tracelink._io.framing import (
    DELIMITED,
    FIXED32,
    FIXED64,
    VARINT,
    delimited,
    fields_of,
    framed,
    key,
    varint,
    varint_at,
)
from tracelink._io.sources import Source
from tracelink._model.errors import UnreadableError
from tracelink.converters.flight_recorder.decoding import decode

ODD: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    1,
    2**31,
    2**32,
    2**53 + 1,
    2**62,
    2**63 - 1,
    2**63,
    2**64 - 1,
    2**64,
    -(2**63),
    -(2**63) - 1,
    10**30,
    0.5,
    1e-320,
    1e308,
    float("inf"),
    float("nan"),
    "",
    "0",
    "-1",
    "1e999",
    "18446744073709551616",
    "\x1b]52;c;QUJD\x07",
    "a\nproblem: forged\r",
    "\ud800",
    "\u202e\u0000",
    "é" * 50,
    "n" * 5000,
    "[0, 1",
    [],
    [[]],
    [0, 1, 2**40],
    {},
    {"ranks": 1},
]
"""Values that readers do not expect."""

MOST_DEPTH = 40
MOST_CHANGES = 5


def mutated(seed: Seed, random: Random) -> tuple[str, bytes]:
    """Name and bytes of an input."""
    data = seed.data
    if random.random() < 0.8:
        change = _structured(seed)
        with suppress(RecursionError, UnreadableError, ValueError):
            data = change(data, random)
    if data == seed.data or random.random() < 0.2:
        data = _other_bytes(data, random)
    return _packed(seed.name, data, random)


def _structured(seed: Seed) -> Callable[[bytes, Random], bytes]:
    if seed.format == "chakra":
        return _other_frames
    if seed.format == "perfetto":
        return _other_message
    if seed.format in ("torch-trace", "nccl-inspector", "watchdog-log") or seed.name == "ras.txt":
        return _other_lines
    if seed.format == "nsys":
        return _other_cells
    if seed.format == "memory-snapshot":
        return _other_snapshot
    return _other_pickle if seed.data.startswith(b"\x80") else _other_json


# Cells of databases.


def _other_cells(data: bytes, random: Random) -> bytes:
    """Other values in some cells, of any type, as SQLite allows it, and tables that are something else."""
    connection = sqlite3.connect(":memory:")
    connection.deserialize(data)
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for _ in range(random.randint(1, MOST_CHANGES)):
        table = random.choice(tables)
        columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
        with suppress(sqlite3.Error, OverflowError, UnicodeEncodeError):
            match random.randrange(8):
                case 0:
                    connection.execute(f'DELETE FROM "{table}"')
                case 1:
                    connection.execute(f'ALTER TABLE "{table}" RENAME TO moved')
                    connection.execute(f'CREATE VIEW "{table}" AS SELECT * FROM moved')
                case 2:
                    connection.execute(f'ALTER TABLE "{table}" DROP COLUMN "{random.choice(columns)}"')
                case _:
                    value = random.choice([*ODD, b"\xff" * 50])
                    value = str(value) if isinstance(value, list | dict) else value
                    where = f"rowid % {random.randint(1, 3)} = 0"
                    connection.execute(
                        f'UPDATE "{table}" SET "{random.choice(columns)}" = ? WHERE {where}', [value]
                    )
    connection.commit()
    return connection.serialize()


# Values of JSON and of pickles.


def _other_json(data: bytes, random: Random) -> bytes:
    text = json.dumps(_other_values(json.loads(data), random), ensure_ascii=random.random() < 0.5)
    if random.random() < 0.1:
        text = json.dumps(json.loads(text), indent=random.choice([0, 1, 2]))
    return text.encode("utf-8", "surrogatepass")


def _other_snapshot(data: bytes, random: Random) -> bytes:
    content = _other_values(pickle.loads(data), random)
    return pickle.dumps(content, protocol=random.choice([2, 4, 5]))


def _other_pickle(data: bytes, random: Random) -> bytes:
    dump = decode(Source("dump", lambda: io.BytesIO(data), len(data))).dump
    content = _other_values({**dump.header, "entries": list(dump.entries)}, random)
    return pickle.dumps(content, protocol=random.choice([2, 2, 4]))


def _other_values(value: Any, random: Random) -> Any:
    root = [value]
    for _ in range(random.randint(1, MOST_CHANGES)):
        _change_one(root, random)
    return root[0]


def _change_one(root: list[Any], random: Random) -> None:
    """Changes one value somewhere inside, also lists and objects as a whole."""
    holder: Any = root
    place: Any = 0
    for _ in range(random.randint(0, MOST_DEPTH)):
        inner = holder[place]
        if not isinstance(inner, list | dict) or not inner or (holder is not root and random.random() < 0.1):
            break
        holder, place = (
            inner,
            random.choice(list(inner)) if isinstance(inner, dict) else random.randrange(len(inner)),
        )
    match random.randrange(10):
        case 0 if holder is not root:
            del holder[place]
        case 1 if isinstance(holder, list) and holder is not root:
            holder[place:place] = [holder[place]] * random.choice([1, 2, 50])
        case 2 if isinstance(holder, list) and holder is not root:
            other = random.randrange(len(holder))
            holder[place], holder[other] = holder[other], holder[place]
        case 3 if isinstance(holder, dict):
            holder[random.choice([*holder, "name", "ts", "id"])] = holder[place]
        case 4 if isinstance(holder[place], int | float):
            factor = random.choice([-1, 0, 10**3, 10**6, 10**12])
            holder[place] = holder[place] * factor
        case 5:
            holder[place] = [holder[place]]
        case 6 if isinstance(holder[place], str):
            holder[place] += random.choice(["\x1b[31m", "\n", "\ud800", "0", "x" * 2000])
        case _:
            holder[place] = random.choice(ODD)


# Lines, each with text and JSON.


def _other_lines(data: bytes, random: Random) -> bytes:
    lines = data.split(b"\n")
    for _ in range(random.randint(1, MOST_CHANGES)):
        at = random.randrange(len(lines))
        match random.randrange(5):
            case 0:
                del lines[at]
            case 1:
                lines.insert(at, random.choice(lines))
            case 2:
                lines[at] = _other_bytes(lines[at], random)
            case _:
                start = lines[at].find(b"{")
                with suppress(ValueError):
                    lines[at] = lines[at][:start] + _other_json(lines[at][start:], random)
        lines = lines or [b""]
    return b"\n".join(lines)


# Fields of protobuf messages.


def _other_frames(data: bytes, random: Random) -> bytes:
    """Messages that follow their lengths."""
    frames, at = [], 0
    while at < len(data):
        length, begin = varint_at(data, at)
        frames.append(data[begin : begin + length])
        at = begin + length if begin else len(data)
    for _ in range(random.randint(1, MOST_CHANGES)):
        at = random.randrange(len(frames))
        match random.randrange(8):
            case 0 if len(frames) > 1:
                del frames[at]
            case 1:
                frames.insert(at, frames[at])
            case 2:
                other = random.randrange(len(frames))
                frames[at], frames[other] = frames[other], frames[at]
            case _:
                frames[at] = _other_message(frames[at], random)
    return b"".join(map(framed, frames))


def _other_message(data: bytes, random: Random) -> bytes:
    """A message with one other field, here or in a message inside it, also in a compressed one."""
    fields: list[tuple[int, int, Any]] = []
    for field in fields_of(data, 0, len(data)):
        if field is None:
            return _other_bytes(data, random)
        value = field.value if field.wire == VARINT else data[field.begin : field.end]
        fields.append((field.number, field.wire, value))
    if not fields:
        return random.choice([b"", b"\0", b"\x08\x01", bytes(20)])
    at = random.randrange(len(fields))
    number, wire, value = fields[at]
    match random.randrange(12):
        case 0:
            del fields[at]
        case 1:
            fields[at:at] = [fields[at]] * random.choice([1, 2, 200])
        case 2:
            fields[at] = (random.choice([1, 2, 3, 15, 16, 100, 2**20]), wire, value)
        case 3:
            fields[at] = fields[random.randrange(len(fields))]
        case _ if wire == DELIMITED:
            fields[at] = (number, wire, _other_content(value, random))
        case _:
            odd = random.choice([0, 1, 127, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1])
            fields[at] = (number, VARINT, odd)
    return b"".join(_field(*one) for one in fields)


def _other_content(value: bytes, random: Random) -> bytes:
    if value[:1] == b"\x78":
        with suppress(zlib.error):
            return zlib.compress(_other_message(zlib.decompress(value), random), 1)
    if value[:1] in (b"{", b"["):
        with suppress(ValueError, RecursionError):
            return _other_json(value, random)
    if value and all(field is not None for field in fields_of(value, 0, len(value))):
        return _other_message(value, random)
    return random.choice([b"", b"\xff\xfe", b"\x1b]0;x\x07", value * 2, value[:-1], b"n" * 3000])


def _field(number: int, wire: int, value: Any) -> bytes:
    if wire == DELIMITED:
        return delimited(number, value)
    if wire in (FIXED32, FIXED64):
        return key(number, wire) + value
    return key(number, VARINT) + varint(value & (1 << 64) - 1)


# Bytes, and archives around them.


def _other_bytes(data: bytes, random: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(random.randint(1, MOST_CHANGES)):
        at = random.randint(0, len(changed))
        end = min(len(changed), at + random.choice([1, 1, 2, 8, 300]))
        match random.randrange(7):
            case 0:
                del changed[at:end]
            case 1:
                changed[at:at] = changed[at:end]
            case 2:
                del changed[at:]
            case 3:
                changed[at:at] = random.choice(
                    [b"\0", b'"', b"{", b"}", b"[", b"]", b",", b"\\", b"\xff", b"\n"]
                )
            case 4:
                changed[at:at] = random.randbytes(random.choice([1, 4, 64]))
            case _ if at < len(changed):
                changed[at] = random.randrange(256)
            case _:
                pass
    return bytes(changed)


def _packed(name: str, data: bytes, random: Random) -> tuple[str, bytes]:
    """The file, sometimes compressed or in an archive, which may be damaged too."""
    how = random.random()
    if how < 0.85:
        return name, data
    if how < 0.93:
        name, data = f"{name}.gz", gzip.compress(data, 1, mtime=0)
    elif how < 0.97:
        stream = io.BytesIO()
        method = random.choice(
            [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2]
        )
        with zipfile.ZipFile(stream, "w", method) as archive:
            for member in (f"a/{name}", f"b/{name}"):
                archive.writestr(zipfile.ZipInfo(member), data)
        name, data = "a.zip", stream.getvalue()
    else:
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w") as archive_of_files:
            member_info = tarfile.TarInfo(name)
            member_info.size = len(data)
            archive_of_files.addfile(member_info, io.BytesIO(data))
        name, data = "a.tar", stream.getvalue()
    return name, _other_bytes(data, random) if random.random() < 0.5 else data
