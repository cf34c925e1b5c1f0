"""The tables of a dataset: those of the model, what linking adds to them, and what analyses of one rank find."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import Annotated, Any

from msgspec import Struct
from msgspec.structs import replace

from tracelink._model import MANIFEST, MANIFEST_START
from tracelink._model.columns import Text
from tracelink._model.communications import Collectives, Messages, Participations
from tracelink._model.events import Counters, Edges, Events, Key, Track
from tracelink._model.fields import Doc, Row, elements_of, fields_of
from tracelink._model.findings import Finding
from tracelink._model.graph import LinkReport, Rank
from tracelink._model.job import Ties
from tracelink._model.trace import ProcessGroup, SourceInfo
from tracelink._store import schema as stored
from tracelink._store.schema import Column, Type, column_of

VERSION = 2
"""Version of the tables: it increases with every change of their columns."""

FORMAT = MANIFEST_START.decode().split('"')[3]
"""The name of the format in a manifest."""


class Table(stored.Table, frozen=True):
    """One table."""

    model: Any = None
    """The table or the struct of the model that its rows are; None for what analyses find."""
    by_rank: bool = False
    """True if it has a partition for each rank, whose number is the column `rank` of no file."""

    @property
    def restored(self) -> tuple[Column, ...]:
        """The columns that are read back."""
        return tuple(column for column in self.columns if not column.derived)

    @property
    def in_database(self) -> Table:
        """The table of a database, with the rank of the partition."""
        return replace(self, columns=(RANK_OF_PARTITION, *self.columns)) if self.by_rank else self


WORDS_OF_SQL = {"group": "group_id", "order": "ordinal"}


def _columns(kind: Any, *, required: Sequence[str] | None = None, derived: bool = False) -> Iterator[Column]:
    """The columns of rows, or of a table of the model, in whose columns of times only the type says the unit."""
    for field in fields_of(kind).values():
        column = column_of(field)
        name = WORDS_OF_SQL.get(field.name, field.name)
        if column.unit.endswith("ns") and not name.endswith("_ns"):
            name += "_ns"
        coded = column.words or field.kind is str or any(isinstance(item, Text) for item in field.metadata)
        shared = coded and Type.TEXT not in field.metadata
        kept = Type.COUNTS if elements_of(field.kind) == [str, int] else column.type
        yield replace(
            column,
            name=name,
            type=Type.SHARED if shared else kept,
            source=field.name,
            required=column.required if required is None else name in required,
            derived=derived,
        )


def _table(
    name: str,
    text: str,
    model: Any,
    *first: Column,
    required: str = "",
    without: str = "",
    last: Iterable[Column] = (),
    by_rank: bool = False,
) -> Table:
    """A table of the model after and before columns of its own; `required` are columns that are never null."""
    own = {without, *(column.source for column in first)}
    columns = (column for column in _columns(model, required=required.split()) if column.source not in own)
    return Table(name, text, (*first, *columns, *last), model=model, by_rank=by_rank)


def _of_rank(name: str, kind: type[Row]) -> Table:
    """A table that each rank has."""
    return Table(name, kind.__doc__ or "", tuple(_columns(kind)), by_rank=True)


def _id(name: str, text: str, *, source: str = "", wide: bool = False) -> Column:
    """A column that every row has; without a source it is the number of the row."""
    return Column(name, Type.INTEGER if wide else Type.SMALL, text, required=True, source=source)


RANK = _id("rank", "The rank.", source="rank")
RANK_OF_PARTITION = _id("rank", "The rank, which is the partition in Parquet.")
EVENT = "The row of the event within its rank, from 0."


class Part(Enum):
    """Kinds of work on a device; the values are those of `tracelink._time.rank.view`."""

    COMPUTE = 0
    COMMUNICATION = 1
    COPY = 2


# Tables with a partition for each rank.


class LinkedEvent(Row, frozen=True):
    """What linking and measuring add to an event."""

    caller: Annotated[
        int | None, Doc("The event that calls it: a row of `events` of the same rank, as in `edges`.")
    ]
    self_ns: Annotated[int | None, Doc("Its duration without that of the events that it calls.")]
    call: Annotated[int | None, Doc("The call that launched it, if it is work on a device, as in `edges`.")]
    called_ns: Annotated[int | None, Doc("When that call began.")]
    part: Annotated[
        int | None,
        Part,
        Doc("What work on a device is, as `tracelink summary` divides time; null for all else."),
    ]
    idle_ns: Annotated[
        int | None,
        Doc(
            "The time before it in which nothing ran on the devices of the rank, if it is the work that ends it."
        ),
    ]


class KeysOfEvent(Row, frozen=True):
    """The link keys that many events have, which are columns of `events`; all others are rows of `keys`."""

    correlation: Annotated[int | None, Doc("Joins a call of the runtime with the work that it launched.")]
    external_id: Annotated[
        int | None, Doc("Joins an operator with the work on the GPU, as the profiler recorded it.")
    ]
    record_function: Annotated[
        int | None, Doc("Joins an operator of a profile with the node of the execution trace.")
    ]
    sequence: Annotated[int | None, Doc("Joins a forward operator with its backward operator.")]
    event_index: Annotated[
        int | None, Doc("The number of the event in the order in which the profiler saw events begin.")
    ]
    python_id: Annotated[int | None, Doc("The id of a call of a Python function.")]
    python_parent: Annotated[int | None, Doc("The id of the call of a Python function that made this one.")]
    node_id: Annotated[int | None, Doc("The id of a node of the execution trace.")]
    node_parent: Annotated[int | None, Doc("The id of the parent of that node.")]


class KeyRow(Row, frozen=True):
    """Link keys that are not columns of `events`."""

    event: Annotated[int, Doc(EVENT)]
    key: Annotated[Key | None, Doc("Which key.")]
    value: Annotated[int | None, Doc("Its value; null if that is a text.")]
    text: Annotated[str | None, Doc("Its value if that is a text, such as the name of a process group.")]


class CompileRow(Row, frozen=True):
    """What torch.compile compiled: one row for each compile id of a rank, made of its phases in `events`."""

    compile_id: Annotated[str | None, Doc("The compilation: `1/5`.")]
    start_ns: Annotated[int | None, Doc("When its first phase began.")]
    duration_ns: Annotated[int | None, Doc("From there to the end of its last phase.")]
    phases: Annotated[int | None, Doc("Number of its phases.")]
    ran: Annotated[int | None, Doc("Number of events that ran its code.")]
    cache_key: Annotated[str | None, Doc("The key by which a cache has its graph.")]
    output_code: Annotated[str | None, Doc("The first file with code that it generated.")]


class StepParts(Row, frozen=True):
    """The parts of a step: fields of `tracelink._time.model.results.Step`."""

    compute_ns: Annotated[int, Doc("Time with computation.")]
    exposed_communication_ns: Annotated[int, Doc("Time with communication and without computation.")]
    exposed_copy_ns: Annotated[int, Doc("Time with copies, and with neither computation nor communication.")]
    idle_ns: Annotated[int, Doc("The rest: with the three above it adds up to the duration.")]
    communication_ns: Annotated[int, Doc("Time with communication, also where computation covers it.")]
    copy_ns: Annotated[int, Doc("Time with copies, also where anything covers it.")]


class StepRow(Row, frozen=True):
    """The steps of each rank, as `tracelink summary` divides its time."""

    step: Annotated[int | None, Doc("The number of the step; null for a recording without steps.")]
    start_ns: Annotated[int, Doc("When it starts on the host.")]
    end_ns: Annotated[int, Doc("When the next one starts; of the last one, the end of its work.")]
    own_end_ns: Annotated[int | None, Doc("When its annotation ends on the host.")]
    work: Annotated[
        str | None,
        Doc(
            "What its parts are times of: `kernels` and copies; `operators` for a rank without these; `nothing`."
        ),
    ]


class ArgumentRow(Row, frozen=True):
    """The arguments of events as their sources recorded them: of waits and all-to-all, or of all with `--args all`."""

    source: Annotated[int, Type.SMALL, Doc("The input: the row of `sources` of the same rank.")]
    payload: Annotated[int, Doc("The number in the source, as in `events`.")]
    arguments: Annotated[str, Type.TEXT, Doc("The arguments.")]


KEY_COLUMNS = tuple(map(Key, fields_of(KeysOfEvent)))
STEP_PARTS = tuple(fields_of(StepParts))

EVENTS = _table(
    "events",
    "What happened: one row for each event.",
    Events,
    _id("event", EVENT, wide=True),
    required="track source",
    last=(*_columns(LinkedEvent, derived=True), *_columns(KeysOfEvent)),
    by_rank=True,
)
EDGES = _table(
    "edges",
    "Why it happened: one row for each edge within a rank, from `source` to `target`.",
    Edges,
    required="source target",
    by_rank=True,
)
TRACKS = _table(
    "tracks",
    "Where events happen: threads, streams, counters.",
    Track,
    _id("track", "The row of the track within its rank, from 0."),
    without="rank",
    by_rank=True,
)
COUNTERS = _table(
    "counters",
    "Sampled values.",
    Counters,
    required="track time_ns",
    last=(
        Column(
            "operator",
            Type.INTEGER,
            "The operator that began last before it: a row of `events` of the same rank.",
            derived=True,
        ),
    ),
    by_rank=True,
)
KEYS = _of_rank("keys", KeyRow)
COMPILES = _of_rank("compiles", CompileRow)
STEPS = Table("steps", StepRow.__doc__ or "", (*_columns(StepRow), *_columns(StepParts)), by_rank=True)
ARGUMENTS = _of_rank("arguments", ArgumentRow)

# Tables with one file.

RANKS = _table("ranks", "The ranks of the job, and their clocks.", Rank, RANK)
SOURCES = _table(
    "sources",
    "The inputs.",
    SourceInfo,
    RANK,
    _id("source", "The row of the source within its rank, from 0."),
)
GROUPS = _table(
    "groups", "The process groups of the job.", ProcessGroup, _id("group_id", "The row of the group, from 0.")
)
COLLECTIVES = _table(
    "collectives",
    "Communication of a group, matched across ranks: one row for each collective.",
    Collectives,
    _id("collective", "The row of the collective, from 0.", wide=True),
)
PARTICIPATIONS = _table(
    "participations", "Each rank's part in each collective.", Participations, required="collective rank"
)
MESSAGES = _table("messages", "Messages from one rank to another.", Messages)
TIES = _table(
    "ties",
    "Edges between ranks: an event of one rank for which an event of another one had to wait.",
    Ties,
    required="cause_rank cause effect_rank effect",
)
METRICS = _table(
    "metrics",
    "Metrics that other programs sampled, of all ranks; `counters` has them for each rank.",
    Counters,
    _id("metric", "What is measured: a row of `metric_tracks`.", source="track"),
    required="time_ns",
)
METRIC_TRACKS = _table(
    "metric_tracks",
    "What each of `metrics` measures.",
    Track,
    _id("metric", "The row of the metric, from 0."),
    RANK,
)
FINDINGS = _table("findings", "Everything that was wrong or unexpected in the inputs.", Finding)
REPORTS = _table("reports", "How events of each rank were linked, by relation.", LinkReport, RANK)

OF_RANK = (EVENTS, EDGES, TRACKS, COUNTERS, KEYS, STEPS, COMPILES, ARGUMENTS)
"""Tables with a partition for each rank."""
OF_JOB = (
    *(RANKS, SOURCES, GROUPS, COLLECTIVES, PARTICIPATIONS, MESSAGES, TIES),
    *(METRICS, METRIC_TRACKS, FINDINGS, REPORTS),
)
"""Tables with one file; their names are those of the fields of a job."""
TABLES: dict[str, Table] = {table.name: table for table in (*OF_RANK, *OF_JOB)}

OWN_FILES = re.compile(rf"{re.escape(MANIFEST)}|({'|'.join(TABLES)})/(rank=\d+/)?part-0\.parquet")
"""The names of the files of a dataset."""

DATASET = "dataset"
"""The table of a DuckDB file with the manifest as its only value."""


class Manifest(Struct, frozen=True):
    """The content of a dataset; it is written last, so that a dataset without it is incomplete."""

    format: str
    schema: int
    """`VERSION` when it was written."""
    tracelink: str
    """The version of tracelink that wrote it."""
    ranks: Sequence[int]
    events: Sequence[int]
    """Number of events of each of these ranks."""
    tables: dict[str, int]
    """Number of rows of each table."""
    spans: Sequence[tuple[int | None, int | None]]
    """The first and the last time of each of these ranks; null if nothing has a time."""
    first_ns: int | None = None
    """The time of the first event or sample; null if nothing has a time."""
    last_ns: int | None = None
    """The end of the last one."""
    arguments: str = "all"
    """The events whose arguments were written: `all`, `link` are those that analyses read, or `none`."""


def partition(table: str, rank: int) -> str:
    """The file of one rank in a dataset."""
    return f"{table}/rank={rank}/part-0.parquet"


def file_of(table: str) -> str:
    """The file of a table of the job in a dataset."""
    return f"{table}/part-0.parquet"
