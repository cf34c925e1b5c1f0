"""Decoded traces for rules and replays, without files."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

from builders.chakra_nodes import EtFile
from tracelink.converters.chakra.decode import decode
from tracelink.converters.chakra.validation.files import Groups
from tracelink.converters.chakra.validation.trace import Trace


def trace_of(file: EtFile, groups: Mapping[int, Sequence[int]]) -> Trace:
    """The trace of one rank as rules see it."""
    return Trace(
        f"job.{file.rank}.et", file.rank, Groups(groups), decode(io.BytesIO(b"".join(file.messages)))
    )
