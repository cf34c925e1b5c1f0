"""What the UI shows first; the browser."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from msgspec.structs import replace

from builders.job import START, JobBuilder
from builders.perfetto import write
from tracelink import merge, samples
from tracelink._api.functions import linked_job
from tracelink._join.forecast import TraceKind
from tracelink._model.errors import UsageError
from tracelink._open import browser
from tracelink._open.server import UI, origin_of, secret_path, ui_address
from tracelink._open.trace import OpenTrace
from tracelink._open.view import EXPAND, PIN, SUMMARIES, parts_of_address, view_of
from tracelink.converters.perfetto.timeline.view import (
    StartupView,
    awaited_rank,
    hung_collectives,
    slowest_rank,
    startup_view,
)


def first_view(job: JobBuilder) -> StartupView:
    return startup_view(job.job())


class TestThePage:
    def test_names_the_file_where_the_ui_may_fetch_it_and_what_to_show(self) -> None:
        path, view = (
            secret_path("merged.json.gz"),
            parts_of_address(StartupView(["^group "], ["^rank 3"], (10, 50))),
        )
        page = ui_address(UI, path, view)
        assert page.startswith(
            f"https://ui.perfetto.dev/#!/?url=http://127.0.0.1:9001{path}&referrer=tracelink&"
        )
        said = parse_qs(urlsplit(urlsplit(page).fragment.removeprefix("!")).query)
        assert said == {
            "url": [f"http://127.0.0.1:9001{path}"],
            "referrer": ["tracelink"],
            "startupCommands": [view["startupCommands"]],
            "visStart": ["10"],
            "visEnd": ["50"],
        }
        assert json.loads(view["startupCommands"]) == [
            {"id": EXPAND, "args": ["^rank 3"]},
            {"id": PIN, "args": ["^group "]},
        ]

    def test_is_another_each_time_and_too_long_to_guess(self) -> None:
        paths = {secret_path("t.json") for _ in range(100)}
        assert len(paths) == 100
        assert all(re.fullmatch(r"/[\w-]{43}/t\.json", path) for path in paths)

    @pytest.mark.parametrize(
        ("text", "origin"),
        [
            ("https://ui.perfetto.dev", "https://ui.perfetto.dev"),
            ("https://UI.Perfetto.dev/", "https://ui.perfetto.dev"),
            ("https://perfetto.example.org:443", "https://perfetto.example.org"),
            ("http://127.0.0.1:10000", "http://127.0.0.1:10000"),
            ("http://[::1]:80", "http://[::1]"),
        ],
    )
    def test_is_of_the_origin_as_browsers_write_it(self, text: str, origin: str) -> None:
        assert origin_of(text) == origin

    @pytest.mark.parametrize(
        "text", ["", "*", "null", "ui.perfetto.dev", "https://x/ui", "file:///x", "https://a b"]
    )
    def test_is_of_no_other_origin(self, text: str) -> None:
        with pytest.raises(UsageError, match="not the origin of a web page"):
            origin_of(text)


class TestWhatIsShownFirst:
    def test_of_a_file_that_nothing_is_known_of_are_tracks_of_groups(self) -> None:
        assert StartupView() == StartupView(pinned=("^group ",), expanded=(), window=None)

    def test_of_a_job_is_also_the_rank_that_the_others_waited_for_longest(self) -> None:
        job = JobBuilder()
        group = job.group(0, 1, name="0")
        for _ in range(3):
            job.collective(group, {0: (5, 9), 1: (0, 9)})
        job.collective(group, {0: (0, 99), 1: (50, 99)})
        assert slowest_rank(job.job()) == 1
        view = first_view(job)
        assert len(view.pinned) == 2
        (shown,) = view.expanded
        names = ["rank 1", "rank 01 · node-1", "node-1 · rank 1", "rank 11", "rank 1 stream 7", "rank 10 · a"]
        assert [name for name in names if re.search(shown, name)] == names[:3]

    def test_is_the_first_rank_where_nobody_waited(self) -> None:
        job = JobBuilder()
        job.collective(job.group(0, 1, name="0"), {0: (0, 9), 1: (0, 9)})
        assert slowest_rank(job.job()) is None
        assert first_view(job) == StartupView(expanded=("(?:^|· )rank 0*0(?: ·|$)",))
        assert first_view(JobBuilder()) == StartupView()

    def test_of_a_job_that_hangs_is_who_is_missing_and_what_hangs(self) -> None:
        job = linked_job(str(samples.path("hung_job")))
        assert awaited_rank(job, hung_collectives(job)) == 3
        assert slowest_rank(job) not in (None, 3)
        assert startup_view(job) == StartupView(
            (r"^group .* HUNG \(cause\)", r"^group .* HUNG(?! \(cause)"), ("(?:^|· )rank 0*3(?: ·|$)",)
        )
        names = [name for name in threads_of("hung_job") if re.search("^group .* HUNG", name)]
        assert "group mesh_dp [1, 3, 5, 7] · HUNG (cause)" in names
        assert all(name.endswith(("· HUNG", "· HUNG (cause)")) for name in names)

    @pytest.mark.parametrize(("sample", "work"), [("cpu_job", "group "), ("gpu_pair", "stream ")])
    def test_are_tracks_that_the_timeline_has(self, sample: str, work: str) -> None:
        job = linked_job(str(samples.path(sample)))
        mine, groups = startup_view(job).pinned
        names = threads_of(sample)
        assert all(name.startswith("group ") for name in names if re.search(groups, name))
        assert any(re.search(groups, name) for name in names)
        seen = [name for name in names if re.search(mine, name)]
        assert seen
        assert all(name.startswith(f"rank {slowest_rank(job)} {work}") for name in seen)

    def test_are_no_lanes_of_what_overlaps_and_no_rank_that_begins_alike(self) -> None:
        job = JobBuilder()
        job.collective(job.group(0, 1, name="0"), {0: (0, 9), 1: (5, 9)}, kernels={0: 1, 1: 1})
        mine, _ = first_view(job).pinned
        names = [
            "rank 1 stream 7",
            "rank 01 stream 7 · compute",
            "rank 1 stream 7 · compute (2)",
            "rank 1 group 0",
            "rank 11 stream 7",
        ]
        assert [name for name in names if re.search(mine, name)] == names[:2]

    def test_is_the_main_thread_where_nothing_is_known_of_gpus_and_recorders(self) -> None:
        job = JobBuilder()
        job.collective(job.group(0, 1, name="0"), {0: (0, 9), 1: (5, 9)})
        mine, _ = first_view(job).pinned
        assert re.search(mine, "rank 1 main thread 4200")
        assert not re.search(mine, "rank 1 stream 7")


class TestTheHeader:
    @pytest.mark.parametrize("sample", ["gpu_pair", "hung_job"])
    @pytest.mark.parametrize(("suffix", "kind"), [("json", TraceKind.JSON), ("pftrace", TraceKind.NATIVE)])
    def test_of_a_timeline_has_the_view_of_its_job(
        self, sample: str, suffix: str, kind: TraceKind, tmp_path: Path
    ) -> None:
        path = tmp_path / f"merged.{suffix}"
        merge(samples.path(sample), output=path)
        expected = startup_view(linked_job(samples.path(sample)))
        summaries = (SUMMARIES,) if kind is TraceKind.JSON and sample != "hung_job" else ()
        with OpenTrace.of(path) as trace:
            assert (trace.kind, trace.view) == (
                kind,
                replace(expected, pinned=(*summaries, *expected.pinned)),
            )

    @pytest.mark.parametrize(
        "view",
        [
            "",
            "[",
            "[]",
            "{}",
            '{"pinned": "^", "expanded": []}',
            '{"pinned": [1], "expanded": []}',
            f'{{"pinned": {["^"] * 9}, "expanded": []}}'.replace("'", '"'),
            f'{{"pinned": ["{"x" * 201}"], "expanded": []}}',
            '{"pinned": [], "expanded": [], "window": [5, 1]}',
            '{"pinned": [], "expanded": [], "window": [0, 1e9]}',
            '{"pinned": [], "expanded": [], "window": 7}',
        ],
    )
    def test_of_somebody_else_is_not_used(self, view: str) -> None:
        head = f'{{"tracelink": {{"view": {view}, "ranks": []}}, "traceEvents": []}}'
        assert view_of(head.encode(), TraceKind.JSON) == StartupView()

    def test_without_a_view_pins_the_groups(self) -> None:
        assert view_of(b'{"traceEvents": [{"args": {"view": {}}}]}', TraceKind.JSON) == StartupView()


class TestTheTimesThatAreShown:
    def recorded(self, *spans: tuple[int, int]) -> JobBuilder:
        """Collectives of two ranks that a recorder saw; of the last one a profiler saw the kernels."""
        job = JobBuilder()
        group = job.group(0, 1, name="0")
        for span in spans:
            seen = {0: 1, 1: 1} if span == spans[-1] else None
            job.collective(group, {0: span, 1: span}, kernels=seen)
        return job

    def test_are_those_that_were_profiled_where_recorders_look_much_further_back(self) -> None:
        job = replace(self.recorded((0, 100), (9000, 10_000)).job(), first_ns=START, last_ns=START + 10_000)
        assert startup_view(job).window == (8980, 10_000)

    def test_are_all_where_most_was_profiled(self) -> None:
        job = replace(self.recorded((0, 100), (200, 1000)).job(), first_ns=START, last_ns=START + 1000)
        assert startup_view(job).window is None

    def test_are_all_where_nothing_was_profiled(self) -> None:
        job = JobBuilder()
        job.collective(job.group(0, 1, name="0"), {0: (0, 9), 1: (5, 9)})
        assert first_view(job).window is None


class TestTheBrowser:
    @pytest.mark.parametrize(
        ("environment", "system", "here"),
        [
            ({"DISPLAY": ":0"}, "linux", True),
            ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", True),
            ({"BROWSER": "firefox", "SSH_CONNECTION": "1"}, "linux", True),
            ({}, "linux", False),
            ({"SSH_CONNECTION": "1"}, "linux", False),
            ({"SSH_CONNECTION": "1", "DISPLAY": "localhost:10.0"}, "linux", True),
            ({}, "darwin", True),
            ({"SSH_TTY": "/dev/ttys0"}, "darwin", False),
        ],
    )
    def test_is_where_it_can_be_seen(self, environment: dict[str, str], system: str, here: bool) -> None:
        assert browser.has_display(environment, system) is here


def threads_of(sample: str) -> list[str]:
    import tracelink

    return list(write(tracelink.load(str(samples.path(sample)))).threads().values())
