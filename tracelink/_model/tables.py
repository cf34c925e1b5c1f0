"""Tables and arguments as columns for people: strings instead of codes, unknown values masked."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from tracelink._model.columns import Unknown, arrow_table, frame, int64s, polars_frame
from tracelink._model.communications import Collectives, Evidence, Messages, Participations
from tracelink._model.errors import UsageError, choices
from tracelink._model.fields import Field, fields_of
from tracelink._model.findings import Finding
from tracelink._model.trace import Payload, ProcessGroup, SourceInfo

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

    from tracelink._model.graph import JobTables

Objects = npt.NDArray[np.object_]


JobTable = Literal["ranks", "sources", "groups", "collectives", "participations", "messages", "findings"]
"""The names of the tables of a job, whose events are not in memory."""
GraphTable = JobTable | Literal["events", "edges", "counters", "tracks"]
"""The names of the tables of a graph."""

SHARED = ("sources", "groups", "collectives", "participations", "messages", "findings")
"""The names of the tables that graphs and jobs have."""


class Columns(Struct, frozen=True, eq=False):
    """Rows as named columns. Other libraries take it as an Arrow table: `polars.DataFrame(table)`.

    Columns of integers that can be unknown are masked arrays, so that sums leave out what is unknown; unknown rates are
    NaN, unknown and empty texts None. All of it is missing in frames.
    """

    columns: Mapping[str, Any]
    """The columns by name."""

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def __getitem__(self, name: str) -> Any:
        try:
            return self.columns[name]
        except KeyError:
            raise UsageError(
                f"there is no column {name!r}", advice=choices(name, list(self.columns))
            ) from None

    def to_pandas(self) -> pandas.DataFrame:
        """Returns the rows as a pandas frame (needs the extra `pandas`)."""
        return frame(self.columns)

    def to_polars(self) -> polars.DataFrame:
        """Returns the rows as a polars frame (needs polars and the extra `arrow`)."""
        return polars_frame(self.to_arrow())

    def to_arrow(self) -> pyarrow.Table:
        """Returns the rows as an Arrow table (needs the extra `arrow`)."""
        return arrow_table(self.columns)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Returns what other libraries take in place of an Arrow table."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return f"<{len(self):,} rows of {', '.join(self.columns)}>"


def shared_table(of: JobTables, name: str, known: Sequence[str]) -> dict[str, Any]:
    """The columns of one of these tables; raises `UsageError` that lists the `known` tables if there is no such."""
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
            raise UsageError(f"there is no table {name!r}", advice=choices(name, known))


def columns_of(kind: Any, rows: Sequence[Any]) -> dict[str, Any]:
    """The columns of a list of values of one type; unknown numbers are masked, unknown texts and lists None."""
    return {
        name: _column(declared, [getattr(row, name) for row in rows])
        for name, declared in fields_of(kind).items()
    }


def _column(declared: Field, values: Sequence[Any]) -> Any:
    unknown = next((item.value for item in declared.metadata if isinstance(item, Unknown)), None)
    if declared.kind is float:
        return np.array(values, np.float64)
    if declared.kind is not int:
        return [msgspec.to_builtins(value) if value else None for value in values]
    missing = np.array([value is None or value == unknown for value in values], np.bool_)
    numbers = int64s([value or 0 for value in values])
    return np.ma.masked_array(numbers, missing) if declared.optional or unknown is not None else numbers


def texts_of(names: Sequence[str], codes: npt.NDArray[Any]) -> Objects:
    """The string of each code; None if unknown."""
    return np.array([*names, None], dtype=object)[codes]


def evidence_names(codes: npt.NDArray[Any]) -> Objects:
    """What the times of participations are based on: `recorder`, `annotation`, `kernel`, `none`."""
    names = [evidence.name.lower() for evidence in Evidence]
    return texts_of(names, np.maximum(codes, Evidence.NONE))


def _readable(table: Collectives | Participations | Messages, of: JobTables) -> dict[str, Any]:
    columns: dict[str, Any] = {
        **table.masked(),
        **{name: texts_of(of.strings, getattr(table, name)) for name in table.text_columns()},
    }
    if isinstance(table, Participations):
        columns["evidence"] = evidence_names(table.evidence)
    else:
        columns["group_name"] = texts_of([group.name for group in of.groups], table.group)
    return columns


# Arguments of events


EXACT = 1 << 53
"""Whole numbers up to this size are exact as floating-point numbers."""
SAMPLED = 1000
"""Events whose arguments are listed when none has the wanted one."""


def arguments_of(text: Payload) -> dict[str, Any]:
    """The arguments in a payload; one that is no object is the argument `value`."""
    decoded = msgspec.json.decode(text) if len(text) else {}
    return decoded if isinstance(decoded, dict) else {"value": decoded}


@contextmanager
def collecting_later() -> Iterator[None]:
    """Postpones garbage collection: decoding many values leaves none, and looking for it takes most of the time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def argument_column(texts: Sequence[Payload], name: str) -> npt.NDArray[Any]:
    """One argument of each payload; raises `UsageError` if none has it, but there are payloads."""
    wanted = msgspec.defstruct("Wanted", [("value", Any, msgspec.field(name=name, default=None))])
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(wanted)

    def value(text: Payload) -> Any:
        try:
            return decoder.decode(text).value if len(text) else None
        except msgspec.ValidationError:  # no object
            return arguments_of(text).get(name)

    with collecting_later():
        values = [value(text) for text in texts]
    if values and all(found is None for found in values):
        known = list(dict.fromkeys(name for text in texts[:SAMPLED] for name in arguments_of(text)))
        raise UsageError(f"no event has an argument {name!r}", advice=choices(name, known))
    return _typed(values)


def _typed(values: Sequence[Any]) -> npt.NDArray[Any]:
    """A masked array if all values are numbers, in which None is masked; else an array of objects."""
    types = {type(value) for value in values if value is not None}
    missing = [value is None for value in values]
    if types == {float} or (types == {int, float} and all(abs(value or 0) <= EXACT for value in values)):
        return np.ma.masked_array(np.array([value or 0.0 for value in values], np.float64), missing)
    for dtype, kind in ((np.bool_, bool), (np.int64, int), (np.uint64, int)):
        if types == {kind}:
            try:
                return np.ma.masked_array(np.array([value or 0 for value in values], dtype), missing)
            except OverflowError:  # such as addresses, which have 64 bits without a sign
                continue
    return np.fromiter(values, object, len(values))
