"""The tables of the database: rows of a diagnosis with keys, and what only the database has, with descriptions."""

from __future__ import annotations

from typing import Annotated

from tracelink._hang.facts.model import Lateness, Problem, Role, Stage
from tracelink._model.fields import Count, Doc, Nanoseconds, RankNumber, Row, UnixNanoseconds
from tracelink._model.findings import Finding
from tracelink._model.records import Created, Retired, SequenceNumber
from tracelink._store.schema import KEY, StoredRow, declared

VERSION = 3
"""Version of the tables: it increases if a column changes its name or its meaning."""

Identifier = Annotated[int, KEY, Doc("Identifier in this database.")]
Text = str | None


class RankRow(StoredRow, frozen=True):
    """Every rank that has a dump or is named elsewhere."""

    table = "ranks"

    rank: Annotated[RankNumber, KEY, Doc("The rank in the job.")]
    dump: Annotated[Text, Doc("`complete`, `truncated` (used up to there), `unreadable` or `missing`.")]
    reason: Annotated[Text, Doc("Why the dump is unreadable or truncated.")]
    path: Annotated[Text, Doc("The file or archive member of the dump.")]
    version: Annotated[Text, Doc("Version of the dump's format.")]
    entries: Annotated[Count, Doc("Number of its entries in `entries`.")]
    overwritten: Annotated[Count | None, Doc("Number of older entries that the ring buffer had overwritten.")]


class GroupRow(StoredRow, frozen=True):
    """Process groups."""

    table = "groups"

    id: Identifier
    name: Annotated[str, Doc("Its name in the dumps: `0`.")]
    description: Annotated[str, Doc("Its description: `default_pg`, `tp`.")]
    size: Annotated[Count | None, Doc("Number of ranks, if known.")]


class MemberRow(StoredRow, frozen=True):
    """The ranks of each group, and how far each of them got there."""

    table = "members"

    group_id: Annotated[int, KEY, Doc("The group.")]
    rank: Annotated[RankNumber, KEY, Doc("The rank in the job.")]
    position: Annotated[Count | None, Doc("Its rank within the group.")]
    stage: Annotated[
        Stage | None,
        Doc(
            "How far it got: `never_joined` a collective, `waiting` in its last one, `ending`: the same, and others "
            "have finished it, `finished` its last one and did not join the next, or `unknown`: its dump is missing "
            "or does not show it."
        ),
    ]
    sequence: Annotated[SequenceNumber, Doc("Of the last collective that it is known to have joined.")]


class CollectiveRow(StoredRow, frozen=True):
    """Collectives: the calls of all ranks of a group with the same sequence number."""

    table = "collectives"
    indexes = (("group_id", "sequence"),)

    id: Identifier
    group_id: Annotated[int, Doc("The group.")]
    sequence: Annotated[int, Doc("Its sequence number within the group.")]
    operation: Annotated[str, Doc("The operation of most ranks, as recorded: `nccl:all_reduce`.")]
    operation_kind: Annotated[
        str, Doc("The same with a name that does not depend on the backend: `all_reduce`.")
    ]
    expected_ranks: Annotated[Count | None, Doc("Number of ranks of the group.")]
    joined_ranks: Annotated[Count, Doc("Number of ranks with an entry.")]
    open_ranks: Annotated[Count, Doc("Number of these that have not finished it.")]
    first_created_ns: Annotated[UnixNanoseconds | None, Doc("When the first rank joined it.")]
    last_created_ns: Annotated[UnixNanoseconds | None, Doc("When the last rank joined it.")]
    last_rank: Annotated[int | None, Doc("The last rank to join it.")]
    skew_ns: Annotated[
        Nanoseconds | None,
        Doc("Time from the first to the last rank; missing unless at least two times are known."),
    ]
    late_ns: Annotated[
        Nanoseconds | None,
        Doc("Time from the last but one to the last rank: how long all others waited for it."),
    ]
    last_completed_ns: Annotated[UnixNanoseconds | None, Doc("When the last recorder saw it completed.")]


class MessageRow(StoredRow, frozen=True):
    """Messages from one rank to another, and the entries at both ends."""

    table = "messages"

    id: Identifier
    group_id: Annotated[int, Doc("The group.")]
    source_rank: Annotated[int | None, Doc("The rank that sends it.")]
    target_rank: Annotated[int | None, Doc("The rank that receives it.")]
    send_entry_id: Annotated[int | None, Doc("The send; missing if no dump contains it.")]
    receive_entry_id: Annotated[int | None, Doc("The receive; missing if no dump contains it.")]


