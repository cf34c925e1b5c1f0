"""`tracelink._io.sources`."""

from __future__ import annotations

import gzip
import io
import os
import sys
import tarfile
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest

from builders.inputs import content, found, names, tar, zipped
from tracelink._io.names import RankHint, host_in_path, rank_in_name, rank_in_path, resolve_rank
from tracelink._io.sources import (
    Discovery,
    Request,
    Source,
    archive_of,
    discover,
    only_with_prefix,
)
from tracelink._model.errors import RankConflictError, UnreadableError, UsageError
from tracelink._model.findings import Finding, Severity

# From what the user typed to sources: files, folders, patterns, archives, streams.


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "rank3.json"
    path.write_bytes(b"{}")
    (source,) = found(path).sources
    assert (source.path, source.name, source.bytes) == (str(path), "rank3.json", 2)
    assert (source.local, source.named, source.rank) == (path, True, None)
    assert source.rank_hint == RankHint(3, certain=True)
    assert content(source) == b"{}"


def test_a_folder_holds_every_file_in_it_in_order_except_hidden_ones(tmp_path: Path) -> None:
    for name in ("b.json", "a/2.json", "a/10.json", ".hidden", ".git/config", "a/.DS_Store"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"{}")
    discovery = found(tmp_path)
    assert names(discovery, tmp_path) == ["a/10.json", "a/2.json", "b.json"]
    assert not any(source.named for source in discovery.sources)


def test_a_hidden_file_or_folder_that_is_named_is_read(tmp_path: Path) -> None:
    (tmp_path / ".runs").mkdir()
    (tmp_path / ".runs" / "a.json").write_bytes(b"{}")
    (tmp_path / ".b.json").write_bytes(b"{}")
    assert names(found(tmp_path / ".runs", tmp_path / ".b.json"), tmp_path) == [".runs/a.json", ".b.json"]


def test_a_pattern(tmp_path: Path) -> None:
    for name in ("r0.json", "r1.json", "r1.txt", "deep/r2.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"{}")
    assert names(found(tmp_path / "r*.json"), tmp_path) == ["r0.json", "r1.json"]
    assert names(found(tmp_path / "**" / "*.json"), tmp_path) == ["deep/r2.json", "r0.json", "r1.json"]
    assert names(found(tmp_path / "d*"), tmp_path) == ["deep/r2.json"]


def test_a_file_whose_name_looks_like_a_pattern(tmp_path: Path) -> None:
    (tmp_path / "rank[3].json").write_bytes(b"{}")
    assert names(found(tmp_path / "rank[3].json"), tmp_path) == ["rank[3].json"]


def test_what_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no such file or directory"):
        found(tmp_path / "nothing")
    with pytest.raises(UsageError, match="there is no such file or directory"):
        found(tmp_path / "*.json")


def test_a_source_that_is_named_twice_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"{}")
    assert names(found(tmp_path, tmp_path / "a.json", tmp_path / "*.json"), tmp_path) == ["a.json"]
    twice = discover(Request([(str(tmp_path), "kineto"), (str(tmp_path), "chakra")]))
    assert [source.format for source in twice.sources] == ["kineto", "chakra"]


def test_compression_is_found_by_content_not_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(gzip.compress(b"{}"))
    (tmp_path / "b.json.gz").write_bytes(b"{}")
    assert [content(source) for source in found(tmp_path).sources] == [b"{}", b"{}"]


MEMBERS = {"rank1.json.gz": gzip.compress(b"one"), "deep/rank0.json": b"zero", "deep/rank2.json": b"two"}
CONTENT = [("deep/rank0.json", b"zero"), ("deep/rank2.json", b"two"), ("rank1.json.gz", b"one")]


def read_archive(path: Path) -> list[tuple[str, bytes]]:
    discovery = found(path)
    assert discovery.findings == []
    assert all(source.local is None and not source.named for source in discovery.sources)
    return [(source.path.removeprefix(f"{path}:"), content(source)) for source in discovery.sources]


