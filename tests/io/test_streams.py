"""`tracelink._io.streams`."""

from __future__ import annotations

import gzip
import io
import random
import zipfile
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from isal import isal_zlib

from builders.inputs import zipped
from tracelink._io import streams
from tracelink._io.streams import Inflated, Unzipped

NOISE = random.Random(5).randbytes(400_000)
TEXT = b"".join(b'{"External id": %d}, ' % number for number in range(100_000))


@cache
def compressed_text() -> bytes:
    return gzip.compress(TEXT)


def inflated(compressed: bytes) -> tuple[bytes, str]:
    """The bytes inside, and what was wrong."""
    stream = Inflated(io.BytesIO(compressed))
    return b"".join(iter(lambda: stream.read(1 << 20), b"")), stream.damage


def test_small_members_are_not_given_all_that_follows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    class Watched:
        def __init__(self, wbits: int) -> None:
            self.member = isal_zlib.decompressobj(wbits=wbits)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.member, name)

        def decompress(self, data: bytes, limit: int) -> bytes:
            given.append(len(data))
            return self.member.decompress(data, limit)

    monkeypatch.setattr(streams, "isal_zlib", SimpleNamespace(decompressobj=Watched, error=isal_zlib.error))
    compressed = gzip.compress(b"x") * 20_000 + gzip.compress(TEXT)
    assert inflated(compressed) == (b"x" * 20_000 + TEXT, "")
    assert sum(given) <= 20_001 * streams.FIRST_STEP + len(compressed)


@pytest.mark.parametrize("data", [b"", b"x", TEXT, NOISE], ids=["empty", "byte", "text", "noise"])
def test_one_member(data: bytes) -> None:
    assert inflated(gzip.compress(data)) == (data, "")


def test_many_members() -> None:
    parts = [b"one", b"", TEXT, b"four", NOISE]
    assert inflated(b"".join(map(gzip.compress, parts))) == (b"".join(parts), "")


@pytest.mark.parametrize("zeros", [1, 512, 300_000])
def test_zeros_behind_the_last_member_are_padding(zeros: int) -> None:
    assert inflated(gzip.compress(b"one") + gzip.compress(b"two") + bytes(zeros)) == (b"onetwo", "")


@pytest.mark.parametrize("rest", [b"x", b"\x1f", b"\x1f\x8b", b"\0\0x", b"garbage" * 99])
def test_anything_else_behind_the_last_member_is_told(rest: bytes) -> None:
    data, damage = inflated(gzip.compress(b"one") + rest)
    assert data == b"one"
    assert damage in ("bytes that are no gzip member follow the last one", "the gzip stream is cut off")


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_a_cut_member_gives_what_stands_before_the_cut(data: st.DataObject) -> None:
    whole = compressed_text()
    cut = data.draw(st.integers(2, len(whole) - 1))
    found, damage = inflated(whole[:cut])
    assert TEXT.startswith(found)
    assert damage == "the gzip stream is cut off"
    assert len(found) > len(TEXT) * (cut - 70_000) / len(whole)


@pytest.mark.parametrize("data", [b"short", TEXT, NOISE], ids=["short", "text", "noise"])
@pytest.mark.parametrize("before", [[], [b"a member before"]])
def test_a_wrong_checksum_costs_no_byte(data: bytes, before: list[bytes]) -> None:
    broken = bytearray(gzip.compress(data))
    broken[-6] ^= 0xFF
    given, damage = inflated(b"".join(map(gzip.compress, before)) + bytes(broken))
    assert given == b"".join(before) + data
    assert damage.startswith("the gzip stream is broken (")


def test_a_broken_member_gives_what_stands_before_the_fault() -> None:
    broken = bytearray(gzip.compress(NOISE))
    fault = len(broken) * 9 // 10
    broken[fault : fault + 64] = bytes(64)
    given, damage = inflated(bytes(broken))
    assert given[: len(NOISE) * 8 // 10] == NOISE[: len(NOISE) * 8 // 10]
    assert damage.startswith("the gzip stream is broken (")


def test_closing_closes_the_compressed_stream() -> None:
    compressed = io.BytesIO(gzip.compress(b"one"))
    Inflated(compressed).close()
    assert compressed.closed


def unzipped(path: Path) -> tuple[bytes, str]:
    with zipfile.ZipFile(path) as archive:
        stream = Unzipped(archive, archive.infolist()[0])
        return b"".join(iter(lambda: stream.read(1 << 20), b"")), stream.damage


@pytest.mark.parametrize("how", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_member_of_a_zip_archive(tmp_path: Path, how: int) -> None:
    assert unzipped(zipped(tmp_path / "a.zip", {"a.json": TEXT}, how)) == (TEXT, "")


@pytest.mark.parametrize("data", [b"short", NOISE], ids=["short", "noise"])
@pytest.mark.parametrize("how", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_wrong_checksum_of_a_zip_member_costs_no_byte(tmp_path: Path, how: int, data: bytes) -> None:
    path = zipped(tmp_path / "a.zip", {"a.json": data}, how)
    archive = bytearray(path.read_bytes())
    archive[archive.index(b"PK\x01\x02") + 16] ^= 0xFF
    path.write_bytes(archive)
    given, damage = unzipped(path)
    assert given == data
    assert damage.startswith("the zip member is broken (Bad CRC-32")


def test_a_broken_zip_member_gives_what_stands_before_the_fault(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", {"a.json": TEXT})
    archive = bytearray(path.read_bytes())
    place = len(archive) // 2
    archive[place : place + 64] = bytes(64)
    path.write_bytes(archive)
    data, damage = unzipped(path)
    assert data[: len(TEXT) // 3] == TEXT[: len(TEXT) // 3]
    assert damage.startswith("the zip member is broken (")
