"""Archives of every damage."""

from __future__ import annotations

import contextlib
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.inputs import content, found, tar, zipped
from tracelink._model.errors import UnreadableError
from tracelink._model.findings import Finding, Severity

FILES = {"r0.json": b"zero" * 50, "r1.json": b"one" * 50, "r2.json": b"two" * 50}
METHODS = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2]


@pytest.fixture(scope="module", params=[*METHODS, "w", "w:gz"])
def archive(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("archive") / "a"
    if isinstance(request.param, str):
        return tar(path, FILES, request.param)
    return zipped(path, FILES, request.param)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_damage_of_any_byte_is_a_finding_or_an_error_of_a_member(archive: Path, data: Any) -> None:
    whole = bytearray(archive.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    damaged = archive.with_name("damaged")
    damaged.write_bytes(whole[: data.draw(st.integers(len(whole) // 2, len(whole)))])
    discovery = found(damaged)
    for source in discovery.sources:
        with contextlib.suppress(UnreadableError):
            content(source)
    for finding in discovery.findings:
        assert finding.severity in (Severity.ERROR, Severity.INFO)
        assert finding.source == str(damaged)


def test_a_name_that_is_not_utf8_in_the_directory_makes_a_zip_archive_unreadable(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", FILES)
    data = path.read_bytes()
    at = data.index(b"PK\x01\x02")
    path.write_bytes(data[: at + 8] + b"\0\x08" + data[at + 10 : at + 46] + b"\xff\xfe" + data[at + 48 :])
    (finding,) = found(path).findings
    assert finding.message == (
        f"{path}: the zip archive is damaged (a name in it is not valid UTF-8). Copy it again, or unpack it by other "
        "means and name the files in it."
    )


@pytest.mark.parametrize(
    ("at", "value", "problem"),
    [
        (6, b"\x01\0", "it is encrypted"),
        (8, b"\x63\0", "That compression method is not supported"),
        (30, b"x", "File name in directory 'r1.json' and header b'x1.json' differ"),
    ],
)
def test_a_damaged_member_costs_only_itself(tmp_path: Path, at: int, value: bytes, problem: str) -> None:
    path = zipped(tmp_path / "a.zip", FILES)
    data = bytearray(path.read_bytes())
    local, listed = data.index(b"r1.json") - 30, data.rindex(b"r1.json") - 46
    data[local + at : local + at + len(value)] = value
    if at < 30:
        data[listed + at + 2 : listed + at + 2 + len(value)] = value
    path.write_bytes(data)
    first, second, third = found(path).sources
    assert (content(first), content(third)) == (FILES["r0.json"], FILES["r2.json"])
    with pytest.raises(UnreadableError, match="the zip member cannot be read") as caught:
        content(second)
    assert problem in str(caught.value)


def test_a_member_without_a_name_is_a_member(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", {"q": b"content"})
    path.write_bytes(path.read_bytes().replace(b"q", b"\0"))
    (source,) = found(path).sources
    assert content(source) == b"content"


def test_a_damaged_header_in_a_tar_archive_costs_only_its_member(tmp_path: Path) -> None:
    path = tar(tmp_path / "a.tar", FILES)
    data = bytearray(path.read_bytes())
    cut = tar(tmp_path / "b.tar", FILES)
    data[1024 + 148 : 1024 + 156] = b"\xff" * 8
    path.write_bytes(data)
    discovery = found(path)
    assert [content(source) for source in discovery.sources] == [FILES["r0.json"], FILES["r2.json"]]
    problem = "there is no valid header at byte"
    cut.write_bytes(cut.read_bytes()[: 2 * 1024 + 200])
    truncated = found(cut)
    assert [content(source) for source in truncated.sources] == [FILES["r0.json"], FILES["r1.json"]]
    assert [finding.message for finding in [*discovery.findings, *truncated.findings]] == [
        f"{path}: the archive is damaged ({problem} 1,024); 2 files in it are used. Copy or pack it again.",
        f"{cut}: the archive is damaged ({problem} 2,048); 2 files in it are used. Copy or pack it again.",
    ]


def test_links_in_a_tar_archive_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    kinds = {"folder": tarfile.DIRTYPE, "r0.json": tarfile.SYMTYPE, "r1.json": tarfile.LNKTYPE}
    with tarfile.open(path, "w") as archive:
        for name, kind in kinds.items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "elsewhere"
            archive.addfile(member)
    discovery = found(path)
    assert discovery.sources == []
    assert discovery.findings == [
        Finding(
            Severity.INFO,
            "skipped",
            f"{path}: 2 links and sparse files were skipped. Unpack the archive.",
            2,
            str(path),
        )
    ]
