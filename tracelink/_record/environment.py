"""Variables that torch reads before a capture can begin: which, for what, and until when they can be set."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from tracelink._record.files import Journal
from tracelink._record.rank import initialized

FOLDER = "TRACELINK_CAPTURE"
"""The folder to record into: `tracelink run` sets it."""
STEPS = "TRACELINK_CAPTURE_STEPS"
OPTIONS = "TRACELINK_CAPTURE_OPTIONS"
"""The other arguments of `tracelink.capture`, as JSON."""
COMPILE_FOLDER = "compile"
DUMP_PREFIX = "fr/comm_lib_trace_rank_"
ENTRIES = "2000"
"""Entries that the recorder keeps."""
TRACE = "TORCH_TRACE"


class Until(Enum):
    """When torch reads a variable."""

    IMPORT = "import torch"
    PROCESS_GROUP = "init_process_group"


@dataclass(frozen=True, slots=True)
class Setting:
    """A variable, and what it is for."""

    name: str
    value: str
    """`{}` is the folder of the capture."""
    purpose: str
    until: Until = Until.PROCESS_GROUP
    older: bool = False
    """Whether it is the former name of another one, at which newer versions of torch warn."""


SETTINGS = (
    Setting("TORCH_FR_BUFFER_SIZE", ENTRIES, "the flight recorder keeps the last calls"),
    Setting("TORCH_NCCL_TRACE_BUFFER_SIZE", ENTRIES, "the same, in older versions", older=True),
    Setting("TORCH_NCCL_DUMP_ON_TIMEOUT", "1", "NCCL dumps the flight recorder at a timeout"),
    Setting("TORCH_NCCL_DESYNC_DEBUG", "1", "NCCL reports at a timeout which ranks are behind"),
    Setting("TORCH_FR_DUMP_TEMP_FILE", f"{{}}/{DUMP_PREFIX}", "these dumps go to the folder of the capture"),
    Setting(
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", f"{{}}/{DUMP_PREFIX}", "the same, in older versions", older=True
    ),
    Setting(TRACE, f"{{}}/{COMPILE_FOLDER}", "torch.compile logs what it does", Until.IMPORT),
)
RENAMED = (2, 10)
"""The version of torch from which on the older names are not needed."""


def settings_for(folder: Path, present: Mapping[str, str], *, compile_log: bool = True) -> dict[str, str]:
    """The variables to add to an environment, which wins if it has one of them already."""
    return {
        setting.name: setting.value.format(folder.absolute())
        for setting in SETTINGS
        if setting.name not in present and (compile_log or setting.name != TRACE)
    }


def set_in_time(folder: Path, *, compile_log: bool) -> None:
    """Sets what torch has not read yet, so that a capture around `init_process_group` needs no variable."""
    torch = sys.modules.get("torch")
    if torch is not None and initialized(torch):
        return
    wanted = settings_for(folder, os.environ, compile_log=compile_log)
    for setting in SETTINGS:
        in_time = setting.until is Until.PROCESS_GROUP or torch is None
        if setting.name in wanted and in_time and (torch is None or setting.older <= is_older(torch)):
            os.environ[setting.name] = wanted[setting.name]
    if torch is not None:
        drop_older_names(torch, folder)


def is_older(torch: Any) -> bool:
    """True if this version of torch may only know the older names."""
    numbers = re.match(r"(\d+)\.(\d+)", str(getattr(torch, "__version__", "")))
    return numbers is not None and (int(numbers[1]), int(numbers[2])) < RENAMED


def drop_older_names(torch: Any, folder: Path) -> None:
    """Removes the older names that were set before the version of torch was known, which would warn at them."""
    if is_older(torch):
        return
    for setting in SETTINGS:
        if setting.older and os.environ.get(setting.name) == setting.value.format(folder.absolute()):
            del os.environ[setting.name]


def report_what_is_too_late(torch: Any, journal: Journal, folder: Path) -> None:
    """Notes the variables that NCCL needed and that were not there when it started, with the lines to add."""
    if not initialized(torch) or not any("nccl" in group.backend for group in journal.document.groups):
        return
    missing = settings_for(folder, os.environ, compile_log=False)
    needed = [setting for setting in SETTINGS if setting.name in missing and setting.older <= is_older(torch)]
    if needed:
        journal.trouble(
            "environment",
            "set too late, because the process group existed already: "
            + "; ".join(f"{setting.name} ({setting.purpose})" for setting in needed),
            "Use tracelink run, or add before init_process_group: "
            + "; ".join(f'os.environ["{setting.name}"] = "{missing[setting.name]}"' for setting in needed),
        )


# The log of torch.compile, which torch switches on as it is imported.


class CompileLog:
    """The structured log of torch.compile, switched on late."""

    def __init__(self, torch: Any, folder: Path) -> None:
        self._log = logging.getLogger("torch.__trace")
        self._handler: Any = None
        if TRACE in os.environ:
            return
        internal = getattr(getattr(torch, "_logging", None), "_internal", None)
        handler = getattr(internal, "LOG_TRACE_HANDLER", None)
        if handler is None:
            raise RuntimeError(f"torch {torch.__version__} writes no structured log; 2.3 and later do")
        if handler.stream is None and handler.root_dir is None:
            handler.root_dir = str(folder / COMPILE_FOLDER)
            if handler not in self._log.handlers:
                self._log.addHandler(handler)
            self._handler = handler

    def stop(self) -> None:
        """Switches it off again."""
        handler, self._handler = self._handler, None
        if handler is not None:
            self._log.removeHandler(handler)
            handler.flush()
            handler.root_dir = None