class EntryRow(StoredRow, frozen=True):
    """All entries of all ranks: what a rank requested, and its outcome."""

    table = "entries"
    indexes = (("collective_id", "rank"), ("rank", "place"), ("traceback_id",))

    id: Identifier
    rank: Annotated[RankNumber, Doc("The rank that recorded it.")]
    place: Annotated[
        Count, Doc("Its index in the dump, from 0; `record_id` is this plus `ranks.overwritten`.")
    ]
    group_id: Annotated[int | None, Doc("The group; missing if unknown.")]
    collective_id: Annotated[int | None, Doc("The collective; missing for messages.")]
    message_id: Annotated[int | None, Doc("The message that it is one end of; missing for collectives.")]
    sequence: SequenceNumber
    point_to_point: Annotated[bool, Doc("Whether it is a message, or part of a batch of messages.")]
    operation: Annotated[str, Doc("As recorded: `nccl:all_reduce`, `nccl:send 1->2`.")]
    operation_kind: Annotated[
        str, Doc("The same with a name that does not depend on the backend: `all_reduce`, `send`.")
    ]
    source_rank: Annotated[int | None, Doc("The sending rank of a message.")]
    target_rank: Annotated[int | None, Doc("The receiving rank of a message.")]
    input_sizes: Annotated[Text, Doc("Sizes of input tensors, as JSON: `[[64,16]]`.")]
    input_types: Annotated[Text, Doc('Dtypes of input tensors, as JSON: `["Float"]`.')]
    input_elements: Annotated[Count | None, Doc("Number of elements of all input tensors.")]
    input_bytes: Annotated[Count | None, Doc("Bytes of all input tensors; missing if a dtype is unknown.")]
    output_sizes: Annotated[Text, Doc("Sizes of output tensors.")]
    output_types: Annotated[Text, Doc("Dtypes of output tensors.")]
    output_elements: Annotated[Count | None, Doc("Number of elements of all output tensors.")]
    output_bytes: Annotated[Count | None, Doc("Bytes of all output tensors.")]
    state: Annotated[
        Text, Doc("As recorded: `scheduled`, `started` or `completed`. gloo records only the first.")
    ]
    retired: Retired
    outcome: Annotated[
        str,
        Doc(
            "Derived from both; for a part of a batch from the entry that closes it: `finished`, `retired` (the "
            "backend reports no more), `dropped` (retired unfinished: it timed out or failed) or `open`."
        ),
    ]
    created_ns: Created
    started_ns: Annotated[
        UnixNanoseconds | None, Doc("When a watchdog saw it started; late, because it polls.")
    ]
    completed_ns: Annotated[
        UnixNanoseconds | None, Doc("When a watchdog saw it completed; late, because it polls.")
    ]
    duration_ms: Annotated[float | None, Doc("Duration on the device, if timing was enabled.")]
    timeout_ms: Annotated[int | None, Doc("Its timeout.")]
    traceback_id: Annotated[int | None, Doc("The Python stack of the call.")]


class TracebackRow(StoredRow, frozen=True):
    """Python stacks; equal stacks are stored once."""

    table = "tracebacks"

    id: Identifier
    text: Annotated[str, Doc("The complete stack as Python prints it, innermost call last.")]
    name: Annotated[str, Doc("The function that called torch: the innermost frame outside of torch.")]
    filename: Annotated[str, Doc("The file of this function.")]
    line: Annotated[int | None, Doc("The line of the call.")]


class FrameRow(StoredRow, frozen=True):
    """The frames of tracebacks."""

    table = "frames"

    traceback_id: Annotated[int, KEY, Doc("The traceback.")]
    depth: Annotated[int, KEY, Doc("0 for the innermost frame.")]
    name: Annotated[str, Doc("The function.")]
    filename: Annotated[str, Doc("Its file.")]
    line: Annotated[int | None, Doc("The line in it.")]


class ProblemRow(Problem, StoredRow, frozen=True, kw_only=True):
    """The problems; empty if there are none."""

    table = "problems"
    elsewhere = ("group", "description")

    id: Annotated[int, KEY, Doc("1 for the worst problem.")]
    group_id: Annotated[int | None, Doc("The group that shows it.")]


class ProblemRankRow(StoredRow, frozen=True):
    """The ranks that cause a problem, and those that wait because of it."""

    table = "problem_ranks"

    problem_id: Annotated[int, KEY, Doc("The problem.")]
    rank: Annotated[RankNumber, KEY, Doc("The rank.")]
    role: Annotated[Role, KEY, Doc("`culprit` or `waiting`.")]
    entry_id: Annotated[int | None, Doc("The entry of this rank that shows the problem best.")]


class LatenessRow(Lateness, StoredRow, frozen=True, kw_only=True):
    """Ranks that arrived last at collectives."""

    table = "lateness"
    elsewhere = ("group",)

    group_id: Annotated[int | None, Doc("The group of the longest wait.")]


class FindingRow(Finding, StoredRow, frozen=True):
    """Findings of reading and diagnosing."""

    table = "findings"


ROWS: tuple[type[Row], ...] = (
    RankRow, GroupRow, MemberRow, CollectiveRow, MessageRow, EntryRow, TracebackRow, FrameRow, ProblemRow,
    ProblemRankRow, LatenessRow, FindingRow,
)  # fmt: skip
REFERENCES = {
    "rank": "ranks.rank",
    "entry_id": "entries.id",
    **{f"{one}_id": f"{one}s.id" for one in ("group", "collective", "message", "traceback", "problem")},
}
"""What columns with such a name refer to, or one that ends so: `last_rank`."""
TABLES = {table.name: table for table in (declared(kind, REFERENCES) for kind in ROWS)}
