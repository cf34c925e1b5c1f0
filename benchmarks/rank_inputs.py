"""Jobs of many ranks: synthetic, so that all is known of them; with long profiles where speed is measured.

A long profile is that of the synthetic job with a real rank's work behind it: the same text for every rank but for
process, device and the base of its times, so that 128 profiles of 25 MB are there in half a minute. Communications of
the real rank are left out: those of the job are the only ones.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple
from decimal import Decimal
from pathlib import Path
from typing import Any

import inputs
import orjson
from inputs import Input, Step, Template

import generators
from builders.recorder import pickled
from generators.files import KINETO, Kept, write_files
from generators.fleet_dumps import Fleet, write_dumps
from generators.job import BASE_NS, DEVICE_COUNT, Cluster
from generators.kineto import process_number
from generators.training import simulate

PROCESS, DEVICE = b"7777777771", b"7777777772"
"""Stand for the numbers of a rank's process and device."""

COMMUNICATIONS = ("nccl", "c10d::", "record_param_comms")
GENERATORS = (Path(__file__), *sorted(Path(str(generators.__file__)).parent.glob("*.py")))
"""What the inputs depend on besides their originals."""

LAUNCH_FLOW = "ac2g"


class Work:
    """What a real rank did besides communicating, over and over from `begin_ns` on."""

    def __init__(self, original: Path, size: int, begin_ns: int) -> None:
        events = inputs.parsed(original)["traceEvents"]
        process = next(event["pid"] for event in events if event.get("cat") == "cpu_op")
        names = [event for event in events if event["name"] == "thread_name" and event["pid"] == process]
        kept = without_communications([event for event in events if not inputs.is_once_per_run(event)])
        length = inputs.duration(kept) + inputs.GAP_NS
        # The ids of the job come before those of the first copy, which is number 1.
        later = Decimal(begin_ns - length) / 1000 - min(event["ts"] for event in kept)
        template = Template(texts(placed(event, process, later) for event in kept))
        step = Step(template.greatest_id + 1, length)
        self.copies = max(1, round(size / len(template.copy(1, step))))
        copies = (template.copy(number, step) for number in range(1, self.copies + 1))
        named = inputs.settled(texts(placed(event, process, later) for event in names))
        self.text = b",\n".join([named, *copies])
        assert self.text.count(PROCESS) > self.text.count(DEVICE) > 0

    def of(self, process: int, device: int) -> bytes:
        """The events of a rank with this process and device."""
        return self.text.replace(PROCESS, b"%d" % process).replace(DEVICE, b"%d" % device)


def texts(events: Iterator[dict[str, Any]]) -> str:
    """Events as text with their ids and times marked."""
    return inputs.joined(inputs.event_text(inputs.marked_event(event)) for event in events)


def placed(event: dict[str, Any], process: int, later: Decimal) -> dict[str, Any]:
    """The event on the rank's own process or device, so many microseconds later."""
    number = PROCESS if event["pid"] == process else DEVICE
    return {**event, "pid": int(number), "ts": event["ts"] + later}


def without_communications(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """All other events; the launches of what is left out go too."""
    left_out = {
        event["args"]["correlation"]
        for event in events
        if event.get("cat") == "kernel" and event["name"].startswith(COMMUNICATIONS)
    }
    return [
        event
        for event in events
        if not event["name"].startswith(COMMUNICATIONS) and correlation(event) not in left_out
    ]


def correlation(event: dict[str, Any]) -> int | None:
    """By what an event is joined to others across CPU and GPU."""
    if event.get("cat") == LAUNCH_FLOW:
        return int(event["id"])
    found: int | None = event.get("args", {}).get("correlation")
    return found


def long_profiles(ranks: int, size: int) -> list[Input]:
    """The profiles of a job, each of about `size` bytes."""
    original = inputs.source("kineto/nccl_data.json.gz", "gpu_pair/kineto_0.json.gz")

    def fill(folder: Path) -> int:
        job = Cluster(ranks=ranks, tensor_parallel=min(4, ranks // 2), sequence_numbers=True, layers=4)
        recordings = simulate(job)
        end = max(recording.window[1] for recording in recordings)
        work = Work(original, size, end - BASE_NS + inputs.GAP_NS)

        def padding(rank: int) -> bytes:
            return work.of(process_number(job, rank), job.place(rank) % DEVICE_COUNT)

        write_files(job, recordings, folder, Kept(sources=[KINETO]), padding=padding)
        return work.copies

    folder, copies = inputs.cached(f"ranks-{ranks}-{size}", (original, *GENERATORS), fill)
    paths = [folder / f"kineto_{rank}.json" for rank in range(ranks)]
    return [Input(path, original.name, copies) for path in paths]


def concatenated(files: Sequence[Input]) -> Input:
    """The profiles in one, as people join them by hand: parsed, the lists of events together, ids as they are."""

    def write(folder: Path) -> int:
        first, *others = (orjson.loads(file.path.read_bytes()) for file in files)
        for other in others:
            first["traceEvents"] += other["traceEvents"]
        (folder / "kineto.json").write_bytes(orjson.dumps(first))
        return files[0].copies

    folder, copies = inputs.cached(f"{files[0].path.parent.name}-concatenated", GENERATORS, write)
    return Input(folder / "kineto.json", files[0].made_of, copies)


def dumps(fleet: Fleet) -> tuple[Path, int]:
    """The folder of the dumps of a job with very many ranks, and their bytes."""

    def fill(folder: Path) -> int:
        return write_dumps(fleet, folder / "dumps")

    folder, size = inputs.cached(f"dumps-{_spelled(fleet)}", GENERATORS, fill)
    return folder / "dumps", size


def hung_dumps(fleet: Fleet, stopped: int) -> tuple[Path, int]:
    """The same of a job whose last entries are one collective, which one rank has not reached."""

    def fill(folder: Path) -> int:
        write_dumps(fleet, folder / "dumps")
        return sum(
            path.write_bytes(pickled(hung(pickle.loads(path.read_bytes()), joined=rank != stopped)))
            for rank in range(fleet.ranks)
            for path in [folder / "dumps" / f"nccl_trace_rank_{rank}"]
        )

    folder, size = inputs.cached(f"hung-dumps-{_spelled(fleet)}-{stopped}", GENERATORS, fill)
    return folder / "dumps", size


def hung(dump: dict[str, Any], *, joined: bool) -> dict[str, Any]:
    """The dump of a rank that waits in its last entry, or never came to it."""
    *before, last = dump["entries"]
    status = dump["pg_status"][str(last["pg_id"])]
    done = {name: number - 1 for name, number in status.items() if not joined or "completed" in name}
    waiting = {"state": "started", "time_discovered_completed_ns": None, "retired": False}
    entry = {name: value for name, value in last.items() if name != "duration_ms"} | waiting
    return {
        **dump,
        "pg_status": dump["pg_status"] | {str(last["pg_id"]): status | done},
        "entries": [*before, entry] if joined else before,
    }


def _spelled(fleet: Fleet) -> str:
    return "-".join(map(str, astuple(fleet)))


def kept_in_cache(name: str, originals: Sequence[Path], fill: Callable[[Path], None]) -> Path:
    """A folder that `fill` fills, made once."""

    def filled(folder: Path) -> int:
        fill(folder)
        return 1

    return inputs.cached(name, (*originals, *GENERATORS), filled)[0]
