"""How profiles name Python functions, and which of these are of the program itself."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from itertools import dropwhile
from pathlib import PurePath

from tracelink.analysis.evidence import own_frames
from tracelink.diagnosis import Frame

PYTHON_FRAME = re.compile(r"(?P<file>.+)\((?P<line>\d{1,9})\): (?P<name>.+)")
"""How a profile names a Python function; modules and built-in functions have other names."""
BUILT_IN = re.compile(r"<built-in (?:method|function) (?P<name>\w+)\b.*>")
OF_TORCH = re.compile(r"^(?:torch/|typing_extensions\.py)")
"""Files of torch, as a profile names them: without the folder that they are installed in."""


def frame_of(name: str) -> Frame | None:
    """The line of a Python stack that a profile names so."""
    match = PYTHON_FRAME.fullmatch(name)
    return Frame(match["name"], match["file"], int(match["line"])) if match else None


def called(name: str) -> str:
    """`step (train.py:20)`, `run_backward`: what a profile calls `train.py(20): step`, `<built-in method ...>`."""
    if frame := frame_of(name):
        return f"{frame.name} ({PurePath(frame.filename).name}:{frame.line})"
    built_in = BUILT_IN.fullmatch(name)
    return built_in["name"] if built_in else name


def is_code(name: str) -> bool:
    """Whether it is a line of Python, or a function without one; modules have other names."""
    return bool(PYTHON_FRAME.fullmatch(name) or BUILT_IN.fullmatch(name))


def starts_a_program(filename: str) -> bool:
    """Whether it comes with Python."""
    first = filename.partition("/")[0]
    return first.startswith("<") or first.removesuffix(".py") in sys.stdlib_module_names


def of_program(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """The stack without what starts a program and without torch, unless nothing else is left."""
    started = dropwhile(lambda frame: starts_a_program(frame.filename), reversed(frames))
    own = [frame for frame in reversed(list(started)) if not OF_TORCH.match(frame.filename)]
    return own_frames(own or frames)
