"""What is known of an output before it is written: for large jobs, and for those who want to hear it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from builders.graph import GraphBuilder
from tracelink import plugins
from tracelink.engine import Engine
from tracelink.errors import Finding
from tracelink.model.job import Job
from tracelink.open import offer as weight
from tracelink.open.forecast import MAY_BE_HEAVY, WORTH_SAYING, Prospect, foreseen
from tracelink.plugins import Files, Forecast, Output, Target


def job(events: int) -> Job:
    """A job that says to have so many events."""
    graph = GraphBuilder()
    graph.add(graph.track(), "op", 0, 1)
    made = Job.of(graph.build())
    return Job(made.parts, made.ranks, made.sources, first_ns=made.first_ns, events=events)


@dataclass
class Seer:
    """A writer that knows how large its output will be."""

    forecasts: Sequence[Forecast] = (Forecast(3_000_000, 40_000_000),)
    compressed: list[bool] = field(default_factory=list)
    name = "perfetto-json"
    summary = "Writes nothing"
    suffixes = (".json",)
    files = Files.ONE

    def write(self, job: Job, target: Target, engine: Engine) -> list[Output]:
        return []

    def forecast(self, job: Job, engine: Engine, *, compressed: bool) -> Forecast:
        self.compressed.append(compressed)
        return self.forecasts[0]


def told(writer: plugins.Writer, events: int, path: str = "job.json") -> list[Prospect]:
    heard: list[Prospect] = []
    foreseen(job(events), writer, path, {}, Engine(1), heard.append)
    return heard


def test_the_size_is_told() -> None:
    assert told(Seer(), WORTH_SAYING) == [Prospect("job.json", Forecast(3_000_000, 40_000_000), [])]


def test_what_is_written_at_once_is_not_worth_it() -> None:
    assert told(Seer(), WORTH_SAYING - 1) == []


def test_a_writer_that_cannot_tell_is_not_asked() -> None:
    assert told(plugins.writer("chakra"), MAY_BE_HEAVY) == []


@pytest.mark.parametrize(("path", "compressed"), [("job.json", False), ("job.json.gz", True), ("-", False)])
def test_the_name_says_whether_it_is_compressed(path: str, compressed: bool) -> None:
    writer = Seer()
    told(writer, WORTH_SAYING, path)
    assert writer.compressed == [compressed]


class TestWarnings:
    @pytest.fixture(autouse=True)
    def small_browsers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(weight, "MOST_OF_32_BITS", 1_000_000)

    def test_are_told_with_the_size_and_given_back(self) -> None:
        heard: list[Prospect] = []
        findings: Sequence[Finding] = foreseen(
            job(WORTH_SAYING), Seer(), "job.json", {}, Engine(1), heard.append
        )
        assert [finding.reason for finding in findings] == ["larger_than_a_browser_takes"]
        assert [prospect.findings for prospect in heard] == [findings]

    def test_are_given_back_where_nobody_listens(self) -> None:
        (finding,) = foreseen(job(MAY_BE_HEAVY), Seer(), "job.json", {}, Engine(1), None)
        assert finding.source == "job.json"

    def test_are_not_looked_for_where_nobody_listens_and_all_browsers_will_do(self) -> None:
        writer = Seer()
        assert foreseen(job(MAY_BE_HEAVY - 1), writer, "job.json", {}, Engine(1), None) == ()
        assert writer.compressed == []
