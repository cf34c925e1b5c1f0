"""Tables of a job as columns to read: texts instead of codes, rows of plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt

from tracelink.collectives import TEXTS, Collectives, Messages, Participations
from tracelink.communications import UNKNOWN, Evidence
from tracelink.events import NO_TIME
from tracelink.findings import Finding
from tracelink.trace import ProcessGroup, SourceInfo

if TYPE_CHECKING:
    from tracelink.graph import EventGraph
    from tracelink.job import Job

Objects = npt.NDArray[np.object_]


def shared_table(of: EventGraph | Job, name: str) -> dict[str, Any]:
    """The columns of a table that a graph and a job share; KeyError where there is no such table."""
    match name:
        case "collectives" | "participations" | "messages":
            return _readable(getattr(of, name), of)
        case "sources":
            return listed(SourceInfo, of.sources)
        case "groups":
            return listed(ProcessGroup, of.groups)
        case "findings":
            return listed(Finding, of.findings)
        case _:
            raise KeyError(name)


def listed(kind: Any, rows: Sequence[Any]) -> dict[str, Any]:
    """The columns of a table whose rows are of a kind."""
    plain = msgspec.to_builtins(list(rows))
    return {column.name: [row[column.name] for row in plain] for column in fields(kind)}


def texts_of(names: Sequence[str], codes: npt.NDArray[Any]) -> Objects:
    """The text of each code; None where it is unknown."""
    texts: Objects = np.array([*names, None], dtype=object)[codes]
    return texts


def evidence_of(codes: npt.NDArray[Any]) -> Objects:
    """The word for what the times of participations rest on."""
    names = [evidence.name.lower() for evidence in Evidence]
    return texts_of(names, np.maximum(codes, Evidence.NONE))


def _readable(table: Collectives | Participations | Messages, of: EventGraph | Job) -> dict[str, Any]:
    columns: dict[str, Any] = {name: _known(column) for name, column in table.columns().items()}
    columns.update({name: texts_of(of.strings, getattr(table, name)) for name in TEXTS if name in columns})
    if isinstance(table, Participations):
        columns["evidence"] = evidence_of(table.evidence)
    else:
        columns["group_name"] = texts_of([group.name for group in of.groups], table.group)
    return columns


def _known(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The column with what is not known masked, so that no sum or mean takes it for a number."""
    if not np.issubdtype(column.dtype, np.integer):
        return column
    masked: npt.NDArray[Any] = np.ma.masked_array(column, (column == UNKNOWN) | (column == NO_TIME))
    return masked
