"""One window of steps: torch's profiler and its execution-trace observer, over exactly the same operators.

Operators are linked by the number that both write for each of them. The profiler starts before the observer and stops
after it, so that each operator of the execution trace is also in the profile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tracelink._record.options import Options

STEP = "ProfilerStep#{}"
"""The annotation of a step, as torch.profiler names it."""
OBSERVERS = ("ExecutionTraceObserver", "ExecutionGraphObserver")
"""The class by its name in torch 2.1 and later, and before."""


def printable_name(name: str) -> str:
    """A name without the characters that the observer of torch writes unescaped."""
    return "".join("_" if char in '"\\' or not char.isprintable() else char for char in name)


@dataclass(slots=True)
class Observer:
    """torch's execution-trace observer: one file for all windows."""

    torch: Any
    path: Path
    _observer: Any = None

    def open(self) -> None:
        """Opens the file."""
        profiler = self.torch.profiler
        kind = next((getattr(profiler, name) for name in OBSERVERS if hasattr(profiler, name)), None)
        if kind is None:
            raise RuntimeError(f"torch {self.torch.__version__} has no execution-trace observer")
        observer = kind()
        observer.register_callback(str(self.path))
        if not getattr(observer, "_registered", True):
            raise RuntimeError("another execution-trace observer is open in this process")
        self._observer = observer

    def start(self) -> None:
        """Records from now on."""
        if self._observer is not None:
            self._observer.start()

    def stop(self) -> None:
        """Records no longer."""
        if self._observer is not None:
            self._observer.stop()

    def close(self) -> bool:
        """Finishes the file; True if there is one."""
        observer, self._observer = self._observer, None
        if observer is None:
            return False
        observer.unregister_callback()
        return True


@dataclass(slots=True)
class Profiling:
    """torch's profiler in one window."""

    torch: Any
    options: Options
    observer: Observer | None
    attempt: Callable[[str, Callable[[], object]], bool]
    """Calls a function; a failure is noted under the name, and False."""
    _profiler: Any = None
    _step: Any = None
    _running: bool = field(default=False, init=False)

    def prepare(self) -> None:
        """Makes the profiler ready, which takes a while on devices."""
        if not self.options.profile:
            return
        options = self.options
        profiler = self.torch.profiler.profile(
            record_shapes=options.shapes,
            with_stack=options.stacks,
            profile_memory=options.memory,
            with_modules=options.modules,
        )
        profiler.prepare_trace()
        self._profiler = profiler

    def start(self) -> None:
        """Starts the profiler, then the observer."""
        if self._profiler is not None:
            self._profiler.start_trace()
        self._running = True
        if self.observer is not None:
            self.attempt("execution trace", self.observer.start)

    def begin_step(self, step: int) -> None:
        """Annotates a step."""
        self._step = self.torch.profiler.record_function(STEP.format(step))
        self._step.__enter__()

    def end_step(self) -> None:
        """Ends the annotation."""
        step, self._step = self._step, None
        if step is not None:
            step.__exit__(None, None, None)

    def stop(self) -> bool:
        """Stops the observer, then the profiler; True if there is something to export."""
        self.end_step()
        if not self._running:
            return False
        self._running = False
        if self.observer is not None:
            self.attempt("execution trace", self.observer.stop)
        if self._profiler is None:
            return False
        self._profiler.stop_trace()
        return True

    def export(self, path: Path) -> None:
        """Writes the profile."""
        self._profiler.export_chrome_trace(str(path))
        self._profiler = None

    def abandon(self) -> None:
        """Ends a profiler that was made ready, but never started."""
        profiler, self._profiler = self._profiler, None
        if profiler is not None and not self._running:
            profiler.start_trace()
            profiler.stop_trace()
