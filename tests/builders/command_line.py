"""A run of the command line, and a job of no files that stands in for the library behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import pytest
from click.testing import CliRunner, Result

from tracelink import api
from tracelink.api import Inspection, Merged
from tracelink.cli import main
from tracelink.errors import Finding
from tracelink.model import job as tracelink_job
from tracelink.model.graph import LinkReport, Rank
from tracelink.model.trace import SourceInfo
from tracelink.plugins import Output

EVENTS = 10
"""Events of each rank of a job."""

BYTES = 12_345_678
"""Size of what is written of a job."""


class Run(Protocol):
    """Runs `tracelink` with these arguments, in this process."""

    def __call__(self, *arguments: str, stdin: bytes = b"") -> Result: ...


@dataclass
class Job:
    """What the library would find, and what it was asked."""

    reports: Mapping[int, Sequence[LinkReport]] = field(default_factory=lambda: {0: ()})
    findings: Sequence[Finding] = ()
    sources: Sequence[SourceInfo] | None = None
    """None: one for each rank."""
    outputs: Sequence[Output] | None = None
    """None: one, as asked for."""
    together: tracelink_job.Job | None = None
    """What the ranks did together, for commands that show that."""
    error: BaseException | None = None
    """What ends the work instead of a result."""
    asked: dict[str, Any] = field(default_factory=dict)

    def collectives(self, paths: Any = (), **asked: Any) -> tracelink_job.Job:
        """Stands in for `tracelink.api.collectives`."""
        self.asked = {"paths": paths, **asked}
        if self.error:
            raise self.error
        if self.together:
            return replace(self.together, findings=self.findings)
        return tracelink_job.Job(
            parts=(),
            ranks=[Rank(rank) for rank in self.reports],
            sources=self._default_sources() if self.sources is None else self.sources,
            findings=self.findings,
            reports=self.reports,
            events=EVENTS * len(self.reports),
        )

    def inspect(self, paths: Any = (), **asked: Any) -> Inspection:
        """Stands in for `tracelink.api.inspect`."""
        made = self.collectives(paths, **asked)
        return Inspection(made.sources, made.findings)

    def merge(self, paths: Any = (), **asked: Any) -> Merged:
        """Stands in for `tracelink.api.merge`."""
        made = self.collectives(paths, **asked)
        written = Output(
            str(asked["output"] or "merged.json"),
            asked.get("to") or "perfetto-json",
            None,
            BYTES,
            made.events,
        )
        return Merged(made, [written] if self.outputs is None else self.outputs)

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
    monkeypatch.setattr(api, "collectives", made.collectives)
    monkeypatch.setattr(api, "inspect", made.inspect)
    monkeypatch.setattr(api, "merge", made.merge)
    monkeypatch.setattr(api, "convert", made.merge)
    return made
