"""Payloads of NCCL, and arguments of all events, which are read again from their rows when they are requested."""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from tracelink._io.sources import Source
from tracelink._model.columns import UNKNOWN, Int64s
from tracelink._model.communications import Statement, number_in, rank_in
from tracelink._model.operations import POINT_TO_POINT, Operation, operation_of
from tracelink._model.trace import Payload, ProcessGroup
from tracelink.converters.nsys import schema
from tracelink.converters.nsys.database import IDS_AT_ONCE, Database, LocalFile, identifier

# Payloads of NCCL's NVTX ranges as statements on communication; fields are found by their names.

LIBRARY_CALL = re.compile(r"^[nr]cclx?([A-Z]\w*)$")
GROUP = "Group"

ENTRIES = "NVTX_PAYLOAD_SCHEMA_ENTRIES"
HEADER = struct.Struct("<IIIIQQ")
"""Domain, 0, schema, 0, bytes of the fields, and an offset that writers use differently."""
FORMATS = {5: "<i", 6: "<I", 9: "<q", 10: "<Q", 15: "<i", 16: "<I", 17: "<q", 18: "<Q", 22: "<Q"}
"""Types of fields that are integers."""

COMMUNICATOR, BYTES = "NCCL communicator ID", "Message size [bytes]"
PEER, ROOT, RANKS, RANK = "Peer rank", "Root", "No. of ranks", "Rank"

PAYLOAD_COLUMNS = {
    "binaryData": "binaryData",
    "jsonText": "jsonText",
    "jsonTextId": f"(SELECT value FROM {schema.STRINGS} WHERE id = jsonTextId)",
}
"""Columns with payloads, and their values in SQL."""

BYTE = "Byte"
"""Payloads have the number of bytes, not the type of elements."""


class Communicator(Struct, frozen=True):
    """What a process recorded of a communicator when it joined it."""

    rank: int
    size: int


class Payloads(Struct, frozen=True):
    """Decodes the payloads of an export."""

    database: Database
    fields: Mapping[tuple[int, int], Sequence[tuple[str, str, int]]]
    """Name, format and offset of the fields of each schema of a domain."""

    @classmethod
    def of(cls, database: Database) -> Payloads:
        """The payloads of a database."""
        found: dict[tuple[int, int], dict[str, tuple[str, int]]] = {}
        columns = ("domainId", "schemaId", "type", "name", "offset")
        for domain, number, kind, name, offset in database.rows(ENTRIES, *columns):
            place = 0 if offset is None else offset
            if isinstance(name, str) and isinstance(place, int) and place >= 0 and kind in FORMATS:
                found.setdefault((domain, number), {})[name] = (FORMATS[kind], place)
        return cls(
            database, {key: [(name, *one) for name, one in fields.items()] for key, fields in found.items()}
        )

    def of_rows(self, rows: Sequence[int]) -> dict[int, dict[str, int]]:
        """The fields of the payloads of rows of NVTX events; rows without any are left out."""
        columns = [sql for name, sql in PAYLOAD_COLUMNS.items() if self.database.has(schema.RANGES, name)]
        if not columns:
            return {}
        found: dict[int, dict[str, int]] = {}
        for first in range(0, len(rows), IDS_AT_ONCE):
            listed = ",".join(map(str, rows[first : first + IDS_AT_ONCE]))
            query = f"SELECT rowid, {', '.join(columns)} FROM {schema.RANGES} WHERE rowid IN ({listed})"
            for row, *values in self.database.select(schema.RANGES, query):
                found[row] = next(filter(None, map(self.decoded, values)), {})
        return {row: fields for row, fields in found.items() if fields}

    def decoded(self, value: Any) -> dict[str, int]:
        """The fields of a payload, as bytes, as hexadecimal digits or as JSON; empty if it has none."""
        if isinstance(value, str) and value.startswith("{"):
            return _integers(value)
        data = _octets(value)
        if len(data) < HEADER.size:
            return {}
        domain, _, number, _, _, _ = HEADER.unpack_from(data)
        return {
            name: struct.unpack_from(form, data, HEADER.size + offset)[0]
            for name, form, offset in self.fields.get((domain, number), ())
            if HEADER.size + offset + struct.calcsize(form) <= len(data)
        }


