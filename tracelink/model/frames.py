"""Stack frames: how dumps and profiles name the lines of a program, and which frames are its own."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from itertools import dropwhile
from pathlib import PurePath

from tracelink.model.records import Frame

OF_TORCH = re.compile(
    r"(?:site|dist)-packages/(?:torch/|typing_extensions\.py)|/torch/(?:distributed|_\w+)/|^(?:\?\?)?$"
    r"|\.(?:c|cc|cpp|cu|h|hpp)$"
)
"""Files of torch itself, and of compiled code."""
OF_TORCH_IN_PROFILES = re.compile(r"^(?:torch/|typing_extensions\.py)")
"""Files of torch, as a profile names them: without the installation directory."""
PYTHON_FRAME = re.compile(r"(?P<file>.+)\((?P<line>\d{1,9})\): (?P<name>.+)")
"""How a profile names a Python function; modules and built-in functions have other names."""
BUILT_IN = re.compile(r"<built-in (?:method|function) (?P<name>\w+)\b.*>")


def line_in_words(frame: Frame) -> str:
    """`train.py:65`."""
    return f"{PurePath(frame.filename).name or '?'}:{frame.line}"


def own_frames(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """The stack without frames of torch, unless there are no others."""
    own = tuple(frame for frame in frames if not OF_TORCH.search(frame.filename))
    return own or tuple(frames)


def frame_of(name: str) -> Frame | None:
    """The stack frame with this name in a profile, if it is one."""
    match = PYTHON_FRAME.fullmatch(name)
    return Frame(match["name"], match["file"], int(match["line"])) if match else None


def readable_name(name: str) -> str:
    """`step (train.py:20)` for `train.py(20): step`, `run_backward` for `<built-in method run_backward of ...>`."""
    if frame := frame_of(name):
        return f"{frame.name} ({PurePath(frame.filename).name}:{frame.line})"
    built_in = BUILT_IN.fullmatch(name)
    return built_in["name"] if built_in else name


def is_code(name: str) -> bool:
    """Whether it names a Python function or a built-in function; modules have other names."""
    return bool(PYTHON_FRAME.fullmatch(name) or BUILT_IN.fullmatch(name))


def starts_a_program(filename: str) -> bool:
    """Whether the file is part of Python."""
    first = filename.partition("/")[0]
    return first.startswith("<") or first.removesuffix(".py") in sys.stdlib_module_names


def of_program(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """The stack without Python's start-up frames and without torch, unless there are no others."""
    started = dropwhile(lambda frame: starts_a_program(frame.filename), reversed(frames))
    own = [frame for frame in reversed(list(started)) if not OF_TORCH_IN_PROFILES.match(frame.filename)]
    return own_frames(own or frames)
