"""Sources in remote stores: the same as local files."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from builders.inputs import content, found, tar, zipped
from builders.stores import BUCKET, S3, Web
from tracelink._io.sources import Discovery

SAMPLES = Path(__file__).parents[3] / "samples"


def below(discovery: Discovery, root: str) -> dict[str, bytes]:
    """The contents of all sources by their paths below a root."""
    assert all(source.path.startswith(root) for source in discovery.sources)
    return {source.path.removeprefix(root): content(source) for source in discovery.sources}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with everything that inputs can be."""
    folder = tmp_path / "run"
    (folder / "rank_1" / ".git").mkdir(parents=True)
    (folder / "rank_1" / "trace.json").write_bytes(b"[1]" * 100_000)
    (folder / "rank_1" / ".git" / "hidden").write_bytes(b"")
    (folder / ".hidden").write_bytes(b"")
    (folder / "empty.json").write_bytes(b"")
    zipped(folder / "z.zip", {"rank2.json": b"two" * 1000, "b/rank3.json": b"three"})
    tar(folder / "plain.tar", {"rank4.json": b"four" * 1000})
    tar(folder / "packed.tgz", {"rank5.json": b"five" * 1000}, "w:gz")
    return folder


def test_a_folder_in_s3_is_read_as_a_local_one(s3: S3, files: Path) -> None:
    s3.put(files, "run/")
    expected = below(found(files), f"{files}/")
    assert sorted(expected) == [
        "empty.json",
        "packed.tgz:rank5.json",
        "plain.tar:rank4.json",
        "rank_1/trace.json",
        "z.zip:b/rank3.json",
        "z.zip:rank2.json",
    ]
    for address in (f"s3://{BUCKET}/run", f"s3://{BUCKET}/run/", f"s3://{BUCKET}"):
        assert below(found(address), f"s3://{BUCKET}/run/") == expected


@pytest.mark.parametrize("in_ranges", [True, False])
def test_a_folder_on_the_web_is_read_as_a_local_one(web: Web, files: Path, in_ranges: bool) -> None:
    web.put(files, "run/")
    web.in_ranges = in_ranges
    expected = below(found(files), f"{files}/")
    for address in (web.url("run"), web.url("run/"), web.url()):
        assert below(found(address), web.url("run/")) == expected


def test_sources_are_values_that_other_processes_can_open(s3: S3, web: Web, files: Path) -> None:
    s3.put(files, "run/")
    web.put(files, "run/")
    web.objects["whole/a.json"] = b"text"
    for address in (str(files), f"s3://{BUCKET}/run", web.url("run")):
        sources = found(address).sources
        copies = pickle.loads(pickle.dumps(sources))
        assert [copy.path for copy in copies] == [source.path for source in sources]
        assert [content(copy) for copy in copies] == [content(source) for source in sources]
        for copy in copies:
            copy.stamp.check()
