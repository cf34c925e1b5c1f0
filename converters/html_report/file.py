"""The page as a file."""

from __future__ import annotations

from pathlib import Path

from tracelink.converters.html_report.report import html_report
from tracelink.examining import Examined
from tracelink.targets import FileTarget


def write_page(examined: Examined, path: str) -> int:
    """Writes the page, which appears whole or not at all, and says how large the file is."""
    target = FileTarget(Path(path))
    with target.file() as stream:
        stream.write(html_report(examined.diagnosis, examined.journal).encode())
    return target.size()
