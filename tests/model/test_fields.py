"""How fields of results are declared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from tracelink._model.fields import (
    Bytes,
    Doc,
    Field,
    GigabytesPerSecond,
    Nanoseconds,
    RankNumber,
    Ranks,
    Row,
    Share,
    Shown,
    Unit,
    UnixNanoseconds,
    fields_of,
    rows_in,
)


class Part(Row, frozen=True):
    name: str


class Kernel(Row, frozen=True):
    name: Annotated[str, Doc("Its name.", min_length=1), Shown(longest=44)]
    total_ns: Annotated[Nanoseconds | None, Doc("Of all runs."), Shown("total", drop=2)]
    ranks: Ranks = ()
    parts: Sequence[Part] = ()
    shapes: Sequence[str] = ()
    state: str | UnsetType = UNSET


def test_a_declaration_says_type_unit_meaning_and_look() -> None:
    fields = fields_of(Kernel)
    metadata = (Shown(longest=44), Doc("Its name.", min_length=1))
    assert fields["name"] == Field("name", str, False, None, "Its name.", Shown(longest=44), metadata)
    assert replace(fields["total_ns"], metadata=()) == Field(
        "total_ns", int, True, Unit.DURATION, "Of all runs.", Shown("total", drop=2)
    )
    assert (fields["ranks"].unit, fields["state"].optional, fields["state"].kind) == (Unit.RANKS, True, str)


def test_rows_within_rows_are_no_columns() -> None:
    assert [name for name, field in fields_of(Kernel).items() if not field.is_column] == ["parts"]
    assert rows_in(fields_of(Kernel)["parts"].kind) is Part
    assert rows_in(fields_of(Kernel)["shapes"].kind) is None


def test_the_same_declaration_is_the_json_schema() -> None:
    schema = msgspec.json.schema(Kernel)["$defs"]["Kernel"]["properties"]
    assert schema["name"] == {"type": "string", "description": "Its name.", "minLength": 1}
    assert schema["total_ns"]["description"] == "Of all runs."
    assert {"type": "integer", "minimum": 0} in schema["total_ns"]["anyOf"]


def test_headings_do_not_repeat_units() -> None:
    class Sizes(Row, frozen=True):
        compute_ns: Nanoseconds
        start_ns: UnixNanoseconds
        peak_bytes: Bytes
        bus_gb_s: GigabytesPerSecond
        idle_share: Share
        share: Share
        bytes: Bytes
        rank: RankNumber
        created_ns: int

    headings = [one.heading for one in fields_of(Sizes).values()]
    assert headings == ["compute", "start", "peak", "bus", "idle", "share", "bytes", "rank", "created ns"]
