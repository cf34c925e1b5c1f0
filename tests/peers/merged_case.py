"""Jobs that the peer tests merge: where their files are, and what the merged trace says in its own text."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

from builders.data import DATA, foreign
from tracelink import samples

SLICE_PHASES = frozenset("XiIBb")
End = tuple[int, int, int]
"""Process, thread, ns: one end of an arrow."""
PHASE_DATA = re.compile(r"\S+_data: \w+=")
"""Annotations that state data of a phase of the compiler: they are arguments of its operator, not slices."""


@dataclass(frozen=True, slots=True)
class Case:
    """Something to merge."""

    name: str
    inputs: Path
    profiles: str
    """Which of the inputs are profiles."""

    def profile_files(self) -> list[Path]:
        if self.inputs.is_file():
            return [self.inputs]
        return sorted(self.inputs.glob(self.profiles))


SAMPLES = {name: Case(name, samples.path(name), "kineto_*.json.gz") for name in samples.names()}
SHARED = (
    Case("matched8", DATA / "matched8", "kineto_*.json.gz"),
    *(
        Case(name, DATA / "kineto" / f"{name}.json.gz", "")
        for name in ("nccl_data", "cuda_graphs", "mi300_resnet")
    ),
)
CASES = [*SAMPLES.values(), *foreign(*SHARED)]
"""Parameters of tests."""


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

    def arrows(self) -> Counter[tuple[End, End]]:
        """Every arrow as the places of its two slices; a start with many ends is many arrows."""
        return arrows_of_events(self.events) + arrows_of_slices(self.events)


def arrows_of_events(events: list[dict[str, Any]]) -> Counter[tuple[End, End]]:
    """Arrows whose ends are events of their own."""
    starts: dict[Any, End] = {}
    ends: defaultdict[Any, list[End]] = defaultdict(list)
    for event in events:
        key = event.get("id"), event.get("cat"), event.get("name")
        if event["ph"] == "s":
            assert key not in starts, f"two arrows begin with the id {key}"
            starts[key] = place(event)
        elif event["ph"] == "f":
            process, thread, time = place(event)
            # Without `bp` an end belongs to the next slice of its thread, so it stands a nanosecond ahead.
            ends[key].append((process, thread, time if event.get("bp") == "e" else time + 1))
    assert starts.keys() == ends.keys(), "an arrow has only one end"
    return Counter((starts[key], end) for key, places in ends.items() for end in places)


def arrows_of_slices(events: list[dict[str, Any]]) -> Counter[tuple[End, End]]:
    """Arrows that slices carry: each leads from the slice that had its number last."""
    holders: dict[int, End] = {}
    found: Counter[tuple[End, End]] = Counter()
    carriers = [event for event in events if "bind_id" in event]
    for event in sorted(carriers, key=lambda event: (event["ts"], -event["dur"])):
        number, here = event["bind_id"], place(event)
        if event.get("flow_in"):
            found[holders[number], here] += 1
        if event.get("flow_out"):
            assert event.get("flow_in") or number not in holders, f"two arrows begin with the number {number}"
            holders[number] = here
    return found


def place(event: dict[str, Any]) -> End:
    return event["pid"], event["tid"], nanoseconds(event["ts"])


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
            if event.get("ph") == "X" and not PHASE_DATA.match(event["name"])
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
