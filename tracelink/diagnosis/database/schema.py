"""The tables and columns of the database, with their descriptions."""

from __future__ import annotations

from typing import Annotated

from msgspec.structs import replace

from tracelink.model.fields import Doc
from tracelink.model.findings import Finding
from tracelink.store.schema import KEY, References, StoredRow, Table, columns_of, declared

VERSION = 1
"""Version of the tables: it increases if a column changes its name or its meaning."""

Number = int | None
Words = str | None
Flag = bool | None
"""Any value may be missing unless its column is declared otherwise."""

Identifier = Annotated[int, KEY, Doc("Identifier in this database.")]
RANK, GROUP, COLLECTIVE, ENTRY = map(References, ("ranks.rank", "groups.id", "collectives.id", "entries.id"))


class RankRow(StoredRow, frozen=True):
    """Every rank that has a dump or is named elsewhere."""

    table = "ranks"

    rank: Annotated[int, KEY, Doc("The rank in the job.")]
    dump: Annotated[Words, Doc("`complete`, `truncated` (used up to there), `unreadable` or `missing`.")]
    reason: Annotated[Words, Doc("Why the dump is unreadable or truncated.")]
    path: Annotated[Words, Doc("The file or archive member of the dump.")]
    version: Annotated[Words, Doc("Version of the dump's format.")]
    entries: Annotated[Number, Doc("Number of its entries in `entries`.")]
    overwritten: Annotated[Number, Doc("Number of older entries that the ring buffer had overwritten.")]


class GroupRow(StoredRow, frozen=True):
    """Process groups."""

    table = "groups"

    id: Identifier
    name: Annotated[Words, Doc("Its name in the dumps: `0`.")]
    description: Annotated[Words, Doc("Its description: `default_pg`, `tp`.")]
    size: Annotated[Number, Doc("Number of ranks, if known.")]


class MemberRow(StoredRow, frozen=True):
    """The ranks of each group, and how far each of them got there."""

    table = "members"

    group_id: Annotated[int, KEY, GROUP, Doc("The group.")]
    rank: Annotated[int, KEY, RANK, Doc("The rank in the job.")]
    position: Annotated[Number, Doc("Its rank within the group.")]
    stage: Annotated[
        Words,
        Doc(
            "How far it got: `never_joined` a collective, `waiting` in its last one, `finished` its last one and "
            "did not join the next, or `unknown`: its dump is missing or does not show it."
        ),
    ]
    sequence: Annotated[
        Number, Doc("Sequence number of the last collective that it is known to have joined.")
    ]
    collective_id: Annotated[Number, COLLECTIVE, Doc("This collective.")]


class CollectiveRow(StoredRow, frozen=True):
    """Collectives: the calls of all ranks of a group with the same sequence number."""

    table = "collectives"
    indexes = (("group_id", "sequence"),)

    id: Identifier
    group_id: Annotated[int, GROUP, Doc("The group.")]
    sequence: Annotated[Number, Doc("Its sequence number within the group.")]
    operation: Annotated[Words, Doc("The operation of most ranks, as recorded: `nccl:all_reduce`.")]
    operation_kind: Annotated[
        Words, Doc("The same with a name that does not depend on the backend: `all_reduce`.")
    ]
    expected_ranks: Annotated[Number, Doc("Number of ranks of the group.")]
    joined_ranks: Annotated[Number, Doc("Number of ranks with an entry.")]
    open_ranks: Annotated[Number, Doc("Number of these that have not finished it.")]
    first_created_ns: Annotated[Number, Doc("When the first rank joined it.")]
    last_created_ns: Annotated[Number, Doc("When the last rank joined it.")]
    last_rank: Annotated[Number, RANK, Doc("The last rank to join it.")]
    skew_ns: Annotated[
        Number, Doc("Time from the first to the last rank; missing unless at least two times are known.")
    ]
    late_ns: Annotated[
        Number, Doc("Time from the last but one to the last rank: how long all others waited for it.")
    ]
    last_completed_ns: Annotated[Number, Doc("When the last recorder saw it completed.")]