@pytest.mark.parametrize("how", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
def test_a_zip_archive(tmp_path: Path, how: int) -> None:
    assert read_archive(zipped(tmp_path / "job.whatever", MEMBERS, how)) == CONTENT


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_a_tar_archive(tmp_path: Path, mode: str) -> None:
    assert read_archive(tar(tmp_path / "job.whatever", MEMBERS, mode)) == CONTENT


def test_members_can_be_read_side_by_side(tmp_path: Path) -> None:
    sources = found(tar(tmp_path / "a.tar", MEMBERS), zipped(tmp_path / "b.zip", MEMBERS)).sources
    streams = [source.open() for source in sources]
    bytewise = [b"", b"", b"", b"", b"", b""]
    for _ in range(5):
        bytewise = [given + stream.read(1) for given, stream in zip(bytewise, streams, strict=True)]
    assert bytewise == 2 * [data for _, data in CONTENT]


def test_an_empty_archive_has_no_sources(tmp_path: Path) -> None:
    discovery = found(zipped(tmp_path / "a.zip", {}))
    assert (discovery.sources, discovery.findings) == ([], [])


def test_a_rank_in_the_name_of_a_member_or_of_a_folder_around_it(tmp_path: Path) -> None:
    sources = found(zipped(tmp_path / "rank9.zip", MEMBERS)).sources
    assert [source.rank_hint for source in sources] == [RankHint(rank, certain=True) for rank in (0, 2, 1)]


def test_links_to_nothing_and_to_themselves_cost_only_themselves(tmp_path: Path) -> None:
    (tmp_path / "gone.json").symlink_to(tmp_path / "nothing")
    (tmp_path / "loop.json").symlink_to(tmp_path / "loop.json")
    (tmp_path / "kept.json").write_bytes(b"{}")
    (tmp_path / "link.json").symlink_to(tmp_path / "kept.json")
    (tmp_path / "again").symlink_to(tmp_path)
    advice = "a symbolic link to a file that does not exist. Restore the file or remove the link."
    links = [
        Finding(Severity.ERROR, "unreadable", f"{path}: {advice}", source=str(path))
        for path in (tmp_path / "gone.json", tmp_path / "loop.json")
    ]
    folders = Finding(
        Severity.INFO,
        "skipped",
        "1 symbolic links to folders were not followed. Name the folders to read them.",
        example=str(tmp_path / "again"),
    )
    discovery = found(tmp_path)
    assert names(discovery, tmp_path) == ["kept.json", "link.json"]
    assert sorted(discovery.findings, key=lambda finding: finding.message) == sorted(
        [*links, folders], key=lambda finding: finding.message
    )
    for named in (found(tmp_path / "gone.json", tmp_path / "loop.json"), found(tmp_path / "[gl]*o*.json")):
        assert (named.sources, named.findings) == ([], links)


def test_a_file_that_changed_since_it_was_found_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"{}")
    os.utime(path, ns=(0, 0))
    (source,) = found(path).sources
    path.write_bytes(b"[]")
    with pytest.raises(UnreadableError, match="was changed since it was first read") as caught:
        content(source)
    assert caught.value.source == str(path)
    os.utime(path, ns=(0, 0))
    assert content(source) == b"[]"
    stream = source.open()
    path.write_bytes(b"{} ")
    with pytest.raises(UnreadableError, match="was changed"):
        stream.__exit__(None)
    path.unlink()
    with pytest.raises(UnreadableError, match="was removed since it was first read"):
        content(source)


@pytest.mark.parametrize("pack", [zipped, tar])
def test_an_archive_that_changed_since_it_was_found_is_an_error(tmp_path: Path, pack: Any) -> None:
    path = pack(tmp_path / "job", MEMBERS)
    sources = found(path).sources
    with path.open("ab") as archive:
        archive.write(b" ")
    for source in sources:
        with pytest.raises(UnreadableError, match="was changed since it was first read") as caught:
            content(source)
        assert caught.value.source == str(path)


def test_uncompressed_bytes_are_limited(tmp_path: Path) -> None:
    data = bytes(4000)
    (tmp_path / "plain").write_bytes(data)
    (tmp_path / "b.gz").write_bytes(gzip.compress(data))
    zipped(tmp_path / "c.zip", {"c": data, "small": b"1"})
    tar(tmp_path / "d.tgz", {"d": data}, "w:gz")
    discovery = discover(Request([(str(tmp_path), "")], max_unpacked=3999))
    outcomes: list[tuple[str, int | str]] = []
    for source in discovery.sources:
        try:
            outcomes.append((source.path.removeprefix(f"{tmp_path}/"), len(content(source))))
        except UnreadableError as error:
            outcomes.append((source.path.removeprefix(f"{tmp_path}/"), error.problem))
    too_large = "it has more than 4.0 kB uncompressed"
    assert outcomes == [("b.gz", too_large), ("c.zip:c", too_large), ("c.zip:small", 1), ("plain", 4000)]
    (finding,) = discovery.findings
    assert finding.message == (
        f"{tmp_path}/d.tgz: {too_large}. No trace should be that large. If it is one, raise the limit with "
        "--max-unpacked."
    )


