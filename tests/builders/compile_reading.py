"""Compile logs of files, as the command reads them."""

from __future__ import annotations

from typing import Unpack

from tracelink._compile import reading
from tracelink._compile.reading import Read
from tracelink._io.sources import Paths
from tracelink._join.job_reader import Reading
from tracelink._run.reading import ReadOptions


def read(paths: Paths, *, run: int | None = None, **options: Unpack[ReadOptions]) -> Read:
    """The logs in these paths, with what their payloads are read again from."""
    inputs = Reading.of(paths, options)
    return reading.read(inputs.discovery, inputs.engine, run=run)