class MessageRow(StoredRow, frozen=True):
    """Messages from one rank to another, and the entries at both ends."""

    table = "messages"

    id: Identifier
    group_id: Annotated[int, GROUP, Doc("The group.")]
    source_rank: Annotated[Number, RANK, Doc("The rank that sends it.")]
    target_rank: Annotated[Number, RANK, Doc("The rank that receives it.")]
    send_entry_id: Annotated[Number, ENTRY, Doc("The send; missing if no dump contains it.")]
    receive_entry_id: Annotated[Number, ENTRY, Doc("The receive; missing if no dump contains it.")]


class EntryRow(StoredRow, frozen=True):
    """All entries of all ranks: what a rank requested, and its outcome."""

    table = "entries"
    indexes = (("collective_id", "rank"), ("rank", "place"), ("traceback_id",))

    id: Identifier
    rank: Annotated[int, RANK, Doc("The rank that recorded it.")]
    place: Annotated[
        Number, Doc("Its index in the dump, from 0; `record_id` is this plus `ranks.overwritten`.")
    ]
    group_id: Annotated[Number, GROUP, Doc("The group; missing if unknown.")]
    collective_id: Annotated[Number, COLLECTIVE, Doc("The collective; missing for messages.")]
    message_id: Annotated[
        Number, References("messages.id"), Doc("The message that it is one end of; missing for collectives.")
    ]
    sequence: Annotated[
        Number, Doc("The sequence number within the group; messages and collectives are numbered separately.")
    ]
    point_to_point: Annotated[Flag, Doc("Whether it is a message, or part of a batch of messages.")]
    operation: Annotated[Words, Doc("As recorded: `nccl:all_reduce`, `nccl:send 1->2`.")]
    operation_kind: Annotated[
        Words, Doc("The same with a name that does not depend on the backend: `all_reduce`, `send`.")
    ]
    source_rank: Annotated[Number, RANK, Doc("The sending rank of a message.")]
    target_rank: Annotated[Number, RANK, Doc("The receiving rank of a message.")]
    input_sizes: Annotated[Words, Doc("Sizes of input tensors, as JSON: `[[64,16]]`.")]
    output_sizes: Annotated[Words, Doc("Sizes of output tensors.")]
    input_types: Annotated[Words, Doc('Dtypes of input tensors, as JSON: `["Float"]`.')]
    output_types: Annotated[Words, Doc("Dtypes of output tensors.")]
    input_elements: Annotated[Number, Doc("Number of elements of all input tensors.")]
    output_elements: Annotated[Number, Doc("Number of elements of all output tensors.")]
    input_bytes: Annotated[Number, Doc("Bytes of all input tensors; missing if a dtype is unknown.")]
    output_bytes: Annotated[Number, Doc("Bytes of all output tensors.")]
    state: Annotated[
        Words, Doc("As recorded: `scheduled`, `started` or `completed`. gloo records only the first.")
    ]
    retired: Annotated[Flag, Doc("Whether it has left the list of work; on gloo also after a timeout.")]
    outcome: Annotated[
        Words,
        Doc(
            "Derived from both; for a part of a batch from the entry that closes it: `finished`, `retired` (the "
            "backend reports no more), `dropped` (retired unfinished: it timed out or failed) or `open`."
        ),
    ]
    created_ns: Annotated[Number, Doc("When the rank called it: Unix time in ns by the rank's own clock.")]
    started_ns: Annotated[Number, Doc("When a watchdog saw it started; late, because it polls.")]
    completed_ns: Annotated[Number, Doc("When a watchdog saw it completed; late, because it polls.")]
    duration_ms: Annotated[float | None, Doc("Duration on the device, if timing was enabled.")]
    timeout_ms: Annotated[Number, Doc("Its timeout.")]
    traceback_id: Annotated[Number, References("tracebacks.id"), Doc("The Python stack of the call.")]


