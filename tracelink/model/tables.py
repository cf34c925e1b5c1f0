"""Tables of a graph or a job as columns for people: strings instead of codes, unknown values masked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt

from tracelink.model.collectives import Collectives, Messages, Participations
from tracelink.model.columns import NO_TIME, UNKNOWN
from tracelink.model.communications import Evidence
from tracelink.model.errors import Finding
from tracelink.model.trace import ProcessGroup, SourceInfo

if TYPE_CHECKING:
    from tracelink.model.graph import EventGraph
    from tracelink.model.job import Job

Objects = npt.NDArray[np.object_]


def shared_table(of: EventGraph | Job, name: str) -> dict[str, Any]:
    """The columns of a table that graphs and jobs have; KeyError if there is no such table."""
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
    """The columns of a list of dataclasses of one type."""
    plain = msgspec.to_builtins(list(rows))
    return {column.name: [row[column.name] for row in plain] for column in fields(kind)}


def texts_of(names: Sequence[str], codes: npt.NDArray[Any]) -> Objects:
    """The string of each code; None if unknown."""
    return np.array([*names, None], dtype=object)[codes]


def evidence_names(codes: npt.NDArray[Any]) -> Objects:
    """What the times of participations are based on: `recorder`, `annotation`, `kernel`, `none`."""
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
    """The column with unknown values masked, so that sums and means leave them out."""
    if not np.issubdtype(column.dtype, np.integer):
        return column
    return np.ma.masked_array(column, (column == UNKNOWN) | (column == NO_TIME))