def test_a_pipe_is_limited_too(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(bytes(5000)))
    writer.start()
    with pytest.raises(UnreadableError, match=r"it has more than 4\.0 kB uncompressed"):
        discover(Request([(str(pipe), "")], max_unpacked=4000))
    writer.join()


def test_a_damaged_archive_costs_only_itself(tmp_path: Path) -> None:
    zipped(tmp_path / "a.zip", MEMBERS).write_bytes(b"PK\x03\x04 and nothing more")
    (tmp_path / "b.json").write_bytes(b"{}")
    discovery = found(tmp_path)
    assert names(discovery, tmp_path) == ["b.json"]
    (finding,) = discovery.findings
    assert (finding.severity, finding.reason, finding.source) == (
        Severity.ERROR,
        "unreadable",
        str(tmp_path / "a.zip"),
    )


def test_a_cut_tar_archive_gives_the_members_before_the_cut(tmp_path: Path) -> None:
    members = {f"{number}.json": bytes([65 + number]) * 3000 for number in range(5)}
    path = tar(tmp_path / "a.tar", members)
    path.write_bytes(path.read_bytes()[:9_000])
    discovery = found(path)
    assert [content(source)[:2] for source in discovery.sources] == [b"AA", b"BB", b"CC"]
    assert [len(content(source)) for source in discovery.sources][:2] == [3000, 3000]
    assert [finding.reason for finding in discovery.findings] == ["unreadable"]


def test_an_encrypted_member_cannot_be_opened(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", {"a.json": b"{}"})
    archive = bytearray(path.read_bytes())
    for magic, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        archive[archive.index(magic) + flags] |= 1
    path.write_bytes(archive)
    (source,) = found(path).sources
    with pytest.raises(UnreadableError, match="encrypted"):
        source.head()


def test_a_file_that_the_system_refuses_to_read_costs_only_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.json").write_bytes(b"{}")
    (tmp_path / "b.json").write_bytes(b"{}")
    opened = Path.open

    def refusing(path: Path, *arguments: object, **more: object) -> object:
        if path.name == "a.json":
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *arguments, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", refusing)
    discovery = found(tmp_path)
    path = tmp_path / "a.json"
    message = f"{path}: Permission denied. Check that the file can be read."
    assert names(discovery, tmp_path) == ["b.json"]
    assert discovery.findings == [Finding(Severity.ERROR, "unreadable", message, source=str(path))]


def read_twice(source: Source) -> tuple[bytes, bytes]:
    return source.head(4), content(source)


def test_standard_input_can_be_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    data = gzip.compress(b"from a pipe")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    (source,) = found("-").sources
    assert (source.path, source.bytes, source.local) == ("-", len(data), None)
    assert read_twice(source) == (b"from", b"from a pipe")


def test_a_named_pipe_can_be_read_again(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"from a pipe",))
    writer.start()
    (source,) = found(path).sources
    writer.join()
    assert read_twice(source) == (b"from", b"from a pipe")


def test_ranks_by_path_or_name(tmp_path: Path) -> None:
    for name in ("a.json", "b.json", "c.json"):
        (tmp_path / name).write_bytes(b"{}")
    said = {str(tmp_path / "a.json"): 4, "b.json": 5}
    assert [source.rank for source in found(tmp_path, **said).sources] == [4, 5, None]


def test_a_rank_for_a_file_that_is_not_among_the_inputs(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"{}")
    with pytest.raises(
        UsageError, match=r"a rank is given for b\.json, c\.json, which is not among the inputs"
    ):
        found(tmp_path, **{"c.json": 1, "b.json": 2, "a.json": 0})


