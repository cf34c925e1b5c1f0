"""What is chosen of the entries of all ranks, and what their dumps tell of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tracelink.analysis.evidence import own_frames
from tracelink.analysis.matrix import Matrix, matrix_of
from tracelink.analysis.retold import one_for_each_request, retold
from tracelink.cli.choice import groups_named
from tracelink.cli.entries_wanted import Wanted
from tracelink.communications import UNKNOWN
from tracelink.diagnosis import Entry, Frame
from tracelink.errors import UsageError
from tracelink.events import Bools, Int64s
from tracelink.findings import Finding
from tracelink.journal import Journal
from tracelink.ranges import Numbers


@dataclass(frozen=True, slots=True)
class Shown:
    """Entries side by side, with what is told of them."""

    journal: Journal
    matrix: Matrix
    told: Mapping[int, Entry]
    """One entry for each request that is shown; with stacks, all of them. By row of the journal."""
    of_request: Mapping[int, Entry]
    with_stacks: bool
    findings: Sequence[Finding]

    @classmethod
    def of(cls, journal: Journal, wanted: Wanted, last: int | None) -> Shown:
        """The last rows of what is wanted."""
        ranks = (
            journal.ranks
            if wanted.ranks is None
            else journal.ranks[wanted.ranks.mark(journal.ranks.astype(np.int64))]
        )
        if not len(ranks):
            raise UsageError(
                f"--ranks: there is no dump of {wanted.ranks.called('rank') if wanted.ranks else 'any rank'}",
                advice=f"There are dumps of {Numbers.of(journal.ranks.tolist()).called('rank')}.",
            )
        matrix = matrix_of(journal, _of_groups(journal, wanted.groups), ranks, last)
        rows = matrix.entry[matrix.entry != UNKNOWN]
        told, findings = retold(journal, rows if wanted.stacks else one_for_each_request(journal, rows))
        requests = {int(journal.records.request[row]): entry for row, entry in told.items()}
        return cls(journal, matrix, told, requests, wanted.stacks, findings)

    def stack(self, row: int) -> tuple[Frame, ...]:
        """The stack of an entry without torch itself, the innermost frame first; empty unless it is asked for."""
        entry = self.told.get(row) if self.with_stacks else None
        return own_frames(entry.frames) if entry else ()

    def entries(self) -> tuple[Int64s, Int64s, Bools]:
        """All entries that are shown: the row of the matrix, that of the journal, whether it only closes others."""
        matrix = self.matrix
        row, column = np.nonzero(matrix.entry != UNKNOWN)
        closing = matrix.closing[row, column]
        last = {int(one): int(at) for one, at in zip(closing, row, strict=True) if one != UNKNOWN}
        rows = np.concatenate([row, np.array(list(last.values()), np.int64)])
        entries = np.concatenate([matrix.entry[row, column], np.array(list(last), np.int64)])
        order = np.lexsort((entries, rows))
        return rows[order], entries[order], (order >= len(row))


def _of_groups(journal: Journal, wanted: Sequence[str]) -> Bools:
    """The entries of any of these groups; of all, where none is named."""
    if not wanted:
        return np.ones(len(journal), np.bool_)
    named = np.zeros(len(journal.groups) + 1, np.bool_)
    for name in wanted:
        named[:-1] |= groups_named(journal.groups, name)
    chosen: Bools = named[journal.records.group]
    return chosen
