"""Where an output must not go: on top of what it is made of, or where there is no place for it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from tracelink.errors import TraceError, UsageError
from tracelink.targets import ANOTHER_PLACE, STDOUT


def check_folder(path: str) -> None:
    """Raises before anything is read where the folder of a file to be is missing."""
    folder = Path(path).parent
    if path != STDOUT and not path.endswith(os.sep) and not folder.is_dir():
        raise TraceError(
            f"cannot be written: there is no folder {folder}", source=path, advice=f"Make it. {ANOTHER_PLACE}"
        )


def check_not_read(path: str, read: Iterable[str]) -> None:
    """Raises where an output would take the place of what was read for it: a file, or an archive around it."""
    if path == STDOUT or not Path(path).is_file():
        return
    for source in read:
        for place in (source, source.rpartition(":")[0]):
            if place and Path(place).is_file() and os.path.samefile(place, path):
                raise UsageError(
                    f"{path} is one of the inputs, and would be overwritten", advice=ANOTHER_PLACE
                )
