"""The tables of a dataset: their names, columns, types and meanings. The only place where these names are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum, StrEnum
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from tracelink.model import MANIFEST, MANIFEST_START
from tracelink.model.communications import Evidence
from tracelink.model.events import EventKind, Key, Relation, TrackKind
from tracelink.model.findings import Severity

if TYPE_CHECKING:
    import pyarrow

VERSION = 2
"""Version of the tables: it increases with every change of their columns."""

FORMAT = MANIFEST_START.decode().split('"')[3]
"""How a manifest names its format."""


class Type(StrEnum):
    """Types of columns; every value may be null unless the column is `required`."""

    INT32 = "INTEGER"
    INT64 = "BIGINT"
    FLOAT64 = "DOUBLE"
    BOOLEAN = "BOOLEAN"
    TEXT = "VARCHAR"
    """A text that many rows share: a dictionary in Parquet and Arrow."""
    JSON = "JSON"
    """A text of its own in each row, which is JSON."""
    INTEGERS = "BIGINT[]"
    TEXTS = "VARCHAR[]"
    COUNTS = "MAP(VARCHAR, BIGINT)"


class Column(Struct, frozen=True):
    """One column."""

    name: str
    type: Type
    text: str
    field: str = ""
    """The name of the same column in the model, if it is another one."""
    required: bool = False
    words: tuple[str, ...] = ()
    """All values that a text can have; empty if it can be any."""
    derived: bool = False
    """Whether it follows from other columns and tables, so that it is not read back."""

    @property
    def source(self) -> str:
        """The name of the column in the model."""
        return self.field or self.name

    @property
    def sql_type(self) -> str:
        """The type of the column in a DuckDB file."""
        if self.words:
            return f"ENUM ({', '.join(repr(word) for word in self.words)})"
        return Type.TEXT.value if self.type == Type.JSON else self.type.value

    @property
    def arrow_type(self) -> pyarrow.DataType:
        """The type of the column in Parquet and Arrow."""
        return _arrow_types()[self.type]


class Table(Struct, frozen=True):
    """One table."""

    name: str
    text: str
    columns: tuple[Column, ...]
    by_rank: bool = False
    """Whether it has a partition for each rank, whose number is the column `rank` of no file."""
    optional: bool = False
    """Whether it is written only on request."""

    @property
    def arrow_schema(self) -> pyarrow.Schema:
        """The columns of its files."""
        import pyarrow

        return pyarrow.schema([(column.name, column.arrow_type) for column in self.columns])

    @property
    def restored(self) -> tuple[Column, ...]:
        """The columns that are read back."""
        return tuple(column for column in self.columns if not column.derived)

    @property
    def all_columns(self) -> tuple[Column, ...]:
        """Its columns in SQL, with the rank of the partition."""
        return (RANK_OF_PARTITION, *self.columns) if self.by_rank else self.columns


@cache
def _arrow_types() -> dict[Type, pyarrow.DataType]:
    import pyarrow as pa

    return {
        Type.INT32: pa.int32(),
        Type.INT64: pa.int64(),
        Type.FLOAT64: pa.float64(),
        Type.BOOLEAN: pa.bool_(),
        Type.TEXT: pa.dictionary(pa.int32(), pa.string()),
        Type.JSON: pa.string(),
        Type.INTEGERS: pa.list_(pa.int64()),
        Type.TEXTS: pa.list_(pa.string()),
        Type.COUNTS: pa.map_(pa.string(), pa.int64()),
    }


def _id(name: str, text: str, *, wide: bool = False) -> Column:
    return Column(name, Type.INT64 if wide else Type.INT32, text, required=True)


def _integer(name: str, text: str, field: str = "") -> Column:
    return Column(name, Type.INT64, text, field)


def _small(name: str, text: str, field: str = "") -> Column:
    return Column(name, Type.INT32, text, field)


def _text(name: str, text: str, field: str = "") -> Column:
    return Column(name, Type.TEXT, text, field)


def _word(name: str, words: type[Enum], text: str) -> Column:
    values = (word.value if isinstance(word, str) else word.name.lower() for word in words)
    return Column(name, Type.TEXT, text, words=tuple(values))


def _derived(column: Column) -> Column:
    return replace(column, derived=True)


def _number(name: str, text: str) -> Column:
    return Column(name, Type.FLOAT64, text)


RANK = _id("rank", "The rank.")
RANK_OF_PARTITION = _id("rank", "The rank, which is the partition in Parquet.")
EVENT = _id("event", "The row of the event within its rank, from 0.", wide=True)


class Part(Enum):
    """What work on a device is; the values are those of `tracelink.answers.rank.view`."""

    COMPUTE = 0
    COMMUNICATION = 1
    COPY = 2


STEP_PARTS = {
    "compute_ns": "Time with computation.",
    "exposed_communication_ns": "Time with communication and without computation.",
    "exposed_copy_ns": "Time with copies, and with neither computation nor communication.",
    "idle_ns": "The rest: with the three above it adds up to the duration.",
    "communication_ns": "Time with communication, also where computation covers it.",
    "copy_ns": "Time with copies, also where anything covers it.",
}
"""The parts of a step, which are columns of `steps`: fields of `tracelink.answers.model.results.Step`."""

KEY_COLUMNS = {
    Key.CORRELATION: "Joins a call of the runtime with the work that it launched.",
    Key.EXTERNAL_ID: "Joins an operator with the work on the GPU, as the profiler recorded it.",
    Key.RECORD_FUNCTION: "Joins an operator of a profile with the node of the execution trace.",
    Key.SEQUENCE: "Joins a forward operator with its backward operator.",
    Key.EVENT_INDEX: "The number of the event in the order in which the profiler saw events begin.",
    Key.PYTHON_ID: "The id of a call of a Python function.",
    Key.PYTHON_PARENT: "The id of the call of a Python function that made this one.",
    Key.NODE_ID: "The id of a node of the execution trace.",
    Key.NODE_PARENT: "The id of the parent of that node.",
}
"""The link keys that many events have, which are columns of `events`; all others are rows of `keys`."""

EVENTS = Table(
    "events",
    "What happened: one row for each event.",
    (
        EVENT,
        _word("kind", EventKind, "What kind of thing happened: `operator`, `kernel`, ..."),
        _text("name", "The name that the source gives it."),
        _id("track", "Where it happened: the row of `tracks` of the same rank."),
        _integer("start_ns", "When it began; null if its source has no times.", "start"),
        _integer("duration_ns", "How long it took; null if its end was not recorded.", "duration"),
        _id("source", "Which input it is from: the row of `sources` of the same rank."),
        _integer("payload", "Its number in the source, by which its arguments are found."),
        _derived(
            _integer("caller", "The event that calls it: a row of `events` of the same rank, as in `edges`.")
        ),
        _derived(_integer("self_ns", "Its duration without that of the events that it calls.")),
        _derived(_integer("call", "The call that launched it, if it is work on a device, as in `edges`.")),
        _derived(_integer("called_ns", "When that call began.")),
        _derived(
            _word(
                "part",
                Part,
                "What work on a device is, as `tracelink summary` divides time; null for all else.",
            )
        ),
        _derived(
            _integer(
                "idle_ns",
                "The time before it in which nothing ran on the devices of the rank, if it is the work that ends it.",
            )
        ),
        *(_integer(key.value, text) for key, text in KEY_COLUMNS.items()),
    ),
    by_rank=True,
)
EDGES = Table(
    "edges",
    "Why it happened: one row for each edge within a rank, from `source` to `target`.",
    (
        _id("source", "The event from which the edge leads.", wide=True),
        _id("target", "The event to which it leads.", wide=True),
        _word(
            "relation", Relation, "What `source` has to do with `target`: it `calls` or `launches` it, ..."
        ),
    ),
    by_rank=True,
)
TRACKS = Table(
    "tracks",
    "Where events happen: threads, streams, counters.",
    (
        _id("track", "The row of the track within its rank, from 0."),
        _word("kind", TrackKind, "What the track represents."),
        _text("process", "The id of the process; for a stream, the number of the device."),
        _text("identity", "Thread id, number of the stream, or name of the counter."),
        _text("label", "The name to show."),
        _integer("sort", "The position that the source gives it among the tracks of the process."),
        _text("process_label", "The name of the process to show."),
        _text("unit", "The unit of a counter; null if unknown."),
    ),
    by_rank=True,
)
COUNTERS = Table(
    "counters",
    "Sampled values.",
    (
        _id("track", "The counter: the row of `tracks` of the same rank."),
        _id("time_ns", "When it was sampled.", wide=True),
        _number("value", "The value."),
        _derived(
            _integer(
                "operator", "The operator that began last before it: a row of `events` of the same rank."
            )
        ),
    ),
    by_rank=True,
)
KEYS = Table(
    "keys",
    "Link keys that are not columns of `events`.",
    (
        EVENT,
        _word("key", Key, "Which key."),
        _integer("value", "Its value; null if that is a text."),
        _text("text", "Its value if that is a text, such as the name of a process group."),
    ),
    by_rank=True,
)
COMPILES = Table(
    "compiles",
    "What torch.compile compiled: one row for each compile id of a rank, made of its phases in `events`.",
    (
        _text("compile_id", "The compilation: `1/5`."),
        _integer("start_ns", "When its first phase began."),
        _integer("duration_ns", "From there to the end of its last phase."),
        _integer("phases", "Number of its phases."),
        _integer("ran", "Number of events that ran its code."),
        _text("cache_key", "The key by which a cache has its graph."),
        _text("output_code", "The first file with code that it generated."),
    ),
    by_rank=True,
)
STEPS = Table(
    "steps",
    "The steps of each rank, as `tracelink summary` divides its time.",
    (
        _integer("step", "The number of the step; null for a recording without steps."),
        _id("start_ns", "When it starts on the host.", wide=True),
        _id("end_ns", "When the next one starts; of the last one, the end of its work.", wide=True),
        _integer("own_end_ns", "When its annotation ends on the host."),
        _text(
            "work",
            "What its parts are times of: `kernels` and copies; `operators` for a rank without these; `nothing`.",
        ),
        *(_id(name, text, wide=True) for name, text in STEP_PARTS.items()),
    ),
    by_rank=True,
)
ARGUMENTS = Table(
    "arguments",
    "The arguments of events as their sources recorded them: of waits and all-to-all, or of all with `--args all`.",
    (
        _id("source", "The input: the row of `sources` of the same rank."),
        _id("payload", "The number in the source, as in `events`.", wide=True),
        Column("arguments", Type.JSON, "The arguments.", required=True),
    ),
    by_rank=True,
    optional=True,
)
RANKS = Table(
    "ranks",
    "The ranks of the job, and their clocks.",
    (
        RANK,
        _text("host", "The host; null if unknown."),
        _integer("world_size", "The number of ranks that its sources state."),
        _integer("clock_offset_ns", "Its clock minus the reference clock, at `clock_reference_ns`."),
        _integer("clock_uncertainty_ns", "The largest possible error of the offset; null if unbounded."),
        _number("clock_drift_ppm", "How much faster than the reference clock it runs."),
        _integer("clock_low_ns", "The smallest possible offset; null if unbounded."),
        _integer("clock_high_ns", "The largest possible offset; null if unbounded."),
        _integer("clock_constraints", "Number of observations that the estimate is based on."),
        _integer("clock_reference_ns", "The time of the offset."),
    ),
)
SOURCES = Table(
    "sources",
    "The inputs.",
    (
        RANK,
        _id("source", "The row of the source within its rank, from 0."),
        _text("path", "The path as the user gave it."),
        _text("format", "The format: `kineto`, `execution-trace`, ..."),
        _text("version", "The version of the format."),
        _text("host", "The host."),
        _integer("world_size", "The number of ranks that it states."),
        _integer("pid", "The process."),
        _integer("device", "The only device of the process."),
        _integer("events", "Number of events."),
        _integer("records", "Number of entries in the file."),
        _integer("bytes", "Size as stored."),
        _integer("start_ns", "The time of the first event, by the clock of the rank."),
        _integer("end_ns", "The end of the last event, by the clock of the rank."),
        _integer("local_time_ns", "When the recording started, if the time zone was UTC."),
        _integer("zero_ns", "The time that is 0 in the file."),
        Column("header", Type.JSON, "Properties of the whole file."),
        Column("recorder", Type.TEXTS, "The groups of a recorder with their backends."),
    ),
)
GROUPS = Table(
    "groups",
    "The process groups of the job.",
    (
        _id("group_id", "The row of the group, from 0."),
        _text("name", "The name that torch gives the group."),
        _text("description", "The description that the program gave: `default_pg`."),
        Column("ranks", Type.INTEGERS, "Its ranks, in the order of the group; null if unknown."),
        _integer("size", "Number of ranks; null if unknown."),
        _text("backend", "`nccl`, `gloo`, ..."),
    ),
)
COLLECTIVES = Table(
    "collectives",
    "Communication of a group, matched across ranks: one row for each collective.",
    (
        _id("collective", "The row of the collective, from 0.", wide=True),
        _small("group_id", "The group: a row of `groups`.", "group"),
        _integer("sequence", "The sequence number that the sources recorded."),
        _integer("ordinal", "The position among the collectives of the group, from 0.", "order"),
        _text("operation", "`all_reduce`, ..."),
        _text("type", "The type of the elements."),
        _integer("bytes", "Size as nccl-tests counts it for this operation."),
        _integer("start_ns", "When the first rank entered.", "start"),
        _integer("end_ns", "When the last rank left.", "end"),
        _small("last_rank", "The rank that entered last."),
        _integer("skew_ns", "From the first rank's entry to the last one's.", "skew"),
        _integer("duration_ns", "From the last rank's entry to the last exit.", "duration"),
        _number("algorithm_gb_s", "Algorithm bandwidth as nccl-tests defines it."),
        _number("bus_gb_s", "Bus bandwidth as nccl-tests defines it."),
        _text("verdict", "`complete`, `partial`, `missing`, `mismatch` or `unmatched`."),
        _small("root", "The rank that sends to or receives from all others."),
    ),
)
PARTICIPATIONS = Table(
    "participations",
    "Each rank's part in each collective.",
    (
        _id("collective", "The row of `collectives`.", wide=True),
        RANK,
        _integer("record", "The entry of the flight recorder: a row of `events` of the rank."),
        _integer("operator", "The operator."),
        _integer("annotation", "The annotation."),
        _integer("node", "The node of the execution trace."),
        _integer("kernel", "The kernel."),
        _integer("enqueued_ns", "When the rank enqueued it.", "enqueued"),
        _integer("start_ns", "When the rank entered.", "start"),
        _integer("end_ns", "When the rank left.", "end"),
        _word("evidence", Evidence, "What its times are based on."),
        _integer("wait_ns", "From its own entry to that of the last rank.", "wait"),
        _text("state", "The state that the flight recorder recorded."),
        _integer("bytes_in", "Bytes of all tensors that the rank sends."),
        _integer("bytes_out", "Bytes of all tensors that the rank receives."),
    ),
)
MESSAGES = Table(
    "messages",
    "Messages from one rank to another.",
    (
        _small("group_id", "The group: a row of `groups`.", "group"),
        _small("source", "The rank that sends."),
        _small("target", "The rank that receives."),
        _integer("tag", "The tag."),
        _integer("ordinal", "The position among the messages of this pair, group and tag, from 0.", "order"),
        _integer("bytes", "Its size."),
        _integer("send", "The event of the send: a row of `events` of `source`."),
        _integer("receive", "The event of the receive: a row of `events` of `target`."),
        _integer("send_node", "The node of the execution trace that sends."),
        _integer("receive_node", "The node of the execution trace that receives."),
        _integer("sent_ns", "When the send started.", "sent"),
        _integer("received_ns", "When the receive ended.", "received"),
        _text("verdict", "`complete`, `partial`, `missing`, `mismatch` or `unmatched`."),
    ),
)
TIES = Table(
    "ties",
    "Edges between ranks: an event of one rank for which an event of another one had to wait.",
    (
        _id("cause_rank", "The rank of the cause."),
        _id("cause", "The cause: a row of `events` of that rank.", wide=True),
        _id("effect_rank", "The rank of the effect."),
        _id("effect", "The effect: a row of `events` of that rank.", wide=True),
        _word(
            "relation", Relation, "The effect `waits_for` the cause, or `depends_on` it if it is a message."
        ),
    ),
)
METRICS = Table(
    "metrics",
    "Metrics that other programs sampled, of all ranks; `counters` has them for each rank.",
    (
        _id("metric", "What is measured: a row of `metric_tracks`."),
        _id("time_ns", "When it was sampled.", wide=True),
        _number("value", "The value."),
    ),
)
METRIC_TRACKS = Table(
    "metric_tracks",
    "What each of `metrics` measures.",
    (_id("metric", "The row of the metric, from 0."), RANK, *TRACKS.columns[1:]),
)
FINDINGS = Table(
    "findings",
    "Everything that was wrong or unexpected in the inputs.",
    (
        _word("severity", Severity, "How much it matters."),
        _text("reason", "The kind of the finding, in one word."),
        _text("message", "What it is, and what to do."),
        _integer("count", "How often."),
        _text("source", "The input."),
        _text("example", "An example."),
    ),
)
REPORTS = Table(
    "reports",
    "How events of each rank were linked, by relation.",
    (
        RANK,
        _text("relation", "The relation."),
        _integer("linked", "Events that have such an edge."),
        _integer("candidates", "Events that could have one."),
        Column("unlinked", Type.COUNTS, "Why the others have none, and how many."),
        Column("notes", Type.COUNTS, "Other counts."),
    ),
)

OF_RANK = (EVENTS, EDGES, TRACKS, COUNTERS, KEYS, STEPS, COMPILES, ARGUMENTS)
"""Tables with a partition for each rank."""
OF_JOB = (
    *(RANKS, SOURCES, GROUPS, COLLECTIVES, PARTICIPATIONS, MESSAGES, TIES),
    *(METRICS, METRIC_TRACKS, FINDINGS, REPORTS),
)
"""Tables with one file."""
TABLES: dict[str, Table] = {table.name: table for table in (*OF_RANK, *OF_JOB)}

OWN_FILES = re.compile(rf"{re.escape(MANIFEST)}|({'|'.join(TABLES)})/(rank=\d+/)?part-0\.parquet")
"""The names of the files of a dataset."""

DATASET = "dataset"
"""The table of a DuckDB file with the manifest as its only value."""


class Manifest(Struct, frozen=True):
    """What a dataset contains; it is written last, so that a dataset without it is incomplete."""

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
