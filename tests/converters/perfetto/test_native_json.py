"""Native traces as JSON, compared with the JSON that is written directly."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracelink._api.functions as api
from builders import perfetto
from builders.data import foreign, traces
from builders.job import JobBuilder
from builders.kineto import instant, slice_, trace
from builders.native_packets import as_json, written
from tracelink import samples
from tracelink._io.streams import GZIP_MAGIC
from tracelink._model.events import EventKind, Relation, TrackKind
from tracelink._model.job import LinkedJob

Event = dict[str, Any]


def meaning(path: Path) -> tuple[dict[str, Any], Counter[str]]:
    """The header, and every event as a text; times are nanoseconds."""
    data = path.read_bytes()
    text = gzip.decompress(data) if data.startswith(GZIP_MAGIC) else data
    document = json.loads(text, parse_float=Decimal)
    events: list[Event] = document.pop("traceEvents")
    begins = {one["id"]: _place(one) for one in events if one["ph"] == "s"}
    carried: defaultdict[int, list[str]] = defaultdict(list)
    for one in events:
        if "bind_id" in one:
            carried[one["bind_id"]].append(
                f"{_place(one)} {one['name']} {'flow_in' in one} {'flow_out' in one}"
            )
    return document, Counter(_text(one, begins, carried) for one in events)


def _place(event: Event) -> str:
    return f"{event['cat']} {event['tid']} {event['ts']}"


def _text(event: Event, begins: dict[int, str], carried: dict[int, list[str]]) -> str:
    said = dict(event)
    for name in ("ts", "dur"):
        if name in said:
            said[name] = int(said[name] * 1000)
            assert said[name] == event[name] * 1000
    if "id" in said:
        said["id"] = begins[said["id"]]
    if "bind_id" in said:
        said["bind_id"] = sorted(carried[said["bind_id"]])
    if said.get("args") == {}:
        del said["args"]
    return json.dumps(said, sort_keys=True, default=float)


def assert_same(paths: list[Path], folder: Path, name: str = "a.pftrace", **options: str) -> None:
    merged = api.merge(paths, output=folder / name, options=options)
    api.merge(paths, output=folder / "b.json", options=options)
    converted = api.merge(folder / name, output=folder / "a.json")
    assert not converted.ranks
    (written,) = merged.outputs
    (output,) = converted.outputs
    assert (output.format, output.events, output.findings) == ("perfetto-json", written.events, ())
    assert output.bytes == (folder / "a.json").stat().st_size
    (header, events), (expected, of) = meaning(folder / "a.json"), meaning(folder / "b.json")
    assert list(header.items()) == list(expected.items())
    assert events == of


OWN = ["gpu_pair", "cpu_job", "hung_job", "gpu_2021", "gpu_2023", "gpu_rocm"]
SHARED = ["kineto/nccl_data.json.gz", "kineto/h100_qwen.json.gz", "matched8", "fr/straggler/dumps_hang"]


@pytest.mark.parametrize("name", [*OWN, *foreign(*SHARED)])
def test_jobs(tmp_path: Path, name: str) -> None:
    assert_same([traces(name)], tmp_path)


@pytest.mark.foreign
def test_two_ranks_that_were_recorded_together(tmp_path: Path) -> None:
    assert_same([traces(f"kineto/pair_rank{rank}.json.gz") for rank in (0, 1)], tmp_path)


@pytest.mark.parametrize("options", [{"args": "link"}, {"args": "none", "python": "no"}, {"compress": "yes"}])
def test_with_options(tmp_path: Path, options: dict[str, str]) -> None:
    assert_same([samples.path("gpu_pair")], tmp_path, **options)


CATEGORIES = {
    "operator": "cpu_op",
    "runFunction": "mtia_runtime",
    "cuLaunchKernel": "cuda_driver",
    "INVALID": "cuda_driver",
    "cuPointerGetAttribute": "cuda_runtime",
    "forward": 'my "layers"',
    "matmul": "mtia_ccp_events",
    "at once": "mine",
}
SCOPES = {"Record Window End": "g", "of the process": "p", "of the thread": "t"}


@pytest.mark.parametrize("ranks", [1, 2])
def test_categories_and_scopes_are_those_of_the_source(tmp_path: Path, ranks: int) -> None:
    elements = [
        slice_(category, name, 10 * number, 5, pid=0 if name == "matmul" else 4200)
        for number, (name, category) in enumerate(CATEGORIES.items())
    ]
    elements += [{**instant(name, 90), "s": scope} for name, scope in SCOPES.items()]
    paths = [tmp_path / f"rank{rank}.json" for rank in range(ranks)]
    for rank, path in enumerate(paths):
        path.write_bytes(trace(*elements, rank=rank))
    assert_same(paths, tmp_path)
    events = json.loads((tmp_path / "b.json").read_bytes())["traceEvents"]
    slices = Counter((event["name"], event["cat"]) for event in events if event["ph"] == "X")
    instants = Counter((event["name"], event["s"]) for event in events if event["ph"] == "i")
    assert slices == Counter(dict.fromkeys(CATEGORIES.items(), ranks))
    widest = "g" if ranks == 1 else "p"  # an instant of a rank does not concern the others
    assert instants == Counter(
        (name, widest if scope == "g" else scope) for name, scope in SCOPES.items() for _ in range(ranks)
    )


def test_a_file_in_gzip(tmp_path: Path) -> None:
    assert_same([samples.path("gpu_pair")], tmp_path, "a.pftrace.gz")


def test_however_many_work_on_it(tmp_path: Path) -> None:
    api.merge([samples.path("gpu_pair")], output=tmp_path / "a.pftrace")
    for jobs in (1, 3):
        api.merge(tmp_path / "a.pftrace", output=tmp_path / f"{jobs}.json", jobs=jobs)
    assert (tmp_path / "1.json").read_bytes() == (tmp_path / "3.json").read_bytes()


def test_a_large_file_is_written_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where batches are cut changes nothing."""
    monkeypatch.setattr("tracelink._io.framing.CHUNK", 4000)
    monkeypatch.setattr("tracelink.converters.perfetto.packets.reading.MIN_BATCH_BYTES", 9000)
    monkeypatch.setattr("tracelink.converters.perfetto.native_json.CHUNK", 7)
    assert_same([samples.path("gpu_pair")], tmp_path)