def test_a_rank_for_a_name_that_fits_two_files(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.json").write_bytes(b"{}")
    with pytest.raises(
        UsageError, match=r"a rank is given for a\.json, which fits .*one/a\.json and .*two/a\.json"
    ):
        found(tmp_path, **{"a.json": 1})
    exact = {str(tmp_path / "one" / "a.json"): 1, str(tmp_path / "two" / "a.json"): 2}
    assert [source.rank for source in found(tmp_path, **exact).sources] == [1, 2]


def test_skipping_and_limits_are_the_same_however_the_bytes_are_stored(tmp_path: Path) -> None:
    data = bytes(range(256)) * 5000
    (tmp_path / "a").write_bytes(data)
    (tmp_path / "b").write_bytes(gzip.compress(data))
    for source in [*found(tmp_path).sources, *found(zipped(tmp_path / "c.zip", {"c": data})).sources]:
        with source.open() as stream:
            stream.skip(1_000_003)
            assert stream.read(4) == data[1_000_003:1_000_007]
        with source.open() as stream, pytest.raises(UnreadableError, match="more than 1 MB"):
            stream.read_all(1 << 20)


def test_archives_of_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracelink._io.archives.MEMBERS", 2)
    (tmp_path / "a").mkdir()
    discovery = found(zipped(tmp_path / "a" / "a.zip", MEMBERS), tar(tmp_path / "a" / "b.tar", MEMBERS))
    assert discovery.sources == []
    assert [finding.message for finding in discovery.findings] == [
        f"{tmp_path}/a/{name}: an archive of more than 2 files. Unpack what you need."
        for name in ("a.zip", "b.tar")
    ]


def test_members_that_are_no_files_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
    assert found(path).sources == []


# The rank of a file: content, name and user must agree; a guess from the name counts only where nobody says.


SAID = {
    "rank0_trace.json": 0,
    "rank-0.json.gz": 0,
    "rank-12.Apr_03_18_51_38.1102.pt.trace.json.gz": 12,
    "graph_capture_rank_7.1694128201545.pt.trace.json.gz": 7,
    "trace_rank[5].json": 5,
    "RANK=3.json": 3,
    "nccl_trace_rank_17": 17,
    "nccl_trace_rank_node-7_3": 3,
    "comm_lib_trace_rank_2": 2,
}
GUESSED = {
    "kineto_trace_4.json": 4,
    "worker0_step_12.1694128201545.pt.trace.json": 0,
    "r1t03_53384.1694128201545.pt.trace.json": None,
    "host.3.json": 3,
    "device.3.json": 3,
    "et_6.json": 6,
    "gpu2.json": 2,
    "k_0.json": 0,
    "k3.json": 3,
    "trace_k_0.json": 0,
    "profile_r5.json.gz": 5,
    "job-r-7.json": 7,
    "pt_2.json": 2,
    "r_3.1694128201545.pt.trace.json": 3,
}
SILENT = [
    "node7_53384.1694128201545012345.pt.trace.json.gz",
    "1727-TP-0-DP-0-PP-0-EP-0-DECODE.trace.json.gz",
    "trace.json",
    "ranking.json",
    "resnet50_k400.json",
    "trace_k400.json",
    "facebook_timesformer-base-finetuned-k400__1016002.json.gz",
    "llama3-8b.json",
    "faster_rcnn_r50.json",
    "model-pt2.json",
    "k_400_classes.json",
    "sampling_top_k_50.json",
    "llama-lora-rank16.json",
    "lowrank_64.json",
    "rank.json",
    "",
]


@pytest.mark.parametrize("name", SAID)
def test_names_that_say_the_rank(name: str) -> None:
    assert rank_in_name(name) == RankHint(SAID[name], certain=True)


@pytest.mark.parametrize("name", GUESSED)
def test_names_that_hint_at_the_rank(name: str) -> None:
    rank = GUESSED[name]
    assert rank_in_name(name) == (None if rank is None else RankHint(rank, certain=False))


@pytest.mark.parametrize("name", SILENT)
def test_names_that_say_nothing(name: str) -> None:
    assert rank_in_name(name) is None


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("node0/rank_3/fr_dump.pickle", RankHint(3, certain=False)),
        ("Rank3/dump", RankHint(3, certain=False)),
        ("job/rank=12/attempt_0/fr_dump.pickle", RankHint(12, certain=False)),
        ("dumps/global_rank_7/fr_dump.json", RankHint(7, certain=False)),
        ("dumps.tar:node1/rank4/fr_dump", RankHint(4, certain=False)),
        ("rank_1/rank_2/dump", RankHint(2, certain=False)),
        ("rank_3/trace_55.json", RankHint(3, certain=False)),
        ("rank_3/comm_lib_trace_rank_5", RankHint(5, certain=True)),
        ("rank_3/job.5.et", RankHint(5, certain=False)),
        ("local_rank_3/dump", None),
        ("lora_rank_8/dump", None),
        ("r3/dump", None),
        ("rank_0-7/dump", None),
        ("ranks/dump", None),
        ("rank_3_of_8/dump", None),
        ("rank_3", RankHint(3, certain=True)),
    ],
)
def test_folder_of_a_rank(path: str, hint: RankHint | None) -> None:
    assert rank_in_path(path) == hint


@pytest.mark.parametrize(
    ("path", "host"),
    [
        ("dumps/node0/rank_3/fr_dump", "node0"),
        ("gpu-node-17/dump_3", "gpu-node-17"),
        ("dumps.tar:host-a.example.org/rank_3", "host-a.example.org"),
        ("ip-10-0-3-17/rank_3", "ip-10-0-3-17"),
        ("node0/nccl_trace_rank_container-node02_5", "container-node02"),
        ("nodes/rank_3", ""),
        ("hosts_of_job/rank_3", ""),
        ("attempt_0/rank_3", ""),
        ("rank_3_5", ""),
    ],
)
def test_host(path: str, host: str) -> None:
    assert host_in_path(path) == host


