"""One folder with whatever was saved: found by content, at any depth; what is not used is listed and costs little."""

from __future__ import annotations

import resource
import tarfile
import zipfile
from pathlib import Path

from builders.dumps import dumps, hang
from builders.monitors import COMPILES, LOADS, MAIN, as_json, communicator, hung, py_spy
from tracelink import Diagnosis, diagnose
from tracelink._hang.facts.model import Kind
from tracelink._model.records import Frame


def used(found: Diagnosis) -> dict[str, int]:
    assert found.witnesses
    return {one.what: one.count for one in found.witnesses.used if one.purpose}


def unused(found: Diagnosis) -> dict[str, int]:
    assert found.witnesses
    return {one.what: one.count for one in found.witnesses.used if not one.purpose}


def junk(folder: Path) -> None:
    """What is next to the files of a hang: gigabytes that no reader knows."""
    folder.mkdir(parents=True)
    for name, start, size in (
        ("core.4711", b"\x7fELF\x02", 8 << 30),
        ("model.safetensors", b"\xff" + bytes(7) + b'{"a', 2 << 30),
    ):
        with (folder / name).open("wb") as file:
            file.write(start)
            file.truncate(size)
    with zipfile.ZipFile(folder / "model.pt", "w") as archive:
        archive.writestr("model/data.pkl", b"\x80\x02}q\0.")
        archive.writestr("model/version", "3\n")
        for number in range(20):
            archive.writestr(f"model/data/{number}", bytes(1 << 16))
    (folder / "optimizer.pkl").write_bytes(b"\x80\x04\x95" + bytes(5000))
    (folder / "plot.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    (folder / "stdout.log").write_bytes(b"")
    (folder / "config.yaml").write_text("lr: 0.1\n")


def saved(folder: Path) -> Path:
    dumps(folder / "node0" / "fr", hang(4))
    for rank, lines in hung(4, 2, sequence=3).items():
        path = folder / "logs" / f"rank_{rank}" / "stderr.log"
        path.parent.mkdir(parents=True)
        path.write_text("\n".join(["step 1", *lines]))
    (folder / "stacks").mkdir()
    (folder / "stacks" / "pyspy_rank_2.txt").write_text(py_spy(LOADS))
    (folder / "ras.json").write_bytes(as_json(communicator([3, 3, 2, 3])))
    junk(folder / "junk")
    return folder


def test_everything_is_found_and_what_is_not_used_is_listed(tmp_path: Path) -> None:
    found = diagnose(saved(tmp_path / "bundle"))
    assert [(problem.kind, problem.culprits) for problem in found.problems] == [(Kind.NEVER_JOINED, (2,))]
    assert used(found) == {
        "dumps": 4,
        "logs with watchdog lines": 4,
        "files with stacks": 1,
        "answers of NCCL's monitor": 1,
    }
    assert unused(found) == {
        "binary files": 5,
        "empty files": 1,
        "other texts": 1,
    }
    assert [(one.reason, one.count) for one in found.findings] == [("skipped", 6)]


def test_junk_takes_no_memory(tmp_path: Path) -> None:
    folder = saved(tmp_path / "bundle")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    diagnose(folder, jobs=1)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10


def test_an_archive_of_the_same(tmp_path: Path) -> None:
    folder = saved(tmp_path / "bundle")
    for name in ("core.4711", "model.safetensors"):
        (folder / "junk" / name).unlink()
    with tarfile.open(tmp_path / "bundle.tar.gz", "w:gz") as archive:
        archive.add(folder, "bundle")
    packed, plain = diagnose(tmp_path / "bundle.tar.gz"), diagnose(folder)
    assert [problem.message for problem in packed.problems] == [problem.message for problem in plain.problems]
    assert (used(packed), len(unused(packed))) == (used(plain), 3)


def test_dumps_alone_have_no_witnesses(tmp_path: Path) -> None:
    assert diagnose(dumps(tmp_path, hang(4))).witnesses is None


# Stacks of all ranks


def test_sections_of_the_debug_server(tmp_path: Path) -> None:
    sections = [
        f"=== Rank {rank}: http://node0:{25000 + rank} ===\n{py_spy(COMPILES if rank == 2 else LOADS)}"
        for rank in range(4)
    ]
    (tmp_path / "pyspy_20261119_140000.txt").write_text("\n".join(sections))
    found = diagnose([dumps(tmp_path / "dumps", hang(4)), tmp_path])
    assert found.witnesses
    assert [(one.ranks, one.in_compiler) for one in found.witnesses.stacks] == [
        ((2,), True),
        ((0, 1, 3), False),
    ]
    assert [stack.rank for stack in found.problems[0].stacks] == [2]


def test_several_processes_in_a_file(tmp_path: Path) -> None:
    text = (
        py_spy(LOADS).replace("Process 4711: ", "Process 1: python train.py --rank 1 x").replace("4711", "1")
    )
    other = py_spy(COMPILES).replace("4711", "2")
    (tmp_path / "all.txt").write_text(text + "\n" + other)
    found = diagnose([dumps(tmp_path / "dumps", hang(4)), tmp_path])
    assert found.witnesses
    assert [(one.ranks, one.processes) for one in found.witnesses.stacks] == [((), ("pid 2",)), ((1,), ())]


def test_native_frames(tmp_path: Path) -> None:
    native = (Frame("ncclGroupEnd", "libnccl.so.2", 0), *LOADS)
    text = py_spy(native).replace("(libnccl.so.2:0)", "(libnccl.so.2)")
    (tmp_path / "pyspy_rank_0.txt").write_text(text)
    found = diagnose([dumps(tmp_path / "dumps", hang(4)), tmp_path])
    assert found.witnesses
    assert found.witnesses.stacks[0].frames == native


def test_stacks_alone_do_not_decide(tmp_path: Path) -> None:
    for rank in range(3):
        (tmp_path / f"pyspy_rank_{rank}.txt").write_text(py_spy(COMPILES if rank == 1 else LOADS))
    found = diagnose(tmp_path)
    assert [(one.kind, one.culprits) for one in found.problems] == [(Kind.IN_FLIGHT, ())]
    assert found.problems[0].message.startswith(
        "Running or hung? Rank 1 in wait; ranks 0 and 2 in __next__. "
    )
    assert diagnose(tmp_path, hung=True).verdict == "problem"


def test_stacks_of_two_rounds_in_which_one_rank_is_not_in_a_call(tmp_path: Path) -> None:
    reduces = (Frame("all_reduce", "torch/distributed/distributed_c10d.py", 2806), *MAIN)
    for time in "12":
        (tmp_path / time).mkdir()
        for rank in range(3):
            (tmp_path / time / f"pyspy_rank_{rank}.txt").write_text(py_spy(LOADS if rank == 1 else reduces))
    (problem,) = diagnose(tmp_path).problems
    assert (problem.kind, problem.culprits, problem.proven) == (Kind.IN_FLIGHT, (1,), False)
    assert "Ranks 0-2 have the same stack in two files." in problem.message
    assert problem.advice == (
        "Find out why rank 1 is in __next__ (dataloader.py:700), while the others are in a call. "
        "Take flight-recorder dumps."
    )


def test_a_log_that_begins_like_metrics(tmp_path: Path) -> None:
    heads = ("# HELP x y\n# TYPE x gauge\nx 1\n", "loss 3.2\nlr 0.1\n" * 50, "step,loss,time\n1,2,3\n", "")
    for rank, lines in hung(4, 2).items():
        (tmp_path / f"rank_{rank}.log").write_text(heads[rank] + "\n".join(lines))
    found = diagnose(tmp_path)
    assert [problem.culprits for problem in found.problems] == [(2,)]
    assert used(found) == {"logs with watchdog lines": 4}