class TracebackRow(StoredRow, frozen=True):
    """Python stacks; equal stacks are stored once."""

    table = "tracebacks"

    id: Identifier
    text: Annotated[Words, Doc("The complete stack as Python prints it, innermost call last.")]
    name: Annotated[Words, Doc("The function that called torch: the innermost frame outside of torch.")]
    filename: Annotated[Words, Doc("The file of this function.")]
    line: Annotated[Number, Doc("The line of the call.")]


class FrameRow(StoredRow, frozen=True):
    """The frames of tracebacks."""

    table = "frames"

    traceback_id: Annotated[int, KEY, References("tracebacks.id"), Doc("The traceback.")]
    depth: Annotated[int, KEY, Doc("0 for the innermost frame.")]
    name: Annotated[Words, Doc("The function.")]
    filename: Annotated[Words, Doc("Its file.")]
    line: Annotated[Number, Doc("The line in it.")]


class ProblemRow(StoredRow, frozen=True):
    """The problems; empty if there are none."""

    table = "problems"

    id: Annotated[int, KEY, Doc("1 for the worst problem.")]
    kind: Annotated[
        Words, Doc("`never_joined`, `lagging`, `skipped`, `operation_mismatch`, ... as in `--json`.")
    ]
    group_id: Annotated[Number, GROUP, Doc("The group that shows it.")]
    collective_id: Annotated[
        Number, COLLECTIVE, Doc("The first collective that shows it; missing for messages.")
    ]
    sequence: Annotated[Number, Doc("The sequence number of this collective or message.")]
    operation: Annotated[Words, Doc("The operation of most ranks there, as recorded.")]
    message: Annotated[Words, Doc("A description for people.")]
    advice: Annotated[Words, Doc("What to look at next.")]
    proven: Annotated[
        Flag, Doc("Whether the culprits' own dumps show it, and not only those of other ranks.")
    ]
    tie: Annotated[Flag, Doc("Whether the culprits differ and it is unknown which of them is wrong.")]
    collectives: Annotated[Number, Doc("Number of collectives that show it.")]
    waited_ns: Annotated[Number, Doc("How long the waiting ranks have waited, at least.")]


class ProblemRankRow(StoredRow, frozen=True):
    """The ranks that cause a problem, and those that wait because of it."""

    table = "problem_ranks"

    problem_id: Annotated[int, KEY, References("problems.id"), Doc("The problem.")]
    rank: Annotated[int, KEY, RANK, Doc("The rank.")]
    role: Annotated[str, KEY, Doc("`culprit` or `waiting`.")]
    entry_id: Annotated[Number, ENTRY, Doc("The entry of this rank that shows the problem best.")]


class LatenessRow(StoredRow, frozen=True):
    """Ranks that arrived last at collectives."""

    table = "lateness"

    rank: Annotated[int, KEY, RANK, Doc("The rank.")]
    came_last: Annotated[Number, Doc("Number of collectives at which it arrived last.")]
    collectives: Annotated[Number, Doc("Number of its collectives with known times.")]
    total_ns: Annotated[Number, Doc("Total time for which it was the only missing rank.")]
    worst_ns: Annotated[Number, Doc("The longest of these times.")]
    worst_collective_id: Annotated[Number, COLLECTIVE, Doc("The collective with the longest time.")]


ROWS: tuple[type[StoredRow], ...] = (
    RankRow,
    GroupRow,
    MemberRow,
    CollectiveRow,
    MessageRow,
    EntryRow,
    TracebackRow,
    FrameRow,
    ProblemRow,
    ProblemRankRow,
    LatenessRow,
)
FINDINGS = Table(
    "findings",
    "Findings of reading and diagnosing.",
    tuple(replace(column, required=False) for column in columns_of(Finding)),
)
TABLES = {table.name: table for table in (*map(declared, ROWS), FINDINGS)}
