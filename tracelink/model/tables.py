"""Tables of a graph or a job as columns for people: strings instead of codes, unknown values masked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt

from tracelink.errors import Finding
from tracelink.model.collectives import Collectives, Messages, Participations
from tracelink.model.columns import NO_TIME, UNKNOWN
from tracelink.model.communications import Evidence
from tracelink.model.trace import ProcessGroup, SourceInfo

if TYPE_CHECKING:
    from tracelink.model.graph import EventGraph
    from tracelink.model.job import Job

Objects = npt.NDArray[np.object_]


def shared_table(of: EventGraph | Job, name: str) -> dict[str, Any]:
    """The columns of a table that a graph and a job share; KeyError where there is no such table."""
    match name:
        case "collectives" | "participations" | "messages":
            return _readable(getattr(of, name), of)
        case "sources":
            return columns_of(SourceInfo, of.sources)
        case "groups":
            return columns_of(ProcessGroup, of.groups)
        case "findings":
            return columns_of(Finding, of.findings)
        case _:
            raise KeyError(name)


def columns_of(kind: Any, rows: Sequence[Any]) -> dict[str, Any]:
    """The columns of a table whose rows are of a kind."""
    plain = msgspec.to_builtins(list(rows))
    return {column.name: [row[column.name] for row in plain] for column in fields(kind)}


def texts_of(names: Sequence[str], codes: npt.NDArray[Any]) -> Objects:
    """The text of each code; None where it is unknown."""
    texts: Objects = np.array([*names, None], dtype=object)[codes]
    return texts


def evidence_names(codes: npt.NDArray[Any]) -> Objects:
    """The word for what the times of participations rest on."""
    names = [evidence.name.lower() for evidence in Evidence]
    return texts_of(names, np.maximum(codes, Evidence.NONE))


def _readable(table: Collectives | Participations | Messages, of: EventGraph | Job) -> dict[str, Any]:
    columns: dict[str, Any] = {name: _known(column) for name, column in table.columns().items()}
    columns.update({name: texts_of(of.strings, getattr(table, name)) for name in table.text_columns()})
    if isinstance(table, Participations):
        columns["evidence"] = evidence_names(table.evidence)
    else:
        columns["group_name"] = texts_of([group.name for group in of.groups], table.group)
    return columns


def _known(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The column with what is not known masked, so that no sum or mean takes it for a number."""
    if not np.issubdtype(column.dtype, np.integer):
        return column
    masked: npt.NDArray[Any] = np.ma.masked_array(column, (column == UNKNOWN) | (column == NO_TIME))
    return masked
