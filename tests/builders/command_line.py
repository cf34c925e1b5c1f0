"""Runs of the command line, and a fake of the library behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

import tracelink._api.functions as api
from tracelink._api.inspection import InspectedSource, Inspection
from tracelink._api.outputs import Merged
from tracelink._model import job as tracelink_job
from tracelink._model.findings import Finding
from tracelink._model.graph import LinkReport, Rank
from tracelink._model.trace import SourceInfo
from tracelink.cli import main
from tracelink.plugins import Output

EVENTS = 10
"""Events of each rank of a job."""

BYTES = 12_345_678
"""Size of the output of a job."""


class Run(Protocol):
    """Runs `tracelink` with these arguments, in this process."""

    def __call__(self, *arguments: str, stdin: bytes = b"") -> Result: ...


@dataclass
class Job:
    """A fake of the library: what it returns, and the arguments it was called with."""

    reports: Mapping[int, Sequence[LinkReport]] = field(default_factory=lambda: {0: ()})
    findings: Sequence[Finding] = ()
    sources: Sequence[SourceInfo] | None = None
    """None: one for each rank."""
    outputs: Sequence[Output] | None = None
    """None: one, as requested."""
    result: tracelink_job.LinkedJob | None = None
    """The job that is returned; None: one without collectives."""
    resumed: int = 0
    error: BaseException | None = None
    """Raised instead of returning a result."""
    arguments: dict[str, Any] = field(default_factory=dict)
    """The arguments of the last call."""

    def collectives(self, paths: Any = (), **arguments: Any) -> tracelink_job.LinkedJob:
        self.arguments = {"paths": paths, **arguments}
        if self.error:
            raise self.error
        if self.result:
            return replace(self.result, findings=self.findings)
        return tracelink_job.LinkedJob(
            parts=(),
            ranks=[Rank(rank) for rank in self.reports],
            sources=self._default_sources() if self.sources is None else self.sources,
            findings=self.findings,
            reports=self.reports,
            events=EVENTS * len(self.reports),
        )

    def inspect(self, paths: Any = (), **arguments: Any) -> Inspection:
        made = self.collectives(paths, **arguments)
        return Inspection(list(map(InspectedSource.of, made.sources)), made.findings)

    def merge(self, paths: Any = (), **arguments: Any) -> Merged:
        made = self.collectives(paths, **arguments)
        written = Output(
            str(arguments["output"] or "merged.json"),
            arguments.get("to") or "perfetto-json",
            None,
            BYTES,
            made.events,
        )
        outputs = [written] if self.outputs is None else self.outputs
        return Merged.of_job(made, outputs, resumed=self.resumed)

    def _default_sources(self) -> list[SourceInfo]:
        return [SourceInfo(f"k_{rank}.json", "kineto", rank=rank, events=EVENTS) for rank in self.reports]


@pytest.fixture
def tracelink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, stdin: bytes = b"") -> Result:
        return CliRunner().invoke(main, arguments, input=stdin, prog_name="tracelink")

    return run


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Job:
    made = Job()
    monkeypatch.setattr(api, "linked_job", made.collectives)
    monkeypatch.setattr(api, "inspect", made.inspect)
    monkeypatch.setattr(api, "merge", made.merge)
    return made
