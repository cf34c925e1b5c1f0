"""GPUs sampled by the programs of their makers: files that the `metrics` reader reads, whatever the programs do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from builders.metrics import read
from tracelink._model.metrics import Basis
from tracelink._record import gpu_process, gpus
from tracelink._record.files import Files
from tracelink._record.gpus import GpuSampler, chosen_gpus

PATIENCE_S = 30.0
NVIDIA = """cat <<END
index, uuid, utilization.gpu [%], memory.used [MiB], power.draw [W]
0, GPU-1bdee8b4-22ac, 56 %, 23028 MiB, 412.35 W
1, GPU-a2226185-cb05, 97 %, 40211 MiB, [N/A]
END
"""
ROCM = """cat <<END

WARNING: AMD GPU device(s) is/are in a low-power state. Check power control/runtime_status

device,GPU use (%),VRAM Total Memory (B),VRAM Total Used Memory (B)
card0,73,206158430208,18253611008
card1,0,206158430208,297795584
END
"""
AMD = """cat <<END
timestamp,gpu,power_usage,max_power,gfx,mem,vram_used,vram_total
1794984130,0,412,750,97,64,40211,196592
1794984130,1,141 W,750,N/A,0,283,196592
END
"""


@dataclass
class Scene:
    """A folder of traces, and programs on the PATH."""

    folder: Path
    programs: Path
    problems: list[str] = field(default_factory=list)

    def program(self, name: str, script: str) -> None:
        path = self.programs / name
        path.write_text(f"#!/bin/sh\n{script}")
        path.chmod(0o755)

    def sampled(self, until: Callable[[GpuSampler], bool], interval_s: float = 0.02) -> GpuSampler:
        """A sampler that ran until something was so."""
        sampler = GpuSampler(Files(self.folder, 10**9), 0, "node0", interval_s, self.problems.append)
        sampler.start()
        end = time.monotonic() + PATIENCE_S
        while not until(sampler) and time.monotonic() < end:
            time.sleep(0.01)
        sampler.stop()
        return sampler

    def last(self, program: str) -> dict[tuple[str, str], float]:
        """The last value of each device and metric that the `metrics` reader reads."""
        found = read((self.folder / f"{program}_0.csv").read_bytes(), f"{program}_0.csv")
        assert found.basis is Basis.EPOCH
        assert {gauge.host for gauge in found.gauges} == {"node0"}
        assert abs(found.counters.time[-1] / 1e9 - time.time()) < 60
        return {
            (found.gauges[track].device, found.gauges[track].name): value
            for track, value in zip(found.counters.track.tolist(), found.counters.value.tolist(), strict=True)
        }


def rounds(sampler: GpuSampler) -> int:
    return sum(len(table._rounds) for table in sampler._tables.values())


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    for name in ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(gpus, "DRIVERS", ())
    return Scene(tmp_path / "traces", programs)


def test_nvidia_smi_has_time_host_and_number_of_each_gpu(scene: Scene) -> None:
    scene.program("nvidia-smi", NVIDIA)
    scene.sampled(lambda sampler: rounds(sampler) >= 2)
    assert scene.last("nvidia-smi") == {
        ("0", "utilization.gpu"): 56,
        ("0", "memory.used"): 23028,
        ("0", "power.draw"): 412.35,
        ("1", "utilization.gpu"): 97,
        ("1", "memory.used"): 40211,
    }
    assert scene.problems == []


def test_the_query_asks_for_all_gpus_with_a_header(scene: Scene) -> None:
    scene.program("nvidia-smi", f'echo "$@" > {scene.programs}/asked; {NVIDIA}')
    scene.sampled(lambda sampler: rounds(sampler) >= 1)
    query, form = (scene.programs / "asked").read_text().split()
    assert query.startswith("--query-gpu=index,uuid,utilization.gpu,")
    assert form == "--format=csv"


def test_rocm_smi_is_read_below_its_warnings(scene: Scene) -> None:
    scene.program("rocm-smi", ROCM)
    scene.sampled(lambda sampler: rounds(sampler) >= 1)
    found = scene.last("rocm-smi")
    assert found["0", "GPU use"] == 73
    assert found["1", "VRAM Total Used Memory"] == 297795584


def test_amd_smi_is_preferred_and_its_whole_seconds_are_not_used(scene: Scene) -> None:
    scene.program("amd-smi", AMD)
    scene.program("rocm-smi", ROCM)
    scene.sampled(lambda sampler: rounds(sampler) >= 2)
    assert [path.name for path in scene.folder.iterdir()] == ["amd-smi_0.csv"]
    found = scene.last("amd-smi")
    assert (found["0", "gfx"], found["1", "power_usage"], ("1", "gfx") in found) == (97, 141, False)


def test_rocm_smi_takes_over_from_an_amd_smi_that_fails(scene: Scene) -> None:
    scene.program("amd-smi", "echo no permission >&2; exit 3")
    scene.program("rocm-smi", ROCM)
    scene.sampled(lambda sampler: rounds(sampler) >= 1)
    assert scene.problems == [
        "amd-smi: exit code 3: no permission",
        "amd-smi: exit code 3: no permission, again: it is not sampled any more",
    ]
    assert scene.last("rocm-smi")["0", "GPU use"] == 73


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("echo 'NVIDIA-SMI has failed: no driver'; exit 9", "exit code 9: NVIDIA-SMI has failed"),
        ("echo rubbish; echo '\\001\\002,\\377'; echo index", "it printed no table of GPUs, but: rubbish"),
        ("", "it printed no table of GPUs, but: nothing"),
        ("yes index,1", "it printed more than 1048576 bytes"),
        ("kill -9 $$", "exit code -9: nothing"),
    ],
)  # fmt: skip
def test_a_program_that_fails_is_reported_twice_and_not_used_again(
    scene: Scene, script: str, problem: str
) -> None:
    scene.program("nvidia-smi", script)
    scene.sampled(lambda sampler: len(scene.problems) >= 2)
    first, second = scene.problems
    assert first.startswith(f"nvidia-smi: {problem}")
    assert second == f"{first}, again: it is not sampled any more"
    assert not scene.folder.exists() or list(scene.folder.iterdir()) == []


def test_a_failure_now_and_then_is_reported_once(scene: Scene) -> None:
    count = scene.programs / "count"
    scene.program(
        "nvidia-smi",
        f"echo x >> {count}; if [ $(wc -l < {count}) = 2 ]; then echo busy; exit 1; fi; {NVIDIA}",
    )
    scene.sampled(lambda sampler: rounds(sampler) >= 3)
    assert scene.problems == ["nvidia-smi: exit code 1: busy"]


def test_a_program_that_is_missing_is_reported_if_there_are_gpus(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler = GpuSampler(Files(scene.folder, 10**9), 0, "node0", 1.0, scene.problems.append)
    assert not sampler.start()
    assert scene.problems == []
    monkeypatch.setattr(gpus, "DRIVERS", ((str(scene.programs), "nvidia-smi"),))
    assert not sampler.start()
    assert scene.problems == [
        f"GPUs are not sampled: {scene.programs} exists, but nvidia-smi is not on the PATH"
    ]
    sampler.stop()


def running(path: Path) -> bool:
    """Whether the process whose number is in a file still runs."""
    try:
        state = Path(f"/proc/{int(path.read_text())}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, ValueError):
        return False
    return state != "Z"


def hung(scene: Scene) -> Path:
    """A program that hangs, and the file of its number."""
    number = scene.programs / "number"
    scene.program("nvidia-smi", f"echo $$ > {number}.new; mv {number}.new {number}; sleep 600; true")
    return number


def test_a_program_that_hangs_is_killed(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    number = hung(scene)
    sampling = gpu_process.Sampling(os.getppid(), 0.01)
    monkeypatch.setattr(gpu_process, "PATIENCE_S", 0.3)
    monkeypatch.setattr(gpu_process, "SHARE", 1.0)
    answers = list(sampling.answers({"nvidia-smi": str(scene.programs / "nvidia-smi")}))
    assert [answer["problem"] for answer in answers] == [
        "it did not answer within 0.3 s",
        "it did not answer within 0.3 s, again: it is not sampled any more",
    ]
    assert not running(number)


def test_the_end_of_a_capture_does_not_wait_for_a_program_that_hangs(scene: Scene) -> None:
    number = hung(scene)
    scene.sampled(lambda sampler: number.exists())
    assert not running(number)
    assert scene.problems == []


JOB = """
import sys, time
from pathlib import Path
from tracelink._record.files import Files
from tracelink._record.gpus import GpuSampler
sampler = GpuSampler(Files(Path(sys.argv[1]), 10**9), 0, "node0", 0.05, print)
sampler.start()
print(sampler._process.pid, flush=True)
time.sleep(600)
"""


def test_nothing_outlives_a_job_that_is_killed(scene: Scene) -> None:
    number = hung(scene)
    job = subprocess.Popen([sys.executable, "-c", JOB, str(scene.folder)], stdout=subprocess.PIPE, text=True)
    assert job.stdout
    process = scene.programs / "process"
    process.write_text(job.stdout.readline())
    end = time.monotonic() + PATIENCE_S
    while not number.exists() and time.monotonic() < end:
        time.sleep(0.01)
    assert running(number)
    assert running(process)
    job.send_signal(signal.SIGKILL)
    job.wait()
    while (running(number) or running(process)) and time.monotonic() < end:
        time.sleep(0.05)
    assert (running(number), running(process)) == (False, False)
    job.stdout.close()


def test_gpus_are_numbered_as_the_job_sees_them(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-a2226185")
    scene.program("nvidia-smi", NVIDIA)
    scene.sampled(lambda sampler: rounds(sampler) >= 1)
    assert scene.last("nvidia-smi") == {("1", "utilization.gpu"): 97, ("1", "memory.used"): 40211}
    assert scene.problems == []


def test_all_gpus_are_written_if_none_is_chosen(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-7c2f")
    scene.program("nvidia-smi", NVIDIA)
    scene.sampled(lambda sampler: rounds(sampler) >= 2)
    assert {device for device, _ in scene.last("nvidia-smi")} == {"0", "1"}
    assert scene.problems == [
        "nvidia-smi: none of its GPUs is one of CUDA_VISIBLE_DEVICES; all are written, by their own numbers"
    ]


@pytest.mark.parametrize(
    ("program", "variables", "chosen"),
    [
        ("nvidia-smi", {}, None),
        ("nvidia-smi", {"CUDA_VISIBLE_DEVICES": "4, 5", "LOCAL_WORLD_SIZE": "2"}, ["4", "5"]),
        ("nvidia-smi", {"CUDA_VISIBLE_DEVICES": "4", "LOCAL_WORLD_SIZE": "2"}, None),
        ("amd-smi", {"ROCR_VISIBLE_DEVICES": "2,3,5", "HIP_VISIBLE_DEVICES": "2,0,7"}, ["5", "2"]),
        ("rocm-smi", {"HIP_VISIBLE_DEVICES": "1,0"}, ["1", "0"]),
    ],
)
def test_variables_choose_gpus(program: str, variables: Mapping[str, str], chosen: list[str] | None) -> None:
    assert chosen_gpus(program, variables) == chosen


def test_many_answers_are_thinned_out_and_changed_columns_have_a_header(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus, "MOST_ROUNDS", 4)
    sampler = GpuSampler(Files(scene.folder, 10**9), 0, "node0", 1.0, scene.problems.append)
    for second in range(9):
        header = ["gpu", "gfx", "xcp"] if second == 8 else ["gpu", "gfx"]
        row = ["0", str(second), "1"][: len(header)]
        sampler._take(gpus._Answer("amd-smi", "", 1794984130.0 + second, header, [row]))
    assert sampler._tables["amd-smi"].text().splitlines() == [
        "epoch_s,host,index,gfx",
        "1794984130.000,node0,0,0",
        "1794984134.000,node0,0,4",
        "epoch_s,host,index,gfx,xcp",
        "1794984138.000,node0,0,8,1",
    ]
