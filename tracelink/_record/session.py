"""A capture: a block around the training loop, in which chosen steps are recorded."""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar

from tracelink._io.targets import check_local
from tracelink._model.selection import Numbers
from tracelink._model.text import counted
from tracelink._record import clocks, environment
from tracelink._record import rank as this_rank
from tracelink._record.dumping import Dumper
from tracelink._record.files import LOG, Files, Journal
from tracelink._record.gpus import GpuSampler
from tracelink._record.guard import Guard
from tracelink._record.options import (
    USUAL_BYTES,
    USUAL_INTERVAL_S,
    USUAL_STEPS,
    Options,
    checked,
    steps_of,
)
from tracelink._record.profiling import Observer, Profiling, printable_name
from tracelink._record.sampling import Machine, Sampler
from tracelink.converters.capture import schema

NEVER = sys.maxsize
FINISHED, TERMINATED = "finished", "terminated"


def capture(
    output: str | os.PathLike[str],
    steps: str | int = USUAL_STEPS,
    *,
    profile: bool = True,
    execution_trace: bool = True,
    recorder: bool = True,
    compile_log: bool = True,
    shapes: bool = True,
    stacks: bool = False,
    memory: bool = False,
    modules: bool = False,
    watchdog: float | None = None,
    metrics: float | None = USUAL_INTERVAL_S,
    max_bytes: int = USUAL_BYTES,
    mesh: Any = None,
) -> Capture:
    """Records steps of a training loop: a context manager, whose `step()` is called at the end of each step.

    Nothing that goes wrong while recording ends the training: it is a warning of the logger `tracelink.capture`, and an
    entry of `capture_N.json`. An exception of the block leaves it unchanged.

    Args:
        output: The folder to write to; all ranks can share it.
        steps: The steps to record: `"5-7"`, or several windows as `"5-7,20-21"`. The first step is 0.
        profile: Record with torch.profiler: operators, kernels, annotations.
        execution_trace: Record the execution trace of the same operators.
        recorder: Dump the flight recorder at the end, and when the block fails or hangs.
        compile_log: Log what torch.compile does from here on.
        shapes: Record the shapes of the inputs of operators.
        stacks: Record Python stacks of operators; large.
        memory: Record allocations.
        modules: Record names of modules (TorchScript only).
        watchdog: Dump recorder and Python stacks if no step ends for so many seconds; None for never.
        metrics: Seconds between two samples of CPU, memory, disk, network and GPUs of the machine; None for none.
        max_bytes: How much this rank may write; windows that do not fit are left out.
        mesh: A `DeviceMesh`, to be described in the capture file.

    Returns:
        The capture, to be used as `with tracelink.capture(...) as capture:`.

    Raises:
        UsageError: An argument makes no sense. Nothing else is ever raised.
    """
    check_local(os.fspath(output))
    options = Options(
        output=Path(output),
        steps=steps_of(steps),
        profile=profile,
        execution_trace=execution_trace,
        recorder=recorder,
        compile_log=compile_log,
        shapes=shapes,
        stacks=stacks,
        memory=memory,
        modules=modules,
        watchdog_s=watchdog,
        metrics_s=metrics,
        max_bytes=max_bytes,
    )
    return Capture(checked(options), mesh)


