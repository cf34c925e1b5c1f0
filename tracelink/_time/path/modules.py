"""The module of the model, or else the annotation of the program, that each event of a rank belongs to."""

from __future__ import annotations

import re

import numpy as np

from tracelink._model.causes import callers, innermost
from tracelink._model.columns import UNKNOWN, Int64s, for_each_text
from tracelink._model.events import EventKind, Relation
from tracelink._model.graph import Excerpt
from tracelink._model.operations import COLLECTIVE_ANNOTATION
from tracelink._model.selection import STEP_NAMES
from tracelink._time.rank.call_sites import MODULE

_NO_MODULE = re.compile(r"DataLoader|^PyTorch Profiler|^cudaGraph|_data: ")
"""Annotations of libraries that are no part of a program."""


def modules_of(part: Excerpt) -> Int64s:
    """For each event the row of the module or annotation around it, or UNKNOWN.

    Device work has that of its launch, a backward operator outside of all modules that of its forward operator.
    """
    events, caller = part.events, callers(part)
    module = innermost(caller, _marked(part))
    backward = part.where(Relation.BACKWARD_OF)
    forward = np.full(len(events), UNKNOWN, np.int64)
    forward[backward.source] = module[backward.target]
    nearest = innermost(caller, forward != UNKNOWN)
    of_forward = np.where(nearest == UNKNOWN, UNKNOWN, np.append(forward, UNKNOWN)[nearest])
    module = np.where(of_forward == UNKNOWN, module, of_forward)
    launches = part.where(Relation.LAUNCHES)
    module[launches.target] = module[launches.source]
    return module


def _marked(part: Excerpt) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Frames of modules; annotations of the program if there are none."""
    events, texts = part.events, part.graph.strings
    frames = events.of_kind(EventKind.PYTHON)
    frames[frames] = for_each_text(
        texts, events.name[frames], lambda text: text.startswith(MODULE), np.bool_, False
    )
    if frames.any():
        return frames
    annotations = events.of_kind(EventKind.ANNOTATION)
    annotations[annotations] = for_each_text(texts, events.name[annotations], _is_of_program, np.bool_, False)
    return annotations


def _is_of_program(text: str) -> bool:
    of_library = COLLECTIVE_ANNOTATION.match(text) or _NO_MODULE.search(text)
    return not of_library and not is_step(text)


def is_step(text: str) -> bool:
    """Whether the name is that of a step; profiles of before 2022 list steps among the operators."""
    return any(pattern.fullmatch(text) for pattern in STEP_NAMES)
