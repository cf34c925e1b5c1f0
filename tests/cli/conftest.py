"""A run of the command line, and a job of no files that stands in for the library behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pytest
from click.testing import CliRunner, Result

from tracelink import api
from tracelink.api import Merged, Survey
from tracelink.cli import main
from tracelink.events import Edges, EventKind, Events, Track, TrackKind
from tracelink.findings import Finding
from tracelink.graph import EventGraph, Rank
from tracelink.linking.report import LinkReport
from tracelink.plugins import Output
from tracelink.trace import SourceInfo

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
    error: BaseException | None = None
    """What ends the work instead of a result."""
    asked: dict[str, Any] = field(default_factory=dict)

    def load(self, paths: Any = (), **asked: Any) -> EventGraph:
        """Stands in for `tracelink.api.load`."""
        self.asked = {"paths": paths, **asked}
        if self.error:
            raise self.error
        return self.graph()

    def survey(self, paths: Any = (), **asked: Any) -> Survey:
        """Stands in for `tracelink.api.survey`."""
        graph = self.load(paths, **asked)
        return Survey(graph.sources, graph.findings)

    def merge(self, paths: Any = (), **asked: Any) -> Merged:
        """Stands in for `tracelink.api.merge`."""
        graph = self.load(paths, **asked)
        written = Output(str(asked["output"]), asked.get("to") or "perfetto-json", None, BYTES, len(graph))
        return Merged(graph, [written] if self.outputs is None else self.outputs)

    def graph(self) -> EventGraph:
        """A graph of nothing but what is reported."""
        ranks = list(self.reports)
        count = EVENTS * len(ranks)
        return EventGraph(
            strings=["op"],
            events=Events.of(
                kind=[EventKind.OPERATOR] * count,
                name=[0] * count,
                track=[place for place in range(len(ranks)) for _ in range(EVENTS)],
                start=range(count),
                duration=[1] * count,
                source=[0] * count,
                payload=range(count),
            ),
            edges=Edges.empty(),
            tracks=[Track(TrackKind.THREAD, "1", "1", rank=rank) for rank in ranks],
            ranks=[Rank(rank) for rank in ranks],
            sources=self._default_sources() if self.sources is None else self.sources,
            bounds=[0, count],
            findings=self.findings,
            reports=self.reports,
        )

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
    monkeypatch.setattr(api, "load", made.load)
    monkeypatch.setattr(api, "survey", made.survey)
    monkeypatch.setattr(api, "merge", made.merge)
    return made