def test_a_job_without_anything_to_draw() -> None:
    job = LinkedJob.of(JobBuilder().build())
    assert as_json(written(job)).document == json.loads(perfetto.write(job).text)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.integers(0, 8),
            st.integers(0, 6),
            st.sampled_from(["a", "b"]),
            st.booleans(),
        ),
        max_size=12,
    ),
    st.lists(st.tuples(st.integers(0, 11), st.sampled_from(Relation), st.integers(0, 11)), max_size=8),
)
def test_slices_and_instants_however_they_lie(
    spans: list[tuple[int, int, int, str, bool]], edges: list[tuple[int, Relation, int]]
) -> None:
    """Names, times, threads and arguments; and as many arrows as the file has and JSON can draw."""
    built = JobBuilder()
    tracks = [built.track(identity=str(place)) for place in range(3)]
    for track, start, duration, name, is_instant in spans:
        kind = EventKind.INSTANT if is_instant else EventKind.OPERATOR
        built.add(tracks[track], name, start, 0 if is_instant else duration, kind, {"n": start})
    for source, relation, target in edges:
        if source != target and max(source, target) < len(spans):
            built.edge(source, relation, target)
    job = LinkedJob.of(built.build())
    expected = json.loads(perfetto.write(job).text)["traceEvents"]
    events = as_json(written(job)).document["traceEvents"]

    def slices(of: list[dict[str, object]]) -> list[str]:
        return sorted(
            json.dumps([one[k] for k in ("ph", "name", "tid", "ts", "args")])
            for one in of
            if one["ph"] in "Xi"
        )

    assert slices(events) == slices(expected)


TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(allow_nan=False, allow_infinity=False),
        TEXTS,
        st.sampled_from(["[1, 2]", "[1, 2] ", "null", "null ", "{} ", '": [', '\\": null']),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=6,
)


@given(st.lists(st.dictionaries(TEXTS, VALUES, max_size=4), max_size=5))
def test_arguments_whatever_they_are(objects: list[dict[str, object]]) -> None:
    built = JobBuilder()
    thread = built.track()
    for number, said in enumerate(objects):
        built.add(thread, str(number), 10 * number, 5, args=said)
    document = as_json(written(LinkedJob.of(built.build()))).document
    seen = [one.get("args", {}) for one in document["traceEvents"] if one["ph"] == "X"]
    assert seen == objects


def test_what_json_has_no_means_for_is_said_in_the_same_words() -> None:
    """Some arrows at slices that open together."""
    built = JobBuilder()
    thread, stream = built.track(), built.track(TrackKind.STREAM, 0, "0", "7")
    around = [built.add(thread, f"around {place}", 0, 9 - place) for place in range(3)]
    kernels = [built.add(stream, f"kernel {place}", 0, 9 - place, EventKind.KERNEL) for place in range(3)]
    for source in around:
        for target in kernels:
            built.edge(source, Relation.LAUNCHES, target)
    job = LinkedJob.of(built.build())
    document = perfetto.write(job)
    read = as_json(written(job))
    assert read.reasons["flow_crowded"] == document.reasons()["flow_crowded"]


def test_a_native_trace_can_be_written_in_another_format(tmp_path: Path) -> None:
    api.merge([samples.path("gpu_pair")], output=tmp_path / "a.pftrace")
    merged = api.merge(tmp_path / "a.pftrace", output=tmp_path / "et", to="chakra")
    assert [rank.rank for rank in merged.ranks] == [0, 1]
    assert [output.rank for output in merged.outputs if output.rank is not None] == [0, 1]
