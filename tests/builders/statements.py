"""What a rank trace says of communication, as a test wants to see it."""

from __future__ import annotations

from tracelink.model.columns import UNKNOWN
from tracelink.model.communications import Statement
from tracelink.model.trace import RankTrace


def stated(result: RankTrace) -> list[tuple[int, Statement]]:
    """The row of the event and the whole statement, for each row of the table."""
    table, texts = result.communications, result.strings.texts()
    columns = {name: column.tolist() for name, column in table.columns().items() if name != "row"}
    for name in table.text_columns():
        columns[name] = ["" if code == UNKNOWN else texts[code] for code in columns[name]]
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return list(zip(table.row.tolist(), (Statement(**row) for row in rows), strict=True))


def statements(result: RankTrace) -> list[Statement]:
    return [statement for _, statement in stated(result)]
