"""Files with generated code that events name in their arguments: in stacks of the recorder, and as files of kernels."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from tracelink._model.columns import Int64s
from tracelink._model.trace import RankTrace, payloads_near

FOLDERS = re.compile(r".*[/\\]")
"""Of a path: files with generated code are named by their content, so folders do not matter."""
_GENERATED = re.compile(r"c[a-z2-7]{40,60}\.py")


class _Frame(msgspec.Struct, frozen=True):
    name: str = ""
    filename: str = ""


class _Entry(msgspec.Struct, frozen=True):
    frames: Sequence[_Frame] = ()


class _Attribute(msgspec.Struct, frozen=True):
    name: str = ""
    value: object = None


class _Kernel(msgspec.Struct, frozen=True):
    """Arguments of an operator (Kineto), or of a node (`attrs`)."""

    kernel_file: str = ""
    kernel_hash: str = ""
    attrs: Sequence[_Attribute] = ()


_entries = msgspec.json.Decoder(_Entry)
_kernels = msgspec.json.Decoder(_Kernel)


def calling_files(trace: RankTrace, rows: Int64s) -> dict[int, str]:
    """For recorder entries the innermost generated file of the stack; entries without one are missing."""
    found = ((row, _calling_file(text)) for row, text in _arguments(trace, rows))
    return {row: file for row, file in found if file}


def kernel_files(trace: RankTrace, rows: Int64s) -> dict[int, str]:
    """For launches of generated kernels the file of the kernel, without folders; other events are missing."""
    found = ((row, _kernel_file(text)) for row, text in _arguments(trace, rows))
    return {row: file for row, file in found if file}


def _calling_file(text: bytes) -> str:
    try:
        frames = _entries.decode(text).frames
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    names = (FOLDERS.sub("", frame.filename) for frame in frames if frame.name == "call")
    return next((name for name in names if _GENERATED.fullmatch(name)), "")


def _kernel_file(text: bytes) -> str:
    """Without a path the hash is the name of the file."""
    try:
        kernel = _kernels.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    stated = (one.value for one in kernel.attrs if one.name == "kernel_file" and isinstance(one.value, str))
    path = kernel.kernel_file or next(stated, "")
    return FOLDERS.sub("", path) if path else (f"{kernel.kernel_hash}.py" if kernel.kernel_hash else "")


def _arguments(trace: RankTrace, rows: Int64s) -> Iterator[tuple[int, bytes]]:
    """The recorded arguments of these events."""
    of_source = trace.events.source[rows]
    for source, payloads in enumerate(trace.payloads):
        own = rows[of_source == source]
        row_of = dict(zip(trace.events.payload[own].tolist(), own.tolist(), strict=True))
        wanted = np.array(sorted(number for number in row_of if number >= 0), np.int64)
        for first, texts in payloads_near(payloads, wanted):
            low, high = np.searchsorted(wanted, [first, first + len(texts)]).tolist()
            for number in wanted[low:high].tolist():
                yield row_of[number], bytes(texts[number - first])
