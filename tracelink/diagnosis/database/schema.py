"""The tables and columns of the database, with their descriptions."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

VERSION = 1
"""Version of the tables: it increases if a column changes its name or its meaning."""


class Type(StrEnum):
    """Types of columns; any value may be missing unless the column is `required`."""

    INTEGER = "INTEGER"
    REAL = "REAL"
    TEXT = "TEXT"
    BOOLEAN = "BOOLEAN"


class Column(Struct, frozen=True):
    """One column."""

    name: str
    type: Type
    text: str
    references: str = ""
    """`table.column` that contains every value of this one."""
    required: bool = False
    """Whether every row has a value."""


class Table(Struct, frozen=True):
    """One table."""

    name: str
    text: str
    key: tuple[str, ...]
    """The columns that identify a row; empty if none do."""
    columns: tuple[Column, ...]
    indexes: tuple[tuple[str, ...], ...] = ()


def _id(text: str) -> Column:
    return Column("id", Type.INTEGER, text, required=True)


def _key(name: str, references: str, text: str) -> Column:
    """A required reference to another table."""
    return Column(name, Type.INTEGER, text, references, required=True)


def _link(name: str, references: str, text: str) -> Column:
    """An optional reference to another table."""
    return Column(name, Type.INTEGER, text, references)


def _integer(name: str, text: str) -> Column:
    return Column(name, Type.INTEGER, text)


def _text(name: str, text: str) -> Column:
    return Column(name, Type.TEXT, text)


def _flag(name: str, text: str) -> Column:
    return Column(name, Type.BOOLEAN, text)


RANKS = Table(
    "ranks",
    "Every rank that has a dump or is named elsewhere.",
    ("rank",),
    (
        Column("rank", Type.INTEGER, "The rank in the job.", required=True),
        _text("dump", "`complete`, `truncated` (used up to there), `unreadable` or `missing`."),
        _text("reason", "Why the dump is unreadable or truncated."),
        _text("path", "The file or archive member of the dump."),
        _text("version", "Version of the dump's format."),
        _integer("entries", "Number of its entries in `entries`."),
        _integer("overwritten", "Number of older entries that the ring buffer had overwritten."),
    ),
)

GROUPS = Table(
    "groups",
    "Process groups.",
    ("id",),
    (
        _id("Identifier in this database."),
        _text("name", "Its name in the dumps: `0`."),
        _text("description", "Its description: `default_pg`, `tp`."),
        _integer("size", "Number of ranks, if known."),
    ),
)

MEMBERS = Table(
    "members",
    "The ranks of each group, and how far each of them got there.",
    ("group_id", "rank"),
    (
        _key("group_id", "groups.id", "The group."),
        _key("rank", "ranks.rank", "The rank in the job."),
        _integer("position", "Its rank within the group."),
        _text(
            "stage",
            "How far it got: `never_joined` a collective, `waiting` in its last one, `finished` its last one and "
            "did not join the next, or `unknown`: its dump is missing or does not show it.",
        ),
        _integer("sequence", "Sequence number of the last collective that it is known to have joined."),
        _link("collective_id", "collectives.id", "This collective."),
    ),
)

COLLECTIVES = Table(
    "collectives",
    "Collectives: the calls of all ranks of a group with the same sequence number.",
    ("id",),
    (
        _id("Identifier in this database."),
        _key("group_id", "groups.id", "The group."),
        _integer("sequence", "Its sequence number within the group."),
        _text("operation", "The operation of most ranks, as recorded: `nccl:all_reduce`."),
        _text("operation_kind", "The same with a name that does not depend on the backend: `all_reduce`."),
        _integer("expected_ranks", "Number of ranks of the group."),
        _integer("joined_ranks", "Number of ranks with an entry."),
        _integer("open_ranks", "Number of these that have not finished it."),
        _integer("first_created_ns", "When the first rank joined it."),
        _integer("last_created_ns", "When the last rank joined it."),
        _link("last_rank", "ranks.rank", "The last rank to join it."),
        _integer(
            "skew_ns", "Time from the first to the last rank; missing unless at least two times are known."
        ),
        _integer(
            "late_ns", "Time from the last but one to the last rank: how long all others waited for it."
        ),
        _integer("last_completed_ns", "When the last recorder saw it completed."),
    ),
    indexes=(("group_id", "sequence"),),
)

MESSAGES = Table(
    "messages",
    "Messages from one rank to another, and the entries at both ends.",
    ("id",),
    (
        _id("Identifier in this database."),
        _key("group_id", "groups.id", "The group."),
        _link("source_rank", "ranks.rank", "The rank that sends it."),
        _link("target_rank", "ranks.rank", "The rank that receives it."),
        _link("send_entry_id", "entries.id", "The send; missing if no dump contains it."),
        _link("receive_entry_id", "entries.id", "The receive; missing if no dump contains it."),
    ),
)

TRACEBACKS = Table(
    "tracebacks",
    "Python stacks; equal stacks are stored once.",
    ("id",),
    (
        _id("Identifier in this database."),
        _text("text", "The complete stack as Python prints it, innermost call last."),
        _text("name", "The function that called torch: the innermost frame outside of torch."),
        _text("filename", "The file of this function."),
        _integer("line", "The line of the call."),
    ),
)

FRAMES = Table(
    "frames",
    "The frames of tracebacks.",
    ("traceback_id", "depth"),
    (
        _key("traceback_id", "tracebacks.id", "The traceback."),
        Column("depth", Type.INTEGER, "0 for the innermost frame.", required=True),
        _text("name", "The function."),
        _text("filename", "Its file."),
        _integer("line", "The line in it."),
    ),
)

ENTRIES = Table(
    "entries",
    "All entries of all ranks: what a rank requested, and its outcome.",
    ("id",),
    (
        _id("Identifier in this database."),
        _key("rank", "ranks.rank", "The rank that recorded it."),
        _integer("place", "Its index in the dump, from 0; `record_id` is this plus `ranks.overwritten`."),
        _link("group_id", "groups.id", "The group; missing if unknown."),
        _link("collective_id", "collectives.id", "The collective; missing for messages."),
        _link("message_id", "messages.id", "The message that it is one end of; missing for collectives."),
        _integer(
            "sequence",
            "The sequence number within the group; messages and collectives are numbered separately.",
        ),
        _flag("point_to_point", "Whether it is a message, or part of a batch of messages."),
        _text("operation", "As recorded: `nccl:all_reduce`, `nccl:send 1->2`."),
        _text(
            "operation_kind",
            "The same with a name that does not depend on the backend: `all_reduce`, `send`.",
        ),
        _link("source_rank", "ranks.rank", "The sending rank of a message."),
        _link("target_rank", "ranks.rank", "The receiving rank of a message."),
        _text("input_sizes", "Sizes of input tensors, as JSON: `[[64,16]]`."),
        _text("output_sizes", "Sizes of output tensors."),
        _text("input_types", 'Dtypes of input tensors, as JSON: `["Float"]`.'),
        _text("output_types", "Dtypes of output tensors."),
        _integer("input_elements", "Number of elements of all input tensors."),
        _integer("output_elements", "Number of elements of all output tensors."),
        _integer("input_bytes", "Bytes of all input tensors; missing if a dtype is unknown."),
        _integer("output_bytes", "Bytes of all output tensors."),
        _text(
            "state",
            "As recorded: `scheduled`, `started` or `completed`. gloo records only the first.",
        ),
        _flag("retired", "Whether it has left the list of work; on gloo also after a timeout."),
        _text(
            "outcome",
            "Derived from both; for a part of a batch from the entry that closes it: `finished`, `retired` (the "
            "backend reports no more), `dropped` (retired unfinished: it timed out or failed) or `open`.",
        ),
        _integer("created_ns", "When the rank called it: Unix time in ns by the rank's own clock."),
        _integer("started_ns", "When a watchdog saw it started; late, because it polls."),
        _integer("completed_ns", "When a watchdog saw it completed; late, because it polls."),
        Column("duration_ms", Type.REAL, "Duration on the device, if timing was enabled."),
        _integer("timeout_ms", "Its timeout."),
        _link("traceback_id", "tracebacks.id", "The Python stack of the call."),
    ),
    indexes=(("collective_id", "rank"), ("rank", "place"), ("traceback_id",)),
)

PROBLEMS = Table(
    "problems",
    "The problems; empty if there are none.",
    ("id",),
    (
        _id("1 for the worst problem."),
        _text("kind", "`never_joined`, `lagging`, `skipped`, `operation_mismatch`, ... as in `--json`."),
        _link("group_id", "groups.id", "The group that shows it."),
        _link("collective_id", "collectives.id", "The first collective that shows it; missing for messages."),
        _integer("sequence", "The sequence number of this collective or message."),
        _text("operation", "The operation of most ranks there, as recorded."),
        _text("message", "A description for people."),
        _text("advice", "What to look at next."),
        _flag("proven", "Whether the culprits' own dumps show it, and not only those of other ranks."),
        _flag("tie", "Whether the culprits differ and it is unknown which of them is wrong."),
        _integer("collectives", "Number of collectives that show it."),
        _integer("waited_ns", "How long the waiting ranks have waited, at least."),
    ),
)

PROBLEM_RANKS = Table(
    "problem_ranks",
    "The ranks that cause a problem, and those that wait because of it.",
    ("problem_id", "rank", "role"),
    (
        _key("problem_id", "problems.id", "The problem."),
        _key("rank", "ranks.rank", "The rank."),
        Column("role", Type.TEXT, "`culprit` or `waiting`.", required=True),
        _link("entry_id", "entries.id", "The entry of this rank that shows the problem best."),
    ),
)

LATENESS = Table(
    "lateness",
    "Ranks that arrived last at collectives.",
    ("rank",),
    (
        Column("rank", Type.INTEGER, "The rank.", "ranks.rank", required=True),
        _integer("came_last", "Number of collectives at which it arrived last."),
        _integer("collectives", "Number of its collectives with known times."),
        _integer("total_ns", "Total time for which it was the only missing rank."),
        _integer("worst_ns", "The longest of these times."),
        _link("worst_collective_id", "collectives.id", "The collective with the longest time."),
    ),
)

FINDINGS = Table(
    "findings",
    "Findings of reading and diagnosing.",
    (),
    (
        _text("severity", "`error`, `warning` or `info`."),
        _text("reason", "The kind of finding."),
        _text("message", "A description for people."),
        _integer("count", "Number of occurrences."),
        _text("source", "The input."),
        _text("example", "One occurrence."),
    ),
)

TABLES: Mapping[str, Table] = {
    table.name: table
    for table in (
        RANKS,
        GROUPS,
        MEMBERS,
        COLLECTIVES,
        MESSAGES,
        ENTRIES,
        TRACEBACKS,
        FRAMES,
        PROBLEMS,
        PROBLEM_RANKS,
        LATENESS,
        FINDINGS,
    )
}
