"""Recording with what a training already has: a `torch.profiler.profile`, Lightning's Trainer, transformers' Trainer.

None of these packages is imported here: the classes have the methods that a Trainer calls, and need no base class.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tracelink._record import rank as this_rank
from tracelink._record.automatic import Ending
from tracelink._record.files import Files, Journal
from tracelink._record.options import USUAL_BYTES, USUAL_STEPS
from tracelink._record.profiling import Observer
from tracelink._record.session import FINISHED, capture

BATCH = "run_training_batch"
"""The action of Lightning's Trainer that is a step."""


# torch.profiler.profile


def attach(profiler: Any, output: str | os.PathLike[str]) -> Any:
    """Records the execution trace of the steps that a `torch.profiler.profile` records, by its own schedule.

    Profiles are written to the folder, too, unless the profiler has `on_trace_ready`: torch exports a profile once.
    Nothing that goes wrong ends the training: it is a warning, and an entry of `capture_N.json`.

    Args:
        profiler: The profiler, before it starts.
        output: The folder to write to; all ranks can share it.

    Returns:
        The same profiler.
    """
    journal = Journal()
    journal.attempt("capture", lambda: _Attached(profiler, Path(output), journal).begin())
    return profiler


class _Attached:
    """What torch.profiler takes for its observer of execution traces."""

    def __init__(self, profiler: Any, output: Path, journal: Journal) -> None:
        import torch

        self._profiler, self._journal = profiler, journal
        self._files = journal.files = Files(output, USUAL_BYTES)
        self._files.begin()
        found = this_rank.identity(torch)
        document, self._rank = journal.document, found.rank
        document.rank, document.rank_from, document.world_size = found.rank, found.rank_from, found.world_size
        document.host, document.pid, document.local_rank = found.host, found.pid, found.local_rank
        document.start_ns, document.versions = time.time_ns(), this_rank.versions(torch)
        journal.name = f"capture_{found.rank}.json"
        self._observer = Observer(torch, self._files.scratch(f"et_{found.rank}.json.gz"))
        self._started = self._cycles = 0

    def begin(self) -> None:
        """Connects both."""
        profiler = self._profiler
        if not hasattr(profiler, "execution_trace_observer"):
            raise RuntimeError(
                "the profiler of this torch takes no execution-trace observer; use tracelink.capture"
            )
        if profiler.execution_trace_observer is not None:
            raise RuntimeError("the profiler has an execution-trace observer already")
        self._observer.open()
        profiler.execution_trace_observer = self
        if profiler.on_trace_ready is None:
            profiler.on_trace_ready = lambda ready: self._journal.attempt(
                "profile", lambda: self._export(ready)
            )
        atexit.register(self.cleanup)

    def start(self) -> None:
        """Called as the profiler starts."""
        self._started += self._journal.attempt("execution trace", self._observer.start)

    def stop(self) -> None:
        """Called as it stops."""
        self._journal.attempt("execution trace", self._observer.stop)

    def cleanup(self) -> None:
        """Called at the end of the block of the profiler, and at the end of the process."""
        self._journal.attempt("execution trace", self._close)

    def _export(self, profiler: Any) -> None:
        name = f"kineto_{self._rank}.json.gz"
        name = f"cycle_{self._cycles}/{name}" if self._cycles else name
        self._cycles += 1
        recorded = self._files.scratch(name).with_suffix(".json")
        profiler.export_chrome_trace(str(recorded))
        self._files.move(recorded, name, "kineto")

    def _close(self) -> None:
        if not self._observer.close():
            return
        if self._started:
            self._files.move(self._observer.path, f"et_{self._rank}.json.gz", "execution-trace")
        else:
            self._observer.path.unlink(missing_ok=True)
        document = self._journal.document
        document.outcome, document.end_ns = FINISHED, time.time_ns()
        self._journal.save()


# Trainers


class TrainerCallback:
    """A callback of transformers' Trainer: `Trainer(..., callbacks=[TrainerCallback("traces/")])`.

    A step is a step of the optimizer. The arguments are those of `tracelink.capture`.
    """

    def __init__(
        self, output: str | os.PathLike[str], steps: str | int = USUAL_STEPS, **options: Any
    ) -> None:
        self._capture = capture(output, steps, **options)

    def on_train_begin(self, *_: object, **__: object) -> None:
        """Begins the capture; it ends with the training, or with the process if that fails."""
        Ending(self._capture.__enter__()).install()

    def on_step_end(self, *_: object, **__: object) -> None:
        """Ends a step."""
        self._capture.step()

    def on_train_end(self, *_: object, **__: object) -> None:
        """Ends the capture."""
        self._capture.__exit__(None, None, None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("on_"):
            return _nothing
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")


def _nothing(*_: object, **__: object) -> None:
    """All other events."""


class LightningProfiler:
    """A profiler of Lightning's Trainer: `Trainer(profiler=LightningProfiler("traces/"))`.

    A step is a training batch. The arguments are those of `tracelink.capture`.
    """

    def __init__(
        self, output: str | os.PathLike[str], steps: str | int = USUAL_STEPS, **options: Any
    ) -> None:
        self._capture = capture(output, steps, **options)

    def setup(self, stage: str | None = None, *_: object, **__: object) -> None:
        """Begins the capture with `fit`; it ends with that, or with the process if it fails."""
        if stage in ("fit", None):
            Ending(self._capture.__enter__()).install()

    def start(self, action_name: str) -> None:
        """Nothing: an action begins."""

    def stop(self, action_name: str) -> None:
        """Ends a step, if the action was one."""
        if action_name == BATCH:
            self._capture.step()

    @contextmanager
    def profile(self, action_name: str) -> Iterator[str]:
        """An action; if it fails, it is no step."""
        yield action_name
        self.stop(action_name)

    def summary(self) -> str:
        """Nothing to print."""
        return ""

    def teardown(self, *_: object, **__: object) -> None:
        """Ends the capture."""
        self._capture.__exit__(None, None, None)

    describe = teardown
