"""What `tracelink diagnose` tells a person: the verdict first, and under it what it rests on."""

from __future__ import annotations

from tracelink.cli.page import Page
from tracelink.diagnosis import Diagnosis


def diagnosis_page(diagnosis: Diagnosis, *, verbose: bool) -> str:
    """The diagnosis on one screen."""
    page = Page()
    for problem in diagnosis.problems:
        page.line(problem.message, "bold")
    if not diagnosis.problems:
        page.line("Nothing is wrong.", "bold")
    return page.text
