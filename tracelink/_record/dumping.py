"""Dumps of the flight recorder and of Python stacks of this process."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from dataclasses import dataclass
from types import FrameType
from typing import Any

from tracelink._record.files import Files, Journal
from tracelink._record.guard import DUMPING, WATCHDOG
from tracelink._record.rank import OF_TORCH
from tracelink.converters.capture import schema

DUMP_NAME = "fr/comm_lib_trace_rank_{}"
STACKS_NAME = "fr/stacks_rank_{}.txt"
RECORDERS = ("_dump_nccl_trace", "_dump_fr_trace")
"""Functions of torch that dump a recorder: that of NCCL, and that of all other backends."""
ENTRY = b"profiling_name"
"""In every dump that is not empty."""
AT_HANG = (WATCHDOG, *DUMPING)
"""Reasons of dumps that are made while a step may hang: a later one of the same step contains less."""


@dataclass(slots=True)
class Dumper:
    """Dumps of one rank: the newest replaces the one before, except for one of a hang."""

    torch: Any
    files: Files
    journal: Journal
    hung_step: int | None = None

    def dump(self, reason: str, step: int, *, recorder: bool, stacks: bool) -> None:
        """Writes what is asked for."""
        if reason not in AT_HANG and self.hung_step == step:
            return  # gloo marks what failed as over: the dump of the hang shows more
        self.journal.document.dumps.append(schema.Dump(reason, time.time_ns(), step))
        written: list[str] = self.journal.document.dumps[-1].files
        rank = self.journal.document.rank
        if stacks:
            name = STACKS_NAME.format(rank)
            self.journal.attempt(
                "stacks",
                lambda: written.append(
                    self.files.write(name, stacks_text().encode(errors="backslashreplace"), "stacks")
                ),
            )
        if recorder:
            self.journal.attempt("flight recorder", lambda: written.extend(self._dump_recorder(rank)))
        if reason in AT_HANG:
            self.hung_step = step
        self.journal.attempt("capture file", self.journal.save)

    def _dump_recorder(self, rank: int) -> list[str]:
        dumps = self._recorded()
        if dumps is None:
            if self.journal.document.rank_from == OF_TORCH:
                message = f"torch {self.torch.__version__} has no flight recorder for the backend of this job"
                self.journal.trouble("flight recorder", message)
            return []
        if not dumps:
            if self.journal.document.rank_from == OF_TORCH:
                self.journal.trouble(
                    "flight recorder",
                    "it recorded nothing",
                    "Set TORCH_FR_BUFFER_SIZE=2000 and TORCH_NCCL_TRACE_BUFFER_SIZE=2000 before torch starts, "
                    "or use: tracelink run",
                )
            return []
        if len(dumps) > 1:
            message = "there are recorders of several backends; only that of NCCL was dumped"
            self.journal.trouble("flight recorder", message)
        return [self.files.write(DUMP_NAME.format(rank), dumps[0], "flight-recorder")]

    def _recorded(self) -> list[bytes] | None:
        """The dumps of all recorders that recorded something; None if this torch has no recorder."""
        c10d = getattr(self.torch._C, "_distributed_c10d", None)
        functions = [getattr(c10d, name) for name in RECORDERS if hasattr(c10d, name)]
        if not functions:
            return None
        dumps = [bytes(function()) for function in functions]
        return [dump for dump in dumps if ENTRY in dump]


def stacks_text() -> str:
    """The stacks of all threads as faulthandler prints them, with names of threads; the main thread comes first."""
    frames = sys._current_frames()
    threads = {thread.ident: thread for thread in threading.enumerate()}
    main = threading.main_thread().ident
    own = threading.get_ident()
    parts = []
    for ident in sorted(frames, key=lambda ident: (ident != main, ident)):
        thread = threads.get(ident)
        if ident == own and ident != main:
            continue  # the thread that dumps
        name = thread.name if thread else "unknown"
        parts.append(
            f"Thread {ident:#018x} [{name}] (most recent call first):\n{_frames_text(frames[ident])}"
        )
    return "\n".join(parts)


def _frames_text(frame: FrameType) -> str:
    entries = [
        (inner.f_code.co_filename, line, inner.f_code.co_name) for inner, line in traceback.walk_stack(frame)
    ]
    return "".join(f'  File "{file}", line {line} in {name}\n' for file, line, name in entries)
