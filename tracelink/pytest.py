"""A plugin of pytest: the fixture `tracelink_capture` records a benchmark, and gives the facts of the recording.

pytest imports this module whenever it starts, so all others are imported when the fixture is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tracelink._model.graph import EventGraph
    from tracelink._record.session import Capture

FOLDER = "--tracelink-traces"
USUAL_STEPS, USUAL_WARMUP = 3, 2
NS = 1e-9


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option that says where recordings stay."""
    parser.getgroup("tracelink").addoption(
        FOLDER,
        metavar="FOLDER",
        help="Folder for what tracelink_capture records, one folder for each test; by default a temporary one.",
    )


@pytest.fixture
def tracelink_capture(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> TracelinkCapture:
    """Records a benchmark with `tracelink.capture`: `recorded = tracelink_capture(function)`."""
    chosen = request.config.getoption(FOLDER)
    name = re.sub(r"[^\w.-]+", "-", request.node.nodeid).strip("-")[:150]
    return TracelinkCapture(Path(chosen) / name if chosen else tmp_path_factory.mktemp("traces"))


@dataclass
class TracelinkCapture:
    """What the fixture `tracelink_capture` gives: each call or block is recorded into a folder of its own."""

    folder: Path
    recorded: Recorded | None = None
    """The newest recording."""
    _count: int = 0

    def __call__(
        self,
        function: Callable[..., object],
        *arguments: Any,
        steps: int = USUAL_STEPS,
        warmup: int = USUAL_WARMUP,
        **options: Any,
    ) -> Recorded:
        """Calls a function several times, and records the last of these calls, each as a step.

        Args:
            function: What to record, such as a training step; an exception of it passes through.
            arguments: Its arguments.
            steps: How many calls are recorded.
            warmup: How many calls are made before.
            options: Those of `tracelink.capture`, such as `stacks=True`.
        """
        from tracelink._model.errors import UsageError

        if steps < 1 or warmup < 0:
            raise UsageError(
                f"tracelink_capture: steps={steps}, warmup={warmup}", advice="Record one step at least."
            )
        with self.block(f"{warmup}-{warmup + steps - 1}", **options) as capture:
            for _ in range(warmup + steps):
                function(*arguments)
                capture.step()
        assert self.recorded is not None
        return self.recorded

    @contextmanager
    def block(self, steps: str, **options: Any) -> Iterator[Capture]:
        """A block in which these steps are recorded, as by `tracelink.capture`; then look at `recorded`.

        Args:
            steps: Such as "5-7"; `step()` of what this gives ends a step.
            options: Those of `tracelink.capture`.
        """
        from tracelink._record.session import capture

        folder = self.folder / str(self._count) if self._count else self.folder
        self._count += 1
        self.recorded = None
        with capture(folder, steps, **options) as running:
            yield running
        troubles = running.journal.document.troubles
        self.recorded = Recorded(
            folder, tuple(f"{trouble.subject}: {trouble.message}" for trouble in troubles)
        )


@dataclass(frozen=True, slots=True)
class Step:
    """A recorded step of a rank."""

    rank: int
    step: int
    seconds: float


@dataclass(frozen=True, slots=True)
class CollectiveTotal:
    """The collectives of one operation and group."""

    operation: str
    group: str
    count: int
    bytes: int
    """Of all of them whose size is known."""


@dataclass(frozen=True)
class Recorded:
    """A recording, and its facts."""

    folder: Path
    """Where the traces are: `tracelink merge` makes a timeline of them."""
    problems: tuple[str, ...]
    """What could not be recorded."""

    @property
    def files(self) -> list[str]:
        """The files in the folder."""
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file())

    def graph(self, **options: Any) -> EventGraph:
        """The event graph of the recording; `options` are those of `tracelink.load`.

        Raises:
            UnreadableError: Nothing was recorded: see `problems`.
        """
        from tracelink._api.functions import load

        return load([str(self.folder)], jobs=1, **options) if options else self._graph

    @cached_property
    def _graph(self) -> EventGraph:
        from tracelink._api.functions import load

        return load([str(self.folder)], jobs=1)

    @property
    def steps(self) -> list[Step]:
        """The recorded steps, by rank and number, as long as the profiler saw them."""
        from tracelink._model.events import EventKind
        from tracelink._model.selection import STEP_NAMES

        graph = self._graph
        ranks = graph.rank_of_events()
        rows = graph.events.of_kind(EventKind.ANNOTATION).nonzero()[0]
        found: dict[tuple[int, int], float] = {}
        for row in rows.tolist():
            if match := STEP_NAMES[0].fullmatch(graph.name(row)):
                key = int(ranks[row]), int(match[1])
                seconds = max(int(graph.events.duration[row]), 0) * NS
                found[key] = max(seconds, found.get(key, 0.0))  # devices repeat it, shorter
        return [Step(rank, number, seconds) for (rank, number), seconds in sorted(found.items())]

    @property
    def link_rates(self) -> dict[str, float]:
        """The part of the events that could be linked by each relation and are, on all ranks."""
        counts: dict[str, list[int]] = {}
        for reports in self._graph.reports.values():
            for report in reports:
                total = counts.setdefault(report.relation, [0, 0])
                total[0] += report.linked
                total[1] += report.candidates
        return {name: linked / candidates for name, (linked, candidates) in counts.items() if candidates}

    @property
    def collectives(self) -> list[CollectiveTotal]:
        """The collectives by group and operation."""
        table = self._graph.table("collectives")
        totals: dict[tuple[str, str], list[int]] = {}
        rows = zip(
            table["group_name"], table["operation"], self._graph.collectives.bytes.tolist(), strict=True
        )
        for group, operation, size in rows:
            total = totals.setdefault((str(group), str(operation)), [0, 0])
            total[0] += 1
            total[1] += max(size, 0)
        return [
            CollectiveTotal(operation, group, count, size)
            for (group, operation), (count, size) in sorted(totals.items())
        ]

    def facts(self) -> dict[str, Any]:
        """All of this as plain lists and dictionaries, for `benchmark.extra_info`; never fails a benchmark."""
        from tracelink._model.errors import TraceError

        known: dict[str, Any] = {"traces": str(self.folder), "problems": list(self.problems)}
        try:
            known["steps"] = [asdict(step) for step in self.steps]
            known["link_rates"] = self.link_rates
            known["collectives"] = [asdict(total) for total in self.collectives]
        except TraceError as error:
            known["problems"].append(str(error))
        return known
