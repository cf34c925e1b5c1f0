"""How a field of a result is declared: its type says its unit, its metadata say what it means and how it is shown.

    class KernelRow(Row, frozen=True):
        name: Annotated[str, Doc("The name of the kernel."), Shown(longest=44)]
        total_ns: Annotated[Nanoseconds, Doc("Of all its runs.")]
        operator: Annotated[str | None, Doc("The operator that launched it."), Shown("launched by", drop=2)]

From that come the object of the library, JSON and its schema, tables for people, columns of frames, files and
databases, and the lists of columns in the documentation. A name ends with its unit: it is the same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields as fields_of_dataclass
from enum import Enum, StrEnum
from functools import cache
from types import UnionType
from typing import Annotated, Any, ClassVar, Union, get_args, get_origin, get_type_hints

from msgspec import Meta, Struct, UnsetType


class Unit(StrEnum):
    """What the numbers of a field are, which decides how people see them."""

    DURATION = "ns"
    TIME = "unix ns"
    BYTES = "bytes"
    RATE = "GB/s"
    SHARE = "share"
    PERCENT = "%"
    PPM = "ppm"
    NAME = "name"
    """Numbers that are names, such as ranks: without separators."""
    RANKS = "ranks"
    """Lists of ranks: shown as ranges."""
    PARTS = "parts"
    """Lists of up to four shares that are one together: shown as a bar."""


class Shown(Struct, frozen=True):
    """How a table for people shows a field."""

    heading: str = ""
    """Of the column; by default the name without its unit."""
    drop: int = 0
    """The place in the order in which columns are left out of a terminal that is too narrow; 0: never."""
    longest: int = 72
    """Characters of a text."""
    signed: bool = False
    """Whether positive numbers have a sign, as differences do."""
    right: bool = False
    """Whether a text is aligned at the right, as `66 of 66` is."""
    hidden: bool = False
    """Whether tables for people leave it out; files and programs have it."""
    text: Callable[[str], str] = str
    """What people see of a text, such as the name of a kernel without the arguments of its template."""


PATH = 4096
"""Characters of a path, which is shown whole: people copy it."""


def Doc(text: str, **schema: Any) -> Meta:  # noqa: N802  reads as the metadata that it is
    """What a field means, with constraints of its JSON Schema such as `min_length`."""
    return Meta(description=text, **schema)


Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Text = Annotated[str, Meta(min_length=1)]
Identifier = Annotated[int, Unit.NAME]
RankNumber = Annotated[int, Meta(ge=0), Unit.NAME]
Ranks = Annotated[Sequence[RankNumber], Meta(extra_json_schema={"uniqueItems": True}), Unit.RANKS]
FrozenRanks = Annotated[tuple[RankNumber, ...], Meta(extra_json_schema={"uniqueItems": True}), Unit.RANKS]
"""Ranks that can be a key."""
Nanoseconds = Annotated[int, Meta(ge=0), Unit.DURATION]
SignedNanoseconds = Annotated[int, Unit.DURATION]
UnixNanoseconds = Annotated[int, Unit.TIME]
Bytes = Annotated[int, Meta(ge=0), Unit.BYTES]
SignedBytes = Annotated[int, Unit.BYTES]
GigabytesPerSecond = Annotated[float, Unit.RATE]
Share = Annotated[float, Unit.SHARE]
Percent = Annotated[float, Unit.PERCENT]
PartsPerMillion = Annotated[float, Unit.PPM]

SUFFIXES: Mapping[Unit | None, str] = {
    Unit.DURATION: "_ns",
    Unit.TIME: "_ns",
    Unit.BYTES: "_bytes",
    Unit.RATE: "_gb_s",
    Unit.SHARE: "_share",
    Unit.PERCENT: "_percent",
    Unit.PPM: "_ppm",
}
"""How names end whose numbers have this unit."""


class Row(Struct, frozen=True):
    """Base of the rows of results: a struct whose fields are declared as this module says."""

    plotted: ClassVar[Sequence[str]] = ()
    """The columns that `ResultTable.plot` draws by default, such as the parts of a whole."""


class Field(Struct, frozen=True):
    """What the declaration of a field says."""

    name: str
    kind: Any
    """Its type without metadata and None."""
    optional: bool
    unit: Unit | None
    text: str
    shown: Shown
    metadata: tuple[Any, ...] = ()
    """All that its declaration has, the outermost first."""

    @property
    def heading(self) -> str:
        """The heading of its column, without a unit."""
        return self.shown.heading or self.words

    @property
    def words(self) -> str:
        """Its name without the unit: `compute` for `compute_ns`."""
        return self.name.removesuffix(SUFFIXES.get(self.unit, "")).replace("_", " ")

    @property
    def is_column(self) -> bool:
        """False if it holds rows or mappings of its own, which no column of a table can."""
        return _is_flat(self.kind)


def fields_of(row_type: Any) -> Mapping[str, Field]:
    """The fields of a struct, a named tuple or a dataclass, by name."""
    return _fields_of(row_type)


@cache
def _fields_of(row_type: Any) -> Mapping[str, Field]:
    names = getattr(row_type, "_fields", None) or getattr(row_type, "__struct_fields__", None)
    types = get_type_hints(row_type, include_extras=True)
    return {
        name: _field(name, types[name])
        for name in names or (one.name for one in fields_of_dataclass(row_type))
    }


def _field(name: str, annotation: Any) -> Field:
    metadata: list[Any] = []
    kinds = _kinds(annotation, metadata)
    present = [kind for kind in kinds if kind not in (type(None), UnsetType)]
    described = (item.description for item in metadata if isinstance(item, Meta) and item.description)
    return Field(
        name,
        present[0] if len(present) == 1 else Any,
        len(present) < len(kinds),
        next((item for item in metadata if isinstance(item, Unit)), None),
        next(described, ""),
        next((item for item in metadata if isinstance(item, Shown)), Shown()),
        tuple(metadata),
    )


def _kinds(annotation: Any, metadata: list[Any]) -> list[Any]:
    """The types of a union without their metadata, which are collected, the outermost first."""
    if get_origin(annotation) is Annotated:
        inner, *found = get_args(annotation)
        metadata += reversed(found)  # the last one is the outermost where aliases are nested
        return _kinds(inner, metadata)
    if get_origin(annotation) in (Union, UnionType):
        return [kind for one in get_args(annotation) for kind in _kinds(one, metadata)]
    return [annotation]


def _is_flat(kind: Any) -> bool:
    origin = get_origin(kind) or kind
    if not isinstance(origin, type):
        return True
    if issubclass(origin, Mapping) or issubclass(origin, Struct):
        return False
    if issubclass(origin, Sequence) and not issubclass(origin, str | bytes):
        return all(map(_is_flat, elements_of(kind)))
    return True


def elements_of(kind: Any) -> list[Any]:
    """The types of the elements of a list or tuple."""
    return [one for inner in get_args(kind) for one in _kinds(inner, [])]


def _is_sequence(kind: Any) -> bool:
    origin = get_origin(kind)
    return isinstance(origin, type) and issubclass(origin, Sequence)


def rows_in(kind: Any) -> type[Struct] | None:
    """The class of the rows that a field of this type lists; None if it lists none."""
    elements = elements_of(kind) if _is_sequence(kind) else []
    return next((one for one in elements if isinstance(one, type) and issubclass(one, Struct)), None)


def words_of(kind: Any) -> tuple[str, ...]:
    """All values of a field whose type is an enumeration of words; empty for any other type."""
    return tuple(item.value for item in kind) if isinstance(kind, type) and issubclass(kind, Enum) else ()
