"""Jobs that the peer tests merge: where their files are, and what the merged trace says in its own text."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

from tracelink import samples

PUBLIC = Path(__file__).resolve().parents[3] / "shared" / "data"
SLICE_PHASES = frozenset("XiIBb")
END = tuple[int, int, int]
"""Process, thread, ns: one end of an arrow."""


@dataclass(frozen=True, slots=True)
class Case:
    """Something to merge."""

    name: str
    inputs: Path
    profiles: str
    """Which of the inputs are profiles."""

    @property
    def missing(self) -> bool:
        return not self.inputs.exists()

    def profile_files(self) -> list[Path]:
        if self.inputs.is_file():
            return [self.inputs]
        return sorted(self.inputs.glob(self.profiles))


CASES = (
    *(Case(name, samples.path(name), "kineto_*.json.gz") for name in samples.names()),
    Case("matched8", PUBLIC / "matched8", "kineto_*.json.gz"),
    *(
        Case(name, PUBLIC / "kineto" / f"{name}.json.gz", "")
        for name in ("nccl_data", "cuda_graphs", "mi300_resnet")
    ),
)


@dataclass(frozen=True)
class Merged:
    """A merged job: the file, and what the command printed."""

    case: Case
    path: Path
    result: dict[str, Any]

    @cached_property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = read_json(self.path)
        return document

    @property
    def events(self) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = self.document["traceEvents"]
        return events

    def slice_count(self) -> int:
        return sum(event["ph"] in SLICE_PHASES for event in self.events)

    def arrows(self) -> Counter[tuple[END, END]]:
        """Every arrow as its two ends; a start with many ends is many arrows."""
        starts: dict[Any, END] = {}
        ends: defaultdict[Any, list[END]] = defaultdict(list)
        for event in self.events:
            for key, outgoing in flow_keys(event):
                place = (event["pid"], event["tid"], nanoseconds(event["ts"]))
                if outgoing:
                    assert key not in starts, f"two arrows begin with the id {key}"
                    starts[key] = place
                else:
                    ends[key].append(place)
        assert starts.keys() == ends.keys(), "an arrow has only one end"
        return Counter((starts[key], end) for key, places in ends.items() for end in places)


def flow_keys(event: dict[str, Any]) -> Iterator[tuple[Any, bool]]:
    """The flows that an event belongs to, and whether it is their start."""
    if event["ph"] in "sf":
        yield (event["id"], event.get("cat"), event.get("name")), event["ph"] == "s"
    if "bind_id" in event:
        if event.get("flow_out"):
            yield event["bind_id"], True
        if event.get("flow_in"):
            yield event["bind_id"], False


def merge(case: Case, output: Path) -> Merged:
    """Runs the installed command."""
    command = [str(Path(sys.executable).parent / "tracelink"), "merge", str(case.inputs), "-o", str(output)]
    run = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return Merged(case, output, json.loads(run.stdout))


@dataclass(frozen=True)
class Profile:
    """What a profile says of its slices, by its own decimal text."""

    rank: int
    slices: Counter[tuple[str, int, int]]
    """(name, ns since the Unix epoch, ns)."""

    @classmethod
    def of(cls, path: Path) -> Profile:
        document = read_json(path)
        base = int(document.get("baseTimeNanoseconds", 0))
        counted = Counter(
            (event["name"], base + nanoseconds(event["ts"]), nanoseconds(event["dur"]))
            for event in document["traceEvents"]
            if event.get("ph") == "X"
        )
        return cls(int(document["distributedInfo"]["rank"]), counted)

    def shift(self, seen: Sequence[tuple[str, int, int]]) -> int:
        """How much later `seen` is: by a slice whose name occurs once on both sides."""
        here = {name: start for name, start, _ in self.slices}
        counts = Counter(name for name, _, _ in self.slices.elements())
        counts_seen = Counter(name for name, _, _ in seen)
        for name, start, _ in seen:
            if counts[name] == counts_seen[name] == 1:
                return start - here[name]
        raise AssertionError("no slice has a name of its own")


def read_json(path: Path) -> Any:
    content = path.read_bytes()
    if content.startswith(b"\x1f\x8b"):
        content = gzip.decompress(content)
    return json.loads(content, parse_float=Decimal)


def nanoseconds(microseconds: Decimal | int) -> int:
    scaled = Decimal(microseconds) * 1000
    whole = int(scaled)
    assert whole == scaled, f"{microseconds} is not a whole number of nanoseconds"
    return whole
