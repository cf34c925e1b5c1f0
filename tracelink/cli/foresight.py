"""What is said of an output before it is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelink.cli.found import show_findings
from tracelink.cli.page import Page
from tracelink.cli.progress import Bar
from tracelink.cli.summary import named
from tracelink.cli.voice import Voice
from tracelink.sizes import about

if TYPE_CHECKING:
    from tracelink.prospect import Foresee, Prospect


def foreseeing(voice: Voice, bar: Bar | None, *, aside: bool) -> Foresee | None:
    """Something to be told what will be written; nothing where nobody would read it."""
    if voice.silent:
        return None

    def say(prospect: Prospect) -> None:
        if bar:
            bar.now_writing()
        page = Page(aside=aside)
        page.line(_written(prospect))
        show_findings(page, prospect.findings, verbose=voice.verbose)
        voice.say(page.text, aside=aside)

    return say


def _written(prospect: Prospect) -> str:
    forecast = prospect.forecast
    unpacked = f", {about(forecast.unpacked)} unpacked" if forecast.unpacked != forecast.bytes else ""
    return f"writing {named(prospect.path)}: about {about(forecast.bytes)}{unpacked}"