class Capture:
    """Records the steps of a block. Made by `tracelink.capture`."""

    _active: ClassVar[Capture | None] = None
    """The capture of this process: there is one profiler."""
    _count: ClassVar[int] = 0
    """Captures that this process began."""

    def __init__(self, options: Options, mesh: Any = None) -> None:
        self.options = options
        self.steps = 0
        """Steps that ended."""
        self.journal = Journal()
        self._mesh = mesh
        self._next = 0
        """The step at whose begin there is something to do."""
        self._windows = list(options.windows)
        self._window: schema.Window | None = None
        self._profiling: Profiling | None = None
        self._observer: Observer | None = None
        self._dumper: Dumper | None = None
        self._guard: Guard | None = None
        self._compared = False
        self._sampler: Sampler | None = None
        self._gpus: GpuSampler | None = None
        self._number = 0
        self._compile_log: environment.CompileLog | None = None
        self._torch: Any = None
        self._files: Files | None = None
        self._thread = 0
        self._pid = 0
        self._entered = False

    # What the training calls.

    def __enter__(self) -> Capture:
        if self._entered:
            LOG.warning(
                "tracelink capture: a capture records once; this block is not recorded. Make another capture for it."
            )
        elif Capture._active is not None:
            self._next = NEVER
            LOG.warning(
                "tracelink capture: this block is within another capture; only the outer one records."
            )
        else:
            Capture._active = self
            self._number, Capture._count = Capture._count, Capture._count + 1
            self._thread, self._pid = threading.get_ident(), os.getpid()
            if not self.journal.attempt("capture", self._begin):
                self._next = NEVER
        self._entered = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if Capture._active is not self or os.getpid() != self._pid:
            return
        self._next = NEVER
        try:
            self.journal.attempt("capture", lambda: self._end(kind.__name__ if kind else FINISHED))
        finally:
            Capture._active = None

    def step(self) -> None:
        """Ends a step: call it once at the end of each pass of the loop."""
        self.steps += 1
        if self.steps >= self._next and not self.journal.attempt("capture", self._advance):
            self._next = NEVER

    def annotate(self, name: str) -> AbstractContextManager[Any]:
        """A block that appears under this name in profile and execution trace; costs nothing in steps not recorded."""
        if self._window is None or self._torch is None:
            return nullcontext()
        marked: AbstractContextManager[Any] = self._torch.profiler.record_function(printable_name(name))
        return marked

    # Begin and end.

    def _begin(self) -> None:
        restarts = this_rank.restarts()
        folder = self.options.output / f"restart_{restarts}" if restarts else self.options.output
        environment.set_in_time(folder, compile_log=self.options.compile_log)
        import torch

        environment.set_in_time(folder, compile_log=self.options.compile_log)
        self._torch = torch
        document = self.journal.document
        self._identify()
        files = Files(folder, self.options.max_bytes)
        files.begin()
        self._files, self.journal.files = files, files
        if (folder / self.journal.name).exists():
            self.journal.trouble(
                "folder",
                f"{folder} has files of an earlier capture, of which those with other names stay",
                "Use a new folder for each run.",
            )
        self._dumper = Dumper(torch, files, self.journal)
        document.start_ns = time.time_ns()
        document.options = self.options.as_texts()
        document.environment = this_rank.environment()
        self.journal.read_clocks()
        self.journal.attempt("capture file", self.journal.save)
        self.journal.attempt("signals", self._start_guard)
        environment.report_what_is_too_late(torch, self.journal, folder)
        if self.options.compile_log:
            self.journal.attempt("compile log", lambda: self._start_compile_log(folder))
        self.journal.attempt("clocks", self._compare_clocks)
        if self.options.metrics_s is not None and document.local_rank in (0, None):
            self.journal.attempt("metrics", self._start_sampler)
            self.journal.attempt("metrics", self._start_gpus)
        self._advance()

    def _start_sampler(self) -> None:
        document, interval = self.journal.document, self.options.metrics_s
        if self._files is not None and interval is not None:
            gauges = [Machine()]
            self._sampler = Sampler(
                self._files,
                document.rank,
                document.host,
                interval,
                gauges,
                lambda problem: self.journal.trouble("metrics", problem),
            )
            self._sampler.start()

    def _start_gpus(self) -> None:
        document, interval = self.journal.document, self.options.metrics_s
        if self._files is not None and interval is not None:
            self._gpus = GpuSampler(
                self._files,
                document.rank,
                document.host,
                interval,
                lambda problem: self.journal.trouble("metrics", problem),
            )
            self._gpus.start()

    def _compare_clocks(self) -> None:
        """Starts once there is a process group: now, or before the first window."""
        distributed = this_rank.initialized(self._torch)
        if self._compared or distributed is None or distributed.get_world_size() < 2:
            return
        self._compared = True
        local = this_rank.identity(self._torch).local_rank
        place = clocks.Place(distributed.get_rank(), distributed.get_world_size(), local, self._number)
        clocks.compare(distributed, place, self.journal.document.round_trips.extend)

    def _start_compile_log(self, folder: Path) -> None:
        self._compile_log = environment.CompileLog(self._torch, folder)

    def _start_guard(self) -> None:
        self._guard = Guard(self._dump_hang, lambda: self.steps, self.options.watchdog_s)
        if problem := self._guard.start():
            self.journal.trouble("signals", problem)

    def _dump_hang(self, reason: str) -> None:
        """Called by the guard: the training may hang, or is about to be ended."""
        if self._dumper is not None:
            if reason == "SIGTERM":
                self.journal.document.outcome = TERMINATED
            self.journal.document.steps = self.steps
            self._dumper.dump(reason, self.steps, recorder=self.options.recorder, stacks=True)

    def _identify(self) -> None:
        """Fills in what the process is; repeated at the end, when all groups exist."""
        document, found = self.journal.document, this_rank.identity(self._torch)
        document.rank, document.rank_from = found.rank, found.rank_from
        document.world_size, document.local_rank = found.world_size, found.local_rank
        document.host, document.pid = found.host, found.pid
        self.journal.name = f"capture_{found.rank}.json"
        self.journal.attempt("process groups", self._describe_groups)
        document.versions = this_rank.versions(self._torch)

    def _describe_groups(self) -> None:
        if groups := this_rank.groups(self._torch):
            self.journal.document.groups = groups
        if self._mesh is not None:
            self.journal.document.meshes = [this_rank.mesh_of(self._mesh)]

    def _end(self, outcome: str) -> None:
        attempt, document = self.journal.attempt, self.journal.document
        if self._window is not None:
            attempt("profile", lambda: self._close_window(complete=False))
        elif self._profiling is not None:
            attempt("profile", self._profiling.abandon)
        attempt("execution trace", self._close_observer)
        if document.rank_from != this_rank.OF_TORCH and this_rank.initialized(self._torch):
            self._identify()
        elif this_rank.initialized(self._torch):
            attempt("process groups", self._describe_groups)
        if self._windows:
            left = Numbers(tuple(self._windows)).called("step")
            self.journal.trouble(
                "steps",
                f"not recorded: {left}; the block ended after {counted(self.steps, 'step')}",
                "Choose earlier steps, or call capture.step() at the end of each step.",
            )
        if self._compile_log is not None:
            attempt("compile log", self._compile_log.stop)
        if self._sampler is not None:
            attempt("metrics", self._sampler.stop)
        if self._gpus is not None:
            attempt("metrics", self._gpus.stop)
        if self._guard is not None:
            attempt("signals", self._guard.stop)
        document.outcome, document.steps = outcome, self.steps
        self.journal.read_clocks()
        if self.options.recorder and self._dumper is not None:
            failed = outcome != FINISHED
            self._dumper.dump("exception" if failed else "end", self.steps, recorder=True, stacks=False)
        document.end_ns = time.time_ns()
        self.journal.save()

    # Steps.

    def _advance(self) -> None:
        """What is to be done as the step `self.steps` begins."""
        if not self._entered and Capture._active is not self:
            self._next = NEVER
            LOG.warning("tracelink capture: step() was called outside of the block; nothing is recorded.")
            return
        if os.getpid() != self._pid:
            self._next = NEVER  # a fork
            return
        if threading.get_ident() != self._thread:
            self._next = NEVER
            self.journal.trouble("steps", "step() was called by another thread; recording ends")
            return
        step, window = self.steps, self._window
        if window is not None and self._profiling is not None:
            self.journal.attempt("profile", self._profiling.end_step)
            if step > window.last or not self._has_room():
                self.journal.attempt("profile", lambda: self._close_window(complete=step > window.last))
        if self._window is None and self._windows:
            first, _ = self._windows[0]
            if step >= first - 1:
                self._open_window(step)
        if self._window is not None and self._profiling is not None:
            profiling = self._profiling
            self.journal.attempt("profile", lambda: profiling.begin_step(step))
        self._next = self._next_step()

    def _next_step(self) -> int:
        if self._window is not None:
            return self.steps + 1
        if not self._windows:
            return NEVER
        return max(self._windows[0][0] - 1, self.steps + 1)

    def _open_window(self, step: int) -> None:
        """Makes the profiler ready one step before the first one of a window, and starts it with that step."""
        first, last = self._windows[0]
        if self._profiling is None:
            if not self._has_room():
                del self._windows[:]
                return
            self.journal.attempt("clocks", self._compare_clocks)
            self._observer = self._observer or self._opened_observer()
            self._profiling = Profiling(self._torch, self.options, self._observer, self.journal.attempt)
            self.journal.attempt("profile", self._profiling.prepare)
        if step < first:
            return
        self._windows.pop(0)
        self._sample()
        if not self.journal.attempt("profile", self._profiling.start):
            self._profiling = None
            return
        self._window = schema.Window(first, last, time.time_ns())
        self.journal.document.windows.append(self._window)

    def _sample(self) -> None:
        """Metrics at the begin and the end of a window, which may be shorter than the time between two samples."""
        if self._sampler is not None:
            self.journal.attempt("metrics", self._sampler.add)

    def _opened_observer(self) -> Observer | None:
        if not self.options.execution_trace or self._files is None:
            return None
        observer = Observer(self._torch, self._files.scratch(self._name("et")))
        return observer if self.journal.attempt("execution trace", observer.open) else None

    def _close_window(self, *, complete: bool) -> None:
        """Ends the recording of a window, and writes its profile."""
        window, profiling, files = self._window, self._profiling, self._files
        self._window = self._profiling = None
        if window is None or profiling is None or files is None:
            return
        exported = profiling.stop()
        window.end_ns, window.complete = time.time_ns(), complete
        self._sample()
        if exported:
            name = self._name("kineto", window)
            recorded = files.scratch(name)
            profiling.export(recorded)
            files.move(recorded, name, "kineto")
        if not self._windows:
            self.journal.attempt("execution trace", self._close_observer)
        self.journal.document.steps = self.steps
        self.journal.read_clocks()
        self.journal.attempt("capture file", self.journal.save)

    def _close_observer(self) -> None:
        observer, self._observer = self._observer, None
        if observer is None or self._files is None or not observer.close():
            return
        if self.journal.document.windows:
            self._files.move(observer.path, self._name("et"), "execution-trace")
        else:
            observer.path.unlink(missing_ok=True)

    def _name(self, kind: str, window: schema.Window | None = None) -> str:
        """`kineto_0.json.gz`; of several windows each has a folder."""
        name = f"{kind}_{self.journal.document.rank}.json.gz"
        if window is None or len(self.options.windows) == 1:
            return name
        return f"steps_{window.first}-{window.last}/{name}"

    def _has_room(self) -> bool:
        if self._files is None or self._files.room() > 0:
            return True
        self.journal.trouble(
            "limit",
            f"no more steps are recorded: {self._files.bytes} bytes are written, or the disk is full",
            "Raise max_bytes, record fewer steps, or choose another folder.",
        )
        return False
