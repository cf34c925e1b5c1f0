"""Kineto: the Chrome trace that `torch.profiler` writes."""

from __future__ import annotations

from tracelink.converters.kineto.recognition import is_kineto, refusal
from tracelink.plugins import Format, ReaderSpec

__all__ = ["KINETO"]

KINETO = Format(
    "kineto",
    reader=ReaderSpec(
        "torch.profiler (Kineto) Chrome trace, 2020 to 2026: .json, .json.gz",
        is_kineto,
        "tracelink.converters.kineto.reader:KinetoReader",
        refusal,
    ),
)
