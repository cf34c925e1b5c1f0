"""Expected sizes of timelines."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import replace

from builders.data import foreign, traces
from builders.job import JobBuilder
from generators.jobs import write_cluster
from tracelink import plugins, samples
from tracelink._io.sources import discover_inputs
from tracelink._io.targets import target_of
from tracelink._join.job_reader import Reading, read_job
from tracelink._model.graph import EventGraph
from tracelink._model.job import LinkedJob
from tracelink._model.trace import Payload
from tracelink._run.processes import Processes
from tracelink.plugins import Forecast, Writer, WriterMethods

PLAIN, GZIP = 0.15, 0.3
"""How far a forecast may be off."""

SMALL, SMALL_GZIP = 0.3, 1.0
"""The same of a few hundred events, of which most is not looked at."""

REPETITIVE = 0.5
"""The same of gzip where thousands of events are alike: some of them do not show how much that saves."""

WAYS = [{}, {"args": "link"}, {"args": "none"}, {"python": "no"}]
FORMATS = ["perfetto-json", "perfetto"]

Check = Callable[..., None]


@cache
def read(path: Path) -> LinkedJob:
    return read_job(Reading(discover_inputs(path), Processes(1)))


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("synthetic")
    write_cluster(folder, ranks=8)
    return folder


def writer_of(name: str, options: dict[str, str]) -> WriterMethods:
    return plugins.writer(name, options)


def written(job: LinkedJob, writer: Writer, folder: Path) -> Forecast:
    """What it comes to, in place of what is expected."""
    place = folder / "job.gz"
    writer.write(job, target_of(str(place)), Processes(1))
    repacked = place.read_bytes()
    return Forecast(len(repacked), len(gzip.decompress(repacked)))


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """Compares a forecast with what is written."""

    def compare(
        job: LinkedJob, name: str, options: dict[str, str], plain: float = PLAIN, repacked: float = GZIP
    ) -> None:
        writer = writer_of(name, options)
        real, expected = written(job, writer, tmp_path), writer.forecast(job, Processes(1), compressed=True)
        assert expected.unpacked == pytest.approx(real.unpacked, rel=plain)
        assert expected.bytes == pytest.approx(real.bytes, rel=repacked)

    return compare


@pytest.mark.parametrize("options", WAYS, ids=str)
@pytest.mark.parametrize("name", FORMATS)
class TestNearToWhatIsWritten:
    @pytest.mark.parametrize("sample", ["cpu_job", "gpu_pair"])
    def test_of_a_sample(self, sample: str, name: str, options: dict[str, str], check: Check) -> None:
        check(read(samples.path(sample)), name, options)

    def test_of_dumps_alone(self, name: str, options: dict[str, str], check: Check) -> None:
        check(read(samples.path("hung_job")), name, options, SMALL, SMALL_GZIP)

    def test_of_a_synthetic_job(
        self, synthetic: Path, name: str, options: dict[str, str], check: Check
    ) -> None:
        check(read(synthetic), name, options)

    @pytest.mark.foreign
    @pytest.mark.parametrize(
        "path",
        [
            "matched8",
            "pairs/resnet_110_nccl",
            "kineto/nccl_data.json.gz",
            "kineto/mi300_resnet.json.gz",
            "kineto/resnet50_2021.json.gz",
            "kineto/h100_qwen.json.gz",
        ],
    )
    def test_of_a_recorded_job(self, path: str, name: str, options: dict[str, str], check: Check) -> None:
        check(read(traces(path)), name, options)

    @pytest.mark.parametrize("path", ["one_iteration", *foreign("kineto/cuda_graphs.json.gz")])
    def test_of_graphs_that_are_launched_again_and_again(
        self, path: str, name: str, options: dict[str, str], check: Check
    ) -> None:
        check(read(traces(path)), name, options, PLAIN, REPETITIVE)


@dataclass(frozen=True)
class Locked:
    """Payloads that nobody may ask for."""

    def batches(self, first: int = 0, last: int | None = None) -> Iterator[tuple[int, Sequence[Payload]]]:
        pytest.fail("arguments are read")


def operators(count: int) -> EventGraph:
    graph = JobBuilder()
    track = graph.track()
    for number in range(count):
        graph.add(track, "aten::add", number * 1000, 500, args={"External id": number})
    return graph.build()


def forecast(graph: EventGraph, name: str, *, compressed: bool = False, **options: str) -> Forecast:
    return writer_of(name, options).forecast(LinkedJob.of(graph), Processes(1), compressed=compressed)


@pytest.mark.parametrize("name", FORMATS)
class TestForecast:
    def test_is_the_same_however_many_work(self, name: str) -> None:
        job, writer = read(samples.path("cpu_job")), writer_of(name, {})
        assert writer.forecast(job, Processes(1), compressed=True) == writer.forecast(
            job, Processes(2), compressed=True
        )

    def test_grows_with_the_job(self, name: str) -> None:
        few, many = forecast(operators(2_000), name), forecast(operators(20_000), name)
        assert many.unpacked == pytest.approx(10 * few.unpacked, rel=PLAIN)

    def test_knows_that_the_writer_compresses_under_any_name(self, name: str) -> None:
        """What is native is deflated anyway, and so a fifth smaller."""
        graph = operators(5_000)
        gzip, asked = forecast(graph, name, compressed=True), forecast(graph, name, compress="yes")
        share = 0.8 if name == "perfetto" else 1.0
        assert (asked.bytes, asked.unpacked) == (round(share * gzip.bytes), gzip.unpacked)

    def test_of_nothing_is_next_to_nothing(self, name: str) -> None:
        assert forecast(operators(0), name).bytes < 1000

    @pytest.mark.parametrize("wanted", ["link", "none"])
    def test_reads_no_arguments_where_none_of_them_are_written(self, name: str, wanted: str) -> None:
        graph = replace(operators(1_000), payloads=[Locked()])
        assert 0 < forecast(graph, name, args=wanted).bytes < forecast(operators(1_000), name).bytes


def test_of_json_that_is_not_compressed_is_one_size() -> None:
    expected = forecast(operators(10), "perfetto-json")
    assert expected.bytes == expected.unpacked
