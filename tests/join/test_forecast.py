"""Forecasts of outputs, and smaller ways to write them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache

import pytest

from builders.job import JobBuilder
from tracelink import plugins
from tracelink._io.engine import Engine
from tracelink._io.targets import Target
from tracelink._join import forecast as module
from tracelink._join.forecast import (
    LARGE_JOB,
    OutputForecast,
    OutputPlan,
    forecast_output,
    memory_findings,
)
from tracelink._model.events import EventKind
from tracelink._model.findings import Finding, Severity
from tracelink._model.job import LinkedJob
from tracelink._model.text import about
from tracelink._run.processes import Processes
from tracelink.plugins import Forecast, Output

# A timeline that is too large for browsers: said before it is written, with what they would take in its place.


JSON = "perfetto-json"
NATIVE = "perfetto"
RANKS = 4
Limit = Callable[[int], None]


@cache
def job() -> LinkedJob:
    """A rank calls as many Python functions as operators, and all of them have arguments."""
    graph = JobBuilder()
    for rank in range(RANKS):
        track = graph.track(rank=rank, process=str(rank))
        for number in range(1000):
            kind = (EventKind.OPERATOR, EventKind.PYTHON)[number % 2]
            graph.add(track, "step", number * 1000, 500, kind, {"Python id": number, "note": "n" * 200})
    return LinkedJob.of(graph.build())


@cache
def forecast(format_name: str, **options: str) -> Forecast:
    writer = plugins.writer(format_name, options)
    return writer.forecast(job(), Processes(1), compressed=False)


def stored(format_name: str, **options: str) -> str:
    """The size of the file, as it is said."""
    return about(forecast(format_name, **options).bytes)


def heap(format_name: str, **options: str) -> int:
    return OutputPlan(format_name, "", options).memory(forecast(format_name, **options).unpacked)


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Limit:
    """Sets what browsers without 64-bit WebAssembly have; others have ten times as much."""

    def set_to(count: int) -> None:
        monkeypatch.setattr(module, "MAX_MEMORY_32_BIT", count)
        monkeypatch.setattr(module, "MAX_MEMORY", 10 * count)

    return set_to


def message(order: OutputPlan) -> str:
    """The only finding."""
    (finding,) = memory_findings(job(), Processes(1), order, forecast(order.format, **order.options).unpacked)
    assert (finding.severity, finding.reason, finding.source) == (
        Severity.WARNING,
        "larger_than_a_browser_takes",
        order.path,
    )
    return finding.message


def offers(order: OutputPlan) -> list[str]:
    """What is offered, without sizes."""
    found = re.search(r"with `tracelink merge`: (.*?)\. Or load it", message(order))
    return [re.sub(r" \(.*| with .*", "", offer) for offer in found[1].split("; ")] if found else []


def just_enough_for(needed: int) -> int:
    """A limit under which so much fits, with what is left free."""
    return round(needed / 0.9) + 10


class TestWhatFits:
    def test_is_not_said_of_what_fits_itself(self, limit: Limit) -> None:
        limit(heap(JSON))
        assert (
            memory_findings(job(), Processes(1), OutputPlan(JSON, "job.json"), forecast(JSON).unpacked) == []
        )

    def test_is_said_with_sizes(self, limit: Limit) -> None:
        limit(heap(JSON) - 1000)
        share = 0.9 * (heap(JSON) - 1000) / heap(JSON)
        assert message(OutputPlan(JSON, "job.json")) == (
            f"Perfetto's UI needs about {about(heap(JSON))} of memory for this file; browsers without 64-bit "
            "WebAssembly stop at 0 GB. These fit, with `tracelink merge`: "
            f"-o job.pftrace (about {stored(NATIVE)}); --args link (about {stored(JSON, args='link')}); "
            f"--no-python (about {stored(JSON, python='no')}); --ranks with 3 of the 4 ranks; "
            f"--steps or --window with {int(100 * share) // 5 * 5} % of the time. "
            "Or load it outside of the browser: trace_processor_shell server http FILE"
        )

    def test_is_not_what_is_too_large_as_well(self, limit: Limit) -> None:
        assert heap(JSON, args="link") < min(heap(JSON, python="no"), heap(NATIVE))
        limit(just_enough_for(heap(JSON, args="link")))
        assert offers(OutputPlan(JSON, "job.json")) == ["--args link", "--ranks", "--steps or --window"]

    def test_is_not_what_is_chosen_already(self, limit: Limit) -> None:
        chosen = {"args": "none", "python": "no"}
        limit(heap(JSON, **chosen) - 1000)
        assert not {"--args link", "--args none", "--no-python"} & {
            *offers(OutputPlan(JSON, "job.json", chosen))
        }

    def test_may_be_no_arguments_at_all(self, limit: Limit) -> None:
        chosen = {"args": "link", "python": "no"}
        assert [way.arguments for way in OutputPlan(NATIVE, "job.pftrace", chosen).with_args("none")] == [
            ("--args none",)
        ]
        assert [*OutputPlan(NATIVE, "job.pftrace", chosen).with_args("link")] == []

    def test_may_take_several_things(self, limit: Limit) -> None:
        limit(just_enough_for(heap(NATIVE, args="link", python="no")))
        assert offers(OutputPlan(JSON, "job.json"))[0] == "-o job.pftrace --no-python --args link"

    def test_of_a_native_trace_is_a_smaller_one(self, limit: Limit) -> None:
        limit(heap(NATIVE) - 1000)
        assert offers(OutputPlan(NATIVE, "job.pftrace")) == [
            "--args link",
            "--no-python",
            "--ranks",
            "--steps or --window",
        ]

    def test_past_what_any_browser_has_is_measured_by_that(self, limit: Limit) -> None:
        limit(heap(JSON) // 10 - 100)
        assert ", and can have 0 GB. These fit" in message(OutputPlan(JSON, "job.json"))
        assert offers(OutputPlan(JSON, "job.json"))[0] == "-o job.pftrace"

    def test_may_be_nothing(self, limit: Limit) -> None:
        limit(10)
        assert offers(OutputPlan(JSON, "job.json")) == []


class TestTheNativeFormat:
    @pytest.mark.parametrize(
        ("path", "word"),
        [
            ("job.json", "-o job.pftrace"),
            ("a/job.json.gz", "-o a/job.pftrace"),
            ("-", "--to perfetto"),
            ("a/", "--to perfetto"),
            ("job.txt", "--to perfetto"),
        ],
    )
    def test_is_called_as_the_file_would_be(self, path: str, word: str) -> None:
        (way,) = OutputPlan(JSON, path).smallest()
        assert (way.format, way.arguments) == (NATIVE, (word,))

    def test_is_not_smaller_than_itself(self) -> None:
        assert [*OutputPlan(NATIVE, "job.pftrace").smallest()] == []

    def test_needs_more_for_each_byte_where_arguments_are_left_out(self) -> None:
        bare = OutputPlan(NATIVE, "", {"args": "none"})
        assert bare.memory(1000) > OutputPlan(NATIVE, "").memory(1000)

    def test_other_formats_weigh_nothing(self) -> None:
        assert OutputPlan("chakra", "et/").memory(10**12) == 0


# What is known of an output before it is written: for large jobs, and for those who want to hear it.


def small_job(events: int) -> LinkedJob:
    """A job that says to have so many events."""
    graph = JobBuilder()
    graph.add(graph.track(), "op", 0, 1)
    made = LinkedJob.of(graph.build())
    return LinkedJob(
        parts=made.parts, ranks=made.ranks, sources=made.sources, first_ns=made.first_ns, events=events
    )


@dataclass
class Seer:
    """A writer that knows how large its output will be."""

    forecasts: Sequence[Forecast] = (Forecast(3_000_000, 40_000_000),)
    compressed: list[bool] = field(default_factory=list)
    name = "perfetto-json"

    def write(self, job: LinkedJob, target: Target, engine: Engine) -> list[Output]:
        return []

    def forecast(self, job: LinkedJob, engine: Engine, *, compressed: bool) -> Forecast:
        self.compressed.append(compressed)
        return self.forecasts[0]


def told(writer: plugins.Writer, events: int, path: str = "job.json") -> list[OutputForecast]:
    heard: list[OutputForecast] = []
    forecast_output(small_job(events), writer, path, {}, Processes(1), heard.append)
    return heard


def test_the_size_is_told() -> None:
    assert told(Seer(), 1000) == [OutputForecast("job.json", Forecast(3_000_000, 40_000_000), [])]


def test_a_writer_that_cannot_tell_is_not_asked() -> None:
    assert told(plugins.writer("chakra"), LARGE_JOB) == []


@pytest.mark.parametrize(("path", "compressed"), [("job.json", False), ("job.json.gz", True), ("-", False)])
def test_the_name_says_whether_it_is_compressed(path: str, compressed: bool) -> None:
    writer = Seer()
    told(writer, 1000, path)
    assert writer.compressed == [compressed]


class TestWarnings:
    @pytest.fixture(autouse=True)
    def small_browsers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "MAX_MEMORY_32_BIT", 1_000_000)

    def test_are_told_with_the_size_and_given_back(self) -> None:
        heard: list[OutputForecast] = []
        findings: Sequence[Finding] = forecast_output(
            small_job(1000), Seer(), "job.json", {}, Processes(1), heard.append
        )
        assert [finding.reason for finding in findings] == ["larger_than_a_browser_takes"]
        assert [prospect.findings for prospect in heard] == [findings]

    def test_are_given_back_where_nobody_listens(self) -> None:
        (finding,) = forecast_output(small_job(LARGE_JOB), Seer(), "job.json", {}, Processes(1), None)
        assert finding.source == "job.json"

    def test_are_not_looked_for_where_nobody_listens_and_all_browsers_will_do(self) -> None:
        writer = Seer()
        assert forecast_output(small_job(LARGE_JOB - 1), writer, "job.json", {}, Processes(1), None) == ()
        assert writer.compressed == []
