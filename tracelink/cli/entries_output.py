"""`tracelink diagnose --entries`: as a table, as CSV, or as JSON."""

from __future__ import annotations

import click

from tracelink.cli.collectives import csv_of
from tracelink.cli.diagnosis_page import verdict
from tracelink.cli.entries_document import entries_document, entries_table
from tracelink.cli.entries_options import SHOWN
from tracelink.cli.entries_page import entries_page
from tracelink.cli.entries_rows import Shown
from tracelink.cli.entries_wanted import Wanted
from tracelink.cli.found import complain_of_errors
from tracelink.cli.voice import Voice
from tracelink.examining import Examined


def show_entries(voice: Voice, examined: Examined, wanted: Wanted) -> None:
    """Prints the entries that are wanted."""
    diagnosis = examined.diagnosis
    as_table = not (wanted.csv or voice.json)
    if as_table and voice.quiet:
        if diagnosis.problems:
            voice.conclude(verdict(diagnosis))
        return
    shown = Shown.of(examined.journal, wanted, wanted.last(SHOWN if as_table else None))
    if voice.json:
        voice.document(entries_document(shown, diagnosis, stacks=wanted.stacks))
    elif wanted.csv:
        click.echo(csv_of(entries_table(shown, stacks=wanted.stacks)), nl=False)
        complain_of_errors(voice, [*diagnosis.findings, *shown.findings])
    else:
        voice.say(entries_page(shown, diagnosis, verbose=voice.verbose))
