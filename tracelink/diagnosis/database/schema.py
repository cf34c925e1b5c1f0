"""Tables and columns and what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

VERSION = 1
"""Of what is below: goes up when a column changes its name or its meaning."""


class Type(StrEnum):
    """What a column holds; any value may be missing unless the column says otherwise."""

    INTEGER = "INTEGER"
    REAL = "REAL"
    TEXT = "TEXT"
    BOOLEAN = "BOOLEAN"


@dataclass(frozen=True, slots=True)
class Column:
    """One column."""

    name: str
    type: Type
    text: str
    references: str = ""
    """`table.column` that holds every value of this one."""
    always: bool = False
    """Whether no row lacks it."""


@dataclass(frozen=True, slots=True)
class Table:
    """One table."""

    name: str
    text: str
    key: tuple[str, ...]
    """The columns that tell its rows apart; empty where nothing does."""
    columns: tuple[Column, ...]
    indexes: tuple[tuple[str, ...], ...] = ()


def _id(text: str) -> Column:
    return Column("id", Type.INTEGER, text, always=True)


def _key(name: str, references: str, text: str) -> Column:
    """A column that leads to another table, in every row."""
    return Column(name, Type.INTEGER, text, references, always=True)


def _link(name: str, references: str, text: str) -> Column:
    """A column that leads to another table, where there is something to lead to."""
    return Column(name, Type.INTEGER, text, references)


def _whole(name: str, text: str) -> Column:
    return Column(name, Type.INTEGER, text)


def _text(name: str, text: str) -> Column:
    return Column(name, Type.TEXT, text)


def _flag(name: str, text: str) -> Column:
    return Column(name, Type.BOOLEAN, text)


RANKS = Table(
    "ranks",
    "Every rank that has a dump, or that something else names.",
    ("rank",),
    (
        Column("rank", Type.INTEGER, "The rank in the job.", always=True),
        _text("dump", "`whole`, `broken_off` (used up to there), `unreadable` or `missing`."),
        _text("reason", "Why the dump could not be read, or not to its end."),
        _text("path", "Where the dump was read from."),
        _text("version", "Of the dump's format."),
        _whole("entries", "How many entries of it are in `entries`."),
        _whole("overwritten", "How many entries the ring buffer had dropped before the first that it kept."),
    ),
)

GROUPS = Table(
    "groups",
    "Process groups.",
    ("id",),
    (
        _id("Its number in this database."),
        _text("name", "As the dumps have it: `0`."),
        _text("description", "`default_pg`, `tp`."),
        _whole("size", "How many ranks it has, as far as that is known."),
    ),
)

MEMBERS = Table(
    "members",
    "Which ranks are in which group, and how far each of them is there.",
    ("group_id", "rank"),
    (
        _key("group_id", "groups.id", "The group."),
        _key("rank", "ranks.rank", "The rank in the job."),
        _whole("position", "Its rank within the group."),
        _text(
            "stage",
            "What it was last doing there: `never_joined` any collective, `waiting` in its last one, `finished` "
            "its last one and did not join the next, `unknown`: its dump is absent or no longer says.",
        ),
        _whole("sequence", "The number of the last collective that it is known to have joined."),
        _link("collective_id", "collectives.id", "That collective."),
    ),
)

COLLECTIVES = Table(
    "collectives",
    "One communication of a whole group each: what carries one number in one group.",
    ("id",),
    (
        _id("Its number in this database."),
        _key("group_id", "groups.id", "The group."),
        _whole("sequence", "Its number within the group."),
        _text("operation", "What most ranks do in it, as recorded: `nccl:all_reduce`."),
        _text("operation_kind", "The same by one name whatever the backend calls it: `all_reduce`."),
        _whole("expected_ranks", "How many ranks the group has."),
        _whole("joined_ranks", "How many of them have an entry of it."),
        _whole("open_ranks", "How many of these have not finished it."),
        _whole("first_created_ns", "When the first rank asked for it."),
        _whole("last_created_ns", "When the last rank asked for it."),
        _link("last_rank", "ranks.rank", "Who asked for it last."),
        _whole("skew_ns", "From the first to the last asking; missing unless two ranks tell their times."),
        _whole("late_ns", "From the last but one to the last: how long all others waited for that one."),
        _whole("last_completed_ns", "When the last rank was seen to have completed it."),
    ),
    indexes=(("group_id", "sequence"),),
)

MESSAGES = Table(
    "messages",
    "One message from one rank to another each, and the entries that are its two ends.",
    ("id",),
    (
        _id("Its number in this database."),
        _key("group_id", "groups.id", "The group."),
        _link("source_rank", "ranks.rank", "Who sends it."),
        _link("target_rank", "ranks.rank", "Who receives it."),
        _link("send_entry_id", "entries.id", "The sending; missing where no dump has it."),
        _link("receive_entry_id", "entries.id", "The receiving; missing where no dump has it."),
    ),
)

TRACEBACKS = Table(
    "tracebacks",
    "Python stacks, each once however many entries have it.",
    ("id",),
    (
        _id("Its number in this database."),
        _text("text", "The whole stack as Python prints it, the innermost call last."),
        _text("name", "The function that called into torch: the innermost frame outside of it."),
        _text("filename", "Where that is."),
        _whole("line", "And the line there."),
    ),
)

FRAMES = Table(
    "frames",
    "The frames of tracebacks.",
    ("traceback_id", "depth"),
    (
        _key("traceback_id", "tracebacks.id", "The traceback."),
        Column("depth", Type.INTEGER, "0 is the innermost.", always=True),
        _text("name", "The function."),
        _text("filename", "Its file."),
        _whole("line", "The line in it."),
    ),
)

ENTRIES = Table(
    "entries",
    "One row for each entry of each rank: what a rank asked for, and what became of it.",
    ("id",),
    (
        _id("Its number in this database."),
        _key("rank", "ranks.rank", "Who recorded it."),
        _whole("place", "Its place in the dump, from 0; with `ranks.overwritten` added, its `record_id`."),
        _link("group_id", "groups.id", "The group; missing where the dumps do not tell which one it is."),
        _link("collective_id", "collectives.id", "The collective; missing for messages."),
        _link("message_id", "messages.id", "The message of which it is one end; missing for collectives."),
        _whole("sequence", "The number within the group: of messages for messages, else of collectives."),
        _flag("point_to_point", "Whether it is a message, or part of a batch of them."),
        _text("operation", "As recorded: `nccl:all_reduce`, `nccl:send 1->2`."),
        _text("operation_kind", "The same by one name whatever the backend calls it: `all_reduce`, `send`."),
        _link("source_rank", "ranks.rank", "Who sends it, if it is a message."),
        _link("target_rank", "ranks.rank", "Who receives it, if it is a message."),
        _text("input_sizes", "The sizes of the tensors that go in, as JSON: `[[64,16]]`."),
        _text("output_sizes", "The sizes of those that come out."),
        _text("input_types", 'The types of those that go in, as JSON: `["Float"]`.'),
        _text("output_types", "The types of those that come out."),
        _whole("input_elements", "How many numbers go in, over all tensors."),
        _whole("output_elements", "How many come out."),
        _whole("input_bytes", "How many bytes go in; missing where a type is not known."),
        _whole("output_bytes", "How many come out."),
        _text(
            "state",
            "As the recorder has it: `scheduled`, `started` or `completed`. gloo says only the first.",
        ),
        _flag("retired", "Whether it has left the list of work: on gloo so after a timeout, too."),
        _text(
            "outcome",
            "What follows from both, for a part of a batch from what closes it: `finished`, `retired` (the "
            "backend says no more), `dropped` (left the list of work unfinished: it timed out or failed) or `open`.",
        ),
        _whole("created_ns", "When the rank asked for it: Unix time in ns by the rank's own clock."),
        _whole("started_ns", "When a watchdog saw it started: late by design."),
        _whole("completed_ns", "When a watchdog saw it completed: late by design."),
        Column("duration_ms", Type.REAL, "How long it took on the device, where timing was enabled."),
        _whole("timeout_ms", "After how long it is given up."),
        _link("traceback_id", "tracebacks.id", "The Python stack that asked for it."),
    ),
    indexes=(("collective_id", "rank"), ("rank", "place"), ("traceback_id",)),
)

PROBLEMS = Table(
    "problems",
    "What is wrong; empty if nothing is.",
    ("id",),
    (
        _id("1 is the worst."),
        _text("kind", "`never_joined`, `lagging`, `skipped`, `operation_mismatch`, ... as in `--json`."),
        _link("group_id", "groups.id", "The group in which it shows."),
        _link(
            "collective_id", "collectives.id", "The collective in which it shows first; missing for messages."
        ),
        _whole("sequence", "Its number, or that of the message."),
        _text("operation", "What most ranks do there, as recorded."),
        _text("message", "The problem in words."),
        _text("advice", "What to look at next."),
        _flag("proven", "Whether the culprits are known by their own dumps, not only by those of others."),
        _flag("tie", "Whether the culprits differ and nothing tells which of them is wrong."),
        _whole("collectives", "How many collectives show it."),
        _whole("waited_ns", "How long those who wait have waited at least."),
    ),
)

PROBLEM_RANKS = Table(
    "problem_ranks",
    "Who causes a problem, and who waits because of it.",
    ("problem_id", "rank", "role"),
    (
        _key("problem_id", "problems.id", "The problem."),
        _key("rank", "ranks.rank", "The rank."),
        Column("role", Type.TEXT, "`culprit` or `waiting`.", always=True),
        _link("entry_id", "entries.id", "The entry of this rank that shows the problem best."),
    ),
)

LATENESS = Table(
    "lateness",
    "Who came last to collectives.",
    ("rank",),
    (
        Column("rank", Type.INTEGER, "The rank.", "ranks.rank", always=True),
        _whole("came_last", "To how many collectives it came last."),
        _whole("collectives", "Of how many whose times are known."),
        _whole("total_ns", "For how long all others together have waited for it, in all."),
        _whole("worst_ns", "And at the most at once."),
        _link("worst_collective_id", "collectives.id", "In this collective."),
    ),
)

FINDINGS = Table(
    "findings",
    "What did not fit while reading and diagnosing.",
    (),
    (
        _text("severity", "`error`, `warning` or `info`."),
        _text("reason", "What kind of thing it is."),
        _text("message", "The same in words."),
        _whole("count", "How often."),
        _text("source", "In which input."),
        _text("example", "One of them."),
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
