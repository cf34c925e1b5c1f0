"""Arguments of events, read again from their rows when they are requested; SQLite writes them as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from tracelink._io.sources import Source
from tracelink._model.columns import Int64s
from tracelink._model.trace import Payload
from tracelink.converters.nsys import schema
from tracelink.converters.nsys.database import Database, identifier
from tracelink.converters.nsys.files import LocalFile
from tracelink.converters.nsys.nccl import ENTRIES, arguments_of
from tracelink.converters.nsys.nccl import Payloads as NcclPayloads

ROWS_AT_ONCE = 1 << 12
NO_EVENT = 0xFFFFFFFF
"""The event of a wait that is for none."""

Member = tuple[str, tuple[str, ...], str]
"""The name of an argument, the columns that it needs, and its value in SQL as JSON; NULL for none."""


def _plain(name: str, column: str) -> Member:
    return name, (column,), f"CAST({column} AS INTEGER)"


def _triple(name: str, columns: tuple[str, str, str]) -> Member:
    numbers = " || ',' || ".join(f"CAST({column} AS INTEGER)" for column in columns)
    return name, columns, f"'[' || {numbers} || ']'"


def _number_in_text(name: str, found: str, length: int) -> Member:
    return (
        name,
        ("text",),
        f"CASE WHEN {found} THEN CAST(substr(text, {found} + {length}, 19) AS INTEGER) END",
    )


_PLACE = (
    _plain("device", "deviceId"),
    _plain("context", "contextId"),
    _plain("stream", "streamId"),
    _plain("correlation", "correlationId"),
)
_RESULT = "return value", ("returnValue",), "nullif(CAST(returnValue AS INTEGER), 0)"
_SHARED = ("staticSharedMemory", "dynamicSharedMemory")
_VALUES = ("uint64Value", "int64Value", "uint32Value", "int32Value")
_FRACTIONS = ("doubleValue", "floatValue")
_INTEGERS = ", ".join(f"CAST({column} AS INTEGER)" for column in _VALUES)
_NUMBER = f"CAST(coalesce({', '.join(_FRACTIONS)}) AS REAL)"
_FRACTION = f"CASE WHEN abs({_NUMBER}) < 1e308 THEN {_NUMBER} END"
_JSON = "CAST(jsonText AS TEXT)"
_MEMBERS: Mapping[str, Sequence[Member]] = {
    schema.KERNELS: (
        *_PLACE,
        _plain("registers per thread", "registersPerThread"),
        ("shared memory", _SHARED, f"CAST({' + '.join(_SHARED)} AS INTEGER)"),
        _triple("grid", ("gridX", "gridY", "gridZ")),
        _triple("block", ("blockX", "blockY", "blockZ")),
        _plain("graph id", "graphId"),
        _plain("graph node id", "graphNodeId"),
    ),
    schema.COPIES: (*_PLACE, _plain("bytes", "bytes"), _plain("graph node id", "graphNodeId")),
    schema.FILLS: (*_PLACE, _plain("bytes", "bytes"), _plain("graph node id", "graphNodeId")),
    schema.GRAPHS: (*_PLACE, _plain("graph id", "graphId"), _plain("graph exec id", "graphExecId")),
    schema.WAITS: (*_PLACE, ("event", ("eventId",), f"nullif(CAST(eventId AS INTEGER), {NO_EVENT})")),
    schema.CALLS: (_plain("correlation", "correlationId"), _RESULT),
    schema.SYSTEM_CALLS: (_RESULT,),
    schema.RANGES: (
        _number_in_text("Record function id", "id_at", len(", op_id = ")),
        _number_in_text("Sequence number", "sequence_at", len(", seq = ")),
        ("Input Dims", ("text",), "CASE WHEN sizes_at AND json_valid(sizes) THEN json(sizes) END"),
        ("color", ("color",), "CASE WHEN color THEN printf('\"#%06X\"', CAST(color AS INTEGER) & 16777215) END"),
        ("payload", (*_VALUES, *_FRACTIONS), f"coalesce({_INTEGERS}, {_FRACTION})"),
        ("data", ("jsonText",), f"CASE WHEN jsonText IS NULL THEN NULL WHEN json_valid({_JSON}) THEN json({_JSON}) "
         f"ELSE json_quote({_JSON}) END"),
        ("data", ("jsonTextId",), "CASE WHEN jsonText IS NULL THEN (SELECT CASE WHEN json_valid(value) "
         f"THEN json(value) ELSE json_quote(value) END FROM {schema.STRINGS} WHERE id = jsonTextId) END"),
        ("end thread", ("endGlobalTid",), f"CAST(endGlobalTid AS INTEGER) & {schema.TID_MASK}"),
    ),
}  # fmt: skip
_DERIVED = {
    schema.RANGES: (
        "instr(text, ', op_id = ') AS id_at",
        "instr(text, ', seq = ') AS sequence_at",
        "instr(text, ', sizes = ') AS sizes_at",
        "substr(text, instr(text, ', sizes = ') + 10, "
        "CASE WHEN instr(text, ', input_op_ids') THEN instr(text, ', input_op_ids') - instr(text, ', sizes = ') - 10 "
        "ELSE length(text) END) AS sizes",
    )
}


class NvtxWords(Struct, frozen=True):
    """Names of domains, and of categories by domain and number, of one process."""

    domains: Mapping[int, str] = field(default_factory=dict)
    categories: Mapping[tuple[int, int], str] = field(default_factory=dict)

    @property
    def members(self) -> list[Member]:
        """The arguments with these names."""
        domains = " ".join(f"WHEN {number} THEN {_literal(name)}" for number, name in self.domains.items())
        categories = " ".join(
            f"WHEN domainId = {domain} AND category = {number} THEN {_literal(name)}"
            for (domain, number), name in self.categories.items()
        )
        found: list[Member] = [("domain", ("domainId",), f"CASE domainId {domains} END")] if domains else []
        plain = "CAST(category AS INTEGER)"
        named = f"CASE {categories} ELSE {plain} END" if categories else plain
        return [*found, ("category", ("domainId", "category"), named)]


def _literal(text: str) -> str:
    """SQL of a JSON string."""
    return "'" + msgspec.json.encode(text).decode().replace("'", "''").replace("\0", "") + "'"


class RowPayloads(Struct, frozen=True):
    """The arguments of the events of a process."""

    source: Source
    file: LocalFile
    tables: Sequence[tuple[str, int]]
    """The tables in the order of events, each with the number of its events."""
    rows: npt.NDArray[np.integer]
    """The number of the row of each event."""
    words: NvtxWords

    def batches(self, first: int = 0, last: int | None = None) -> Iterator[tuple[int, Sequence[Payload]]]:
        """Yields runs of consecutive payloads."""
        last = len(self.rows) if last is None else min(last, len(self.rows))
        begin = 0
        if self.source.stamp:
            self.source.stamp.check()
        database = Database.open(self.file.path)
        for table, count in self.tables:
            for low in range(max(begin, first), min(begin + count, last), ROWS_AT_ONCE):
                high = min(low + ROWS_AT_ONCE, begin + count, last)
                yield low, self._texts(database, table, self.rows[low:high])
            begin += count
        database.connection.close()

    def near(self, numbers: Int64s) -> Iterator[tuple[int, Sequence[Payload]]]:
        """Yields the payloads of these numbers."""
        for run in np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1):
            if len(run):
                yield from self.batches(int(run[0]), int(run[-1]) + 1)

    def _texts(self, database: Database, table: str, rows: npt.NDArray[np.integer]) -> list[bytes]:
        """The JSON of the arguments in rows of a table."""
        extra = self.words.members if table == schema.RANGES else []
        members = [
            f"coalesce('{_key(name)}' || ({value}), '')"
            for name, columns, value in (*_MEMBERS[table], *extra)
            if database.has(table, *columns)
        ]
        derived = "".join(f", {one}" for one in _DERIVED.get(table, ()))
        listed = ",".join(map(str, rows.tolist()))
        query = (
            f"SELECT number, '{{' || substr({' || '.join(members)}, 2) || '}}' "
            f"FROM (SELECT rowid AS number, *{derived} FROM {identifier(table)} WHERE rowid IN ({listed}))"
        )
        texts = dict(database.select(table, query))
        found = [text.encode() if isinstance(text := texts.get(row), str) else b"" for row in rows.tolist()]
        if table == schema.RANGES and ENTRIES in database.tables:
            _add_fields(found, NcclPayloads.of(database).of_rows(rows.tolist()), rows)
        return found


def _add_fields(
    texts: list[bytes], fields: Mapping[int, Mapping[str, int]], rows: npt.NDArray[np.integer]
) -> None:
    """Adds the fields of payloads of NCCL to the arguments of their rows."""
    for index, row in enumerate(rows.tolist()):
        if row in fields and texts[index].endswith(b"}") and b'"data":' not in texts[index]:
            comma = b"" if texts[index] == b"{}" else b","
            texts[index] = texts[index][:-1] + comma + arguments_of(fields[row]) + b"}"


def _key(name: str) -> str:
    return f',"{name}":'
