"""Payloads of NCCL's NVTX ranges as statements on communication; fields are found by their names."""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct, field

from tracelink._model.columns import UNKNOWN
from tracelink._model.communications import Statement, number_in, rank_in
from tracelink._model.operations import POINT_TO_POINT, Operation, operation_of
from tracelink._model.trace import ProcessGroup
from tracelink.converters.nsys.database import IDS_AT_ONCE, Database
from tracelink.converters.nsys.schema import RANGES, STRINGS

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
    "jsonTextId": f"(SELECT value FROM {STRINGS} WHERE id = jsonTextId)",
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
        for domain, schema, kind, name, offset in database.rows(ENTRIES, *columns):
            place = 0 if offset is None else offset
            if isinstance(name, str) and isinstance(place, int) and place >= 0 and kind in FORMATS:
                found.setdefault((domain, schema), {})[name] = (FORMATS[kind], place)
        return cls(
            database, {key: [(name, *one) for name, one in fields.items()] for key, fields in found.items()}
        )

    def of_rows(self, rows: Sequence[int]) -> dict[int, dict[str, int]]:
        """The fields of the payloads of rows of NVTX events; rows without any are left out."""
        columns = [sql for name, sql in PAYLOAD_COLUMNS.items() if self.database.has(RANGES, name)]
        if not columns:
            return {}
        found: dict[int, dict[str, int]] = {}
        for first in range(0, len(rows), IDS_AT_ONCE):
            listed = ",".join(map(str, rows[first : first + IDS_AT_ONCE]))
            query = f"SELECT rowid, {', '.join(columns)} FROM {RANGES} WHERE rowid IN ({listed})"
            for row, *values in self.database.select(RANGES, query):
                found[row] = next(filter(None, map(self.decoded, values)), {})
        return {row: fields for row, fields in found.items() if fields}

    def decoded(self, value: Any) -> dict[str, int]:
        """The fields of a payload, as bytes, as hexadecimal digits or as JSON; empty if it has none."""
        if isinstance(value, str) and value.startswith("{"):
            return _integers(value)
        data = _octets(value)
        if len(data) < HEADER.size:
            return {}
        domain, _, schema, _, _, _ = HEADER.unpack_from(data)
        return {
            name: struct.unpack_from(form, data, HEADER.size + offset)[0]
            for name, form, offset in self.fields.get((domain, schema), ())
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
    """Whether each name is of a call of NCCL."""
    return np.array([LIBRARY_CALL.match(name) is not None for name in names], np.bool_)
