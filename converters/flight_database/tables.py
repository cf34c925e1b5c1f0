"""Everything that was examined, as rows of the tables of the database."""

from __future__ import annotations

from collections.abc import Iterator

from tracelink.converters.flight_database.collective_table import collectives_table
from tracelink.converters.flight_database.entry_tables import EntryTables
from tracelink.converters.flight_database.job_tables import groups_table, members_table, ranks_table
from tracelink.converters.flight_database.message_table import messages_table
from tracelink.converters.flight_database.numbering import numbering_of
from tracelink.converters.flight_database.problem_tables import (
    findings_table,
    lateness_table,
    problem_ranks_table,
    problems_table,
)
from tracelink.converters.flight_database.rows import Batch
from tracelink.examining import Examined


def tables_of(examined: Examined) -> Iterator[Batch]:
    """All rows of all tables, with few entries in memory at a time."""
    journal, diagnosis = examined.journal, examined.diagnosis
    numbering = numbering_of(examined)
    entries = EntryTables(numbering)
    yield ranks_table(journal, diagnosis, numbering)
    yield groups_table(journal)
    yield members_table(journal, diagnosis, numbering)
    yield collectives_table(numbering)
    yield messages_table(numbering)
    yield from entries.batches()
    yield problems_table(diagnosis.problems, numbering)
    yield problem_ranks_table(diagnosis.problems)
    yield lateness_table(diagnosis.lateness, numbering)
    yield findings_table([*diagnosis.findings, *entries.findings])