NAMED_3 = RankHint(3, certain=True)
GUESSED_4 = RankHint(4, certain=False)


@pytest.mark.parametrize(
    ("content", "name", "requested", "rank"),
    [
        (None, None, None, None),
        (2, None, None, 2),
        (None, NAMED_3, None, 3),
        (None, GUESSED_4, None, 4),
        (None, None, 5, 5),
        (3, NAMED_3, 3, 3),
        (2, GUESSED_4, None, 2),
        (None, GUESSED_4, 5, 5),
        (0, None, 0, 0),
        (2, None, 5, 5),
        (None, NAMED_3, 5, 5),
        (0, NAMED_3, 0, 0),
    ],
)
def test_one_rank_out_of_all_statements(
    content: int | None, name: RankHint | None, requested: int | None, rank: int | None
) -> None:
    assert resolve_rank("f.json", content=content, name=name, requested=requested) == rank


def test_content_and_name_that_differ_are_an_error_unless_the_user_gives_the_rank() -> None:
    with pytest.raises(RankConflictError) as caught:
        resolve_rank("job/f_rank3.json", content=2, name=NAMED_3, requested=None)
    assert str(caught.value) == (
        "job/f_rank3.json: the rank is contradictory: the content says 2, the name says 3. "
        "Rename the file, or set its rank: --rank job/f_rank3.json=N"
    )


def test_a_path_that_does_not_exist_may_be_misspelt(tmp_path: Path) -> None:
    (tmp_path / "traces" / "rank_0").mkdir(parents=True)
    for path, similar in (
        ("trace", "traces"),
        ("traces/rank_O", "traces/rank_0"),
        ("trase/x.json", "traces"),
    ):
        with pytest.raises(UsageError) as caught:
            found(str(tmp_path / path))
        assert caught.value.advice == f"Did you mean {tmp_path / similar}?"
    with pytest.raises(UsageError, match=r"there is no such file or directory\. Check the path\."):
        found(str(tmp_path / "entirely" / "different"))


# Dumps of one job among those of several, by how their names begin.


def discovery(*paths: str, rank: int | None = None) -> Discovery:
    return Discovery([Source(path, io.BytesIO, rank=rank) for path in paths])


def ranks(found: Discovery) -> dict[str, int | None]:
    return {
        source.path: source.prefix_rank if source.rank is None else source.rank for source in found.sources
    }


def test_the_number_that_follows_is_the_rank() -> None:
    found = only_with_prefix(discovery("d/a_0", "d/a_17.pkl", "d/a_x3"), "a_")
    assert (ranks(found), found.findings) == ({"d/a_0": 0, "d/a_17.pkl": 17, "d/a_x3": None}, [])


def test_what_the_user_says_of_a_rank_stays() -> None:
    assert ranks(only_with_prefix(discovery("a_0", rank=5), "a_")) == {"a_0": 5}


def test_only_the_name_counts_and_not_the_folder() -> None:
    assert ranks(only_with_prefix(discovery("a_/b_1", "b/a_2", "x.zip:a_3"), "a_")) == {
        "b/a_2": 2,
        "x.zip:a_3": 3,
    }


def test_what_is_passed_over_is_said() -> None:
    (finding,) = only_with_prefix(discovery("a_0", "b_0", "b_1"), "a_").findings
    assert (finding.severity, finding.reason, finding.count, finding.example) == (
        Severity.INFO,
        "other_prefix",
        2,
        "b_0",
    )


def test_a_prefix_that_nothing_has() -> None:
    with pytest.raises(UsageError, match=r"no file's name begins with 'c_'. There are: a_0, b_0."):
        only_with_prefix(discovery("a_0", "b_0"), "c_")


@pytest.mark.parametrize(
    ("path", "archive"),
    [
        ("{}/a.zip:job/k_0.json", "{}/a.zip"),
        ("{}/a.zip:job:1/k_0.json", "{}/a.zip"),
        ("{}/a.zip", ""),
        ("{}/b:c.zip:k_0.json", "{}/b:c.zip"),
        ("C:/traces/k_0.json", ""),
        ("-", ""),
    ],
)
def test_the_archive_of_a_member(tmp_path: Path, path: str, archive: str) -> None:
    for name in ("a.zip", "b:c.zip"):
        (tmp_path / name).touch()
    assert archive_of(path.format(tmp_path)) == archive.format(tmp_path)