def _octets(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    try:
        return bytes.fromhex(value) if isinstance(value, str) else b""
    except ValueError:
        return b""


def _integers(text: str) -> dict[str, int]:
    """The members of a JSON object that are integers, as older versions write payloads."""
    try:
        decoded = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return {name: value for name, value in decoded.items() if type(value) is int}


def communicators_in(payloads: Sequence[dict[str, int]]) -> dict[str, Communicator]:
    """The communicators that these payloads say were joined."""
    found = {}
    for fields in payloads:
        rank, size = rank_in(fields.get(RANK)), rank_in(fields.get(RANKS))
        if COMMUNICATOR in fields and size > rank >= 0:
            found[_name(fields)] = Communicator(rank, size)
    return found


class LibraryCalls(Struct):
    """What the calls of NCCL of one process state."""

    joined: Mapping[str, Communicator]
    rows: list[int] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    without_payload: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    """The number of calls of each communicator so far."""

    def add(self, row: int, name: str, fields: Mapping[str, int]) -> None:
        """A call, in the order of the thread that makes all calls of its communicator."""
        match = LIBRARY_CALL.match(name)
        operation = match[1] if match else name
        if operation.startswith((GROUP, "Comm", "Get", "Mem", "RedOp")):
            return
        self.without_payload += COMMUNICATOR not in fields
        self.rows.append(row)
        self.statements.append(self._statement(operation, fields))

    def _statement(self, operation: str, fields: Mapping[str, int]) -> Statement:
        known = operation_of(operation)
        statement = Statement(operation, point_to_point=known in POINT_TO_POINT)
        size = number_in(fields.get(BYTES))
        statement.type = BYTE if size != UNKNOWN else ""
        if known != Operation.REDUCE_SCATTER:
            statement.elements_in = size
        if known in (Operation.ALL_REDUCE, Operation.REDUCE_SCATTER, Operation.BROADCAST, Operation.RECV):
            statement.elements_out = size
        statement.name_peer(rank_in(fields.get(PEER, fields.get(ROOT))))
        if COMMUNICATOR in fields:
            statement.group = _name(fields)
            self._number(statement)
        return statement

    def _number(self, statement: Statement) -> None:
        """Sets the size of the group and, if the recording contains its begin, the number of a collective in it."""
        if own := self.joined.get(statement.group):
            statement.size = own.size
            if not statement.point_to_point:
                self.counts[statement.group] += 1
                statement.sequence = self.counts[statement.group]

    @property
    def groups(self) -> list[ProcessGroup]:
        """The communicators that the process joined."""
        return [ProcessGroup(name, size=own.size, backend="nccl") for name, own in self.joined.items()]


def arguments_of(fields: Mapping[str, int]) -> bytes:
    """The fields of a payload as arguments: members of a JSON object."""
    shown: dict[str, int | str] = dict(fields)
    if COMMUNICATOR in fields:
        shown[COMMUNICATOR] = _name(fields)
    return msgspec.json.encode(shown)[1:-1]


def _name(fields: Mapping[str, int]) -> str:
    """The name of a communicator, which is the same on all of its ranks."""
    return f"{fields[COMMUNICATOR] & (1 << 64) - 1:#x}"


def library_calls(
    payloads: Payloads, events: Sequence[tuple[int, int, str]], inits: Sequence[int]
) -> LibraryCalls:
    """The calls among the events of a process: their row, the row of the table, and their name, in order of start.

    `inits` are the rows of the table in which communicators are joined.
    """
    fields = payloads.of_rows([number for _, number, _ in events])
    joined = communicators_in(list(payloads.of_rows(inits).values()))
    calls = LibraryCalls(joined)
    for row, number, name in events:
        calls.add(row, name, fields.get(number, {}))
    return calls


def is_library_call(names: Sequence[str]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """True for each name of a call of NCCL."""
    return np.array([LIBRARY_CALL.match(name) is not None for name in names], np.bool_)


# Arguments: SQLite writes them as JSON.

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
            _add_fields(found, Payloads.of(database).of_rows(rows.tolist()), rows)
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
