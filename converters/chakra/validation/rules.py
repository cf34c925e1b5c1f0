"""The table of rules, and the verdict on files: violations, warnings and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, StrEnum
from itertools import islice
from typing import Annotated, Literal, Self

from msgspec import Meta, Struct

from tracelink._model.fields import PATH, Bytes, Count, Doc, Positive, RankNumber, Row, Shown, Text, Unit
from tracelink._model.results import Result
from tracelink.converters.chakra.schema import Variant


class Level(Enum):
    """The severity of a broken rule."""

    VIOLATION = "violation"
    SIMULATOR = "simulator"
    """Only ASTRA-sim fails: a warning if the files are checked for other consumers."""
    WARNING = "warning"
    """The files are still valid."""


_COPY_AGAIN = "Copy or write the file again."
_FIX_WRITER = "Fix the program that writes the file."
_SIMULATED = "tracelink merge --to chakra --variant astra-sim writes only what it can run."


class Rule(StrEnum):
    """The rules in the order in which they are reported: name, invariants, what goes wrong, what to do, and level."""

    _value_: str
    ids: str
    """The invariants of consumers that it checks, as numbered in docs/validate.md."""
    breaks: str
    """The consequence in a consumer."""
    advice: str
    level: Level

    def __new__(cls, name: str, ids: str, breaks: str, advice: str, level: Level = Level.VIOLATION) -> Self:
        """A rule whose value is its name."""
        rule = str.__new__(cls, name)
        rule._value_ = name
        rule.ids, rule.breaks, rule.advice, rule.level = ids, breaks, advice, level
        return rule

    # fmt: off
    UNREADABLE = "unreadable", "X1", "the file cannot be read", "Check permissions and the disk."
    COMPRESSED = "compressed", "M17", "ASTRA-sim reads compressed bytes as nodes", "Unpack it with gunzip."
    NOT_CHAKRA = ("not_chakra", "M1", "the file contains no nodes",
        "Name .et files; tracelink merge --to chakra writes them.")
    NO_METADATA = "no_metadata", "M1", "readers parse the first node as metadata", _COPY_AGAIN
    BROKEN_MESSAGE = ("broken_message", "M2, S6", "ASTRA-sim silently runs the nodes before it; other readers fail",
        _COPY_AGAIN)
    EMPTY_MESSAGE = "empty_message", "M2, M3", "Python readers stop at it; ASTRA-sim reads one more node", _FIX_WRITER
    UNREADABLE_NODE = "unreadable_node", "M2", "the node is lost, and nodes that depend on it never run", _COPY_AGAIN
    NODE_COUNT = ("node_count", "M2", "the file was truncated between two nodes, or concatenated from two files",
        _COPY_AGAIN)
    NO_ROOT = "no_root", "M1", "a simulator has no node to start with", _FIX_WRITER
    DUPLICATE_ID = "duplicate_id", "M4", "ASTRA-sim merges the nodes; the older feeder crashes", _FIX_WRITER
    NO_NAME = "no_name", "M3, S3", "statistics and timelines identify nodes by name", "Name the nodes."
    NODE_TYPE = ("node_type", "M3, M8", "ASTRA-sim aborts at metadata nodes and stalls behind nodes without a type",
        "Remove these nodes, or give them a type from 2 to 7.")
    ABSURD_TIME = "absurd_time", "S1", "readers that use signed integers see a negative time", _FIX_WRITER
    MISSING_DEPENDENCY = ("missing_dependency", "M5", "ASTRA-sim aborts; the older feeder deadlocks",
        "Remove these ids, or add their nodes.")
    SELF_DEPENDENCY = "self_dependency", "M6", "the node never runs", "Remove the node's own id."
    DUPLICATE_DEPENDENCY = "duplicate_dependency", "M7", "the older feeder deadlocks", "List each id once."
    CYCLE = ("cycle", "M6", "ASTRA-sim skips these nodes and all nodes after them, and exits with code 0",
        "Remove one dependency.")
    BACKWARD_TIME = ("backward_time", "beyond", "replayed in time order, it would run before its dependency",
        _FIX_WRITER)
    ATTRIBUTE_KIND = ("attribute_kind", "M10, M16", "feeders read another field of the value, and get 0 or nothing",
        "Use the kind that the message names.")
    ATTRIBUTE_TWICE = ("attribute_twice", "beyond", "one feeder uses the first value, the other the last",
        "Write it once.")
    HOST_COMMUNICATION = ("host_communication", "M9", "ASTRA-sim runs it on the CPU and sends nothing",
        "Set is_cpu_op to false.")
    INCOMPLETE_COLLECTIVE = "incomplete_collective", "M10", "ASTRA-sim aborts", "Write comm_type and comm_size."
    UNKNOWN_COLLECTIVE = "unknown_collective", "M11", "no reader knows this number", "Use a type from 0 to 9."
    UNSIMULATED_COLLECTIVE = ("unsimulated_collective", "M11",
        "ASTRA-sim throws an exception: it runs only ALL_REDUCE, ALL_GATHER, BROADCAST, ALL_TO_ALL"
        " and REDUCE_SCATTER",
        "tracelink merge --to chakra --variant astra-sim writes types that it can run.", Level.SIMULATOR)
    NEGATIVE_SIZE = "negative_size", "M10, M13", "a negative size is read as exabytes", _FIX_WRITER
    GROUP_NAME = ("group_name", "M12", "ASTRA-sim aborts: it identifies groups by number",
        "Number the groups; 0 is all ranks.")
    UNKNOWN_GROUP = ("unknown_group", "M12", "ASTRA-sim fails",
        "Put PREFIX.groups.json next to the files, or name it with --groups.")
    FOREIGN_GROUP = "foreign_group", "M12", "the group never completes", "Fix the members or the group."
    INCOMPLETE_MESSAGE = ("incomplete_message", "M13", "ASTRA-sim throws an exception",
        "Write the peer, comm_tag and comm_size.")
    FOREIGN_MESSAGE = ("foreign_message", "M13", "it is sent or received as another rank",
        "Write the rank of the file, or leave it out.")
    UNKNOWN_PEER = "unknown_peer", "M13", "the peer is not an NPU of the job", _FIX_WRITER
    LONE_COLLECTIVE = ("lone_collective", "seen", "ASTRA-sim never finishes a collective of one rank", _SIMULATED,
        Level.SIMULATOR)
    SMALL_GATHER = ("small_gather", "seen",
        "ASTRA-sim never finishes an ALL_GATHER of 0 bytes, and loops endlessly at fewer bytes than splits (4)",
        _SIMULATED, Level.SIMULATOR)
    NO_BYTES = "no_bytes", "seen", "ASTRA-sim aborts at a message of 0 bytes", _SIMULATED, Level.SIMULATOR
    NEGATIVE_TAG = ("negative_tag", "seen", "ASTRA-sim aborts at a negative tag", "Use tags of 0 and above.",
        Level.SIMULATOR)
    OWN_MESSAGE = ("own_message", "seen", "ASTRA-sim aborts at a message of a rank to itself", _SIMULATED,
        Level.SIMULATOR)
    ENDS_IN_MESSAGE = ("ends_in_message", "seen",
        "ASTRA-sim aborts when such a rank ends: its statistics fail at host nodes, and a message is not guarded",
        "tracelink merge --to chakra --variant astra-sim leaves host nodes out.", Level.SIMULATOR)
    INCOMPLETE_MEMORY = "incomplete_memory", "M14", "ASTRA-sim throws an exception", "Write tensor_size."
    ROOFLINE = ("roofline", "M15", "the roofline model divides by 0",
        "Write num_ops and tensor_size above 0, or neither.")
    TENSOR_LISTS = ("tensor_lists", "M15", "track-local-mem reads pairs of strings",
        "Write them as a string_list of even length.")
    INVOLVED_DIMENSIONS = "involved_dimensions", "M16", "ASTRA-sim throws an exception", "Write it as a bool_list."
    BAD_GROUPS = ("bad_groups", "M12", "ASTRA-sim cannot load the groups",
        'Write {"1": [0, 1], …}: group numbers above 0, each with its ranks.')
    IGNORED_GROUPS = ("ignored_groups", "seen", "ASTRA-sim reads no groups file whose path contains the word empty",
        "Rename the file.", Level.SIMULATOR)
    MISSING_RANK = ("missing_rank", "X1", "ASTRA-sim needs one file for each NPU",
        "Add the file, or write all ranks again.")
    DUPLICATE_RANK = "duplicate_rank", "X1", "only one of the files is run", "Keep one."
    RANK_MISMATCH = "rank_mismatch", "X1", "the trace runs as another rank", "Rename the file."
    COLLECTIVE_MISSING = ("collective_missing", "X2", "the other ranks deadlock, and ASTRA-sim exits with code 0",
        _FIX_WRITER)
    COLLECTIVE_DIFFERS = ("collective_differs", "X2", "the ranks run different collectives, and some never complete",
        _FIX_WRITER)
    UNMATCHED_MESSAGE = "unmatched_message", "X3", "the receiver deadlocks", "Give both ends the same tag and size."
    MISCOUNTED = ("miscounted", "seen",
        "ASTRA-sim numbers the collectives of all ranks together with those of groups, and does not match them",
        "Give the group of all ranks a number in the groups file, and write it as pg_name.", Level.SIMULATOR)
    DEADLOCK = ("deadlock", "seen", "the ranks wait for each other: ASTRA-sim ends with code 0 before they finish",
        "Order the communication of all ranks in one way with data_deps, and send before you receive;"
        " tracelink merge --to chakra --variant astra-sim does.")
    RANK_LEFT_OUT = ("rank_left_out", "X1", "ASTRA-sim needs one file for each NPU of the job",
        "Merge the traces of all ranks.", Level.SIMULATOR)
    RACE = ("race", "seen",
        "durations decide which of the two runs first, and ranks that decide differently deadlock",
        "Order the two nodes with data_deps.", Level.WARNING)
    FILE_NAME = "file_name", "X1", "ASTRA-sim opens PREFIX.0.et, PREFIX.1.et, …", "Rename the file.", Level.WARNING
    NO_NODE_COUNT = ("no_node_count", "M2", "a file that was truncated between two nodes looks complete",
        "Write the number of nodes as the metadata attribute nodes.", Level.WARNING)
    NO_VERSION = ("no_version", "S4", "readers do not know which version they read", "Write the version.",
        Level.WARNING)
    NO_DURATION = "no_duration", "S1", "it runs for 1 ns", "Round shorter durations up to 1 µs.", Level.WARNING
    NO_HOST_MARK = "no_host_mark", "S2", "readers guess where it ran", "Write is_cpu_op.", Level.WARNING
    COMMA_IN_NAME = ("comma_in_name", "S3", "the timeline tool splits names at commas", "Use another character.",
        Level.WARNING)
    HOST_NODES = ("host_nodes", "S5", "ASTRA-sim's main branch prints no statistics",
        "tracelink merge --to chakra --variant astra-sim leaves them out.", Level.WARNING)
    NOT_COMPARED = ("not_compared", "X2, X3", "its communication with other ranks was not checked",
        "Fix the file and validate again.", Level.WARNING)
    # fmt: on


class Violation(Row, frozen=True):
    """One place where a rule is broken."""

    rule: Annotated[Rule, Shown(hidden=True)]
    rank: Annotated[RankNumber | None, Doc("Null if it is about all ranks.")]
    node: Annotated[
        Annotated[int, Unit.NAME, Meta(ge=0)] | None,
        Doc("Id of the node; null if it is about a file or several ranks."),
    ]
    message: Annotated[Text, Shown(longest=PATH)]
    file: Annotated[str, Doc("Empty if it is about a missing file."), Shown(longest=PATH)] = ""


class CheckedFile(Row, frozen=True):
    """A file that was checked."""

    path: Annotated[str, Shown(longest=PATH)]
    rank: RankNumber
    nodes: Count
    variant: Variant
    bytes: Annotated[Bytes, Shown("size")]


class BrokenRule(Row, frozen=True):
    """A rule that is broken, and how often."""

    rule: Rule
    severity: Literal["violation", "warning"]
    count: Annotated[Positive, Doc("Number of violations, listed or not.")]
    invariants: Annotated[
        Sequence[str], Doc("What it checks: M within a file, X across ranks, S recommended.")
    ]
    breaks: Annotated[str, Doc("What goes wrong in a consumer.")]
    advice: str


class Broken(Struct, frozen=True):
    """A rule that a rank breaks: the number of violations, and the first of them."""

    rule: Rule
    warns: bool
    count: int
    listed: Sequence[Violation]

    @classmethod
    def of(
        cls, rule: Rule, count: int, violations: Iterable[Violation], limit: int | None, *, lenient: bool
    ) -> Self:
        """A rule with the first `limit` of its violations; the others are counted but not made."""
        warns = rule.level is Level.WARNING or (lenient and rule.level is Level.SIMULATOR)
        return cls(rule, warns, count, list(islice(violations, limit)))


class Validation(Result, frozen=True):
    """The verdict on files: everything found, sorted by rule and then by rank."""

    valid: Annotated[
        bool, Doc("Whether every consumer can load the files: there is no violation; warnings do not count.")
    ]
    files: Sequence[CheckedFile]
    violations: Annotated[Sequence[Violation], Doc("The first ones of each rule and rank.")]
    warnings: Sequence[Violation]
    rules: Annotated[Sequence[BrokenRule], Doc("Each rule that is broken.")]

    drawn_by = "tracelink.converters.chakra.validation.validate"

    @classmethod
    def of(cls, files: Sequence[CheckedFile], broken: Iterable[Broken]) -> Validation:
        """The verdict from the rules that files break, each by itself and all of them together."""
        order = list(Rule)
        ordered = sorted(broken, key=lambda rule: order.index(rule.rule))
        violated = [rule for rule in ordered if not rule.warns]
        warned = [rule for rule in ordered if rule.warns]
        rules = [*_broken_rules(violated, "violation"), *_broken_rules(warned, "warning")]
        violations = _listed(violated)
        return cls(not violations, files, violations, _listed(warned), rules)

    @property
    def counts(self) -> dict[Rule, int]:
        """The number of violations of each rule, listed or not."""
        return {rule.rule: rule.count for rule in self.rules if rule.severity == "violation"}

    @property
    def warning_counts(self) -> dict[Rule, int]:
        """The number of warnings of each rule, listed or not."""
        return {rule.rule: rule.count for rule in self.rules if rule.severity == "warning"}

    @property
    def nodes(self) -> int:
        """The number of nodes in all files."""
        return sum(file.nodes for file in self.files)


def _listed(broken: Sequence[Broken]) -> list[Violation]:
    return [violation for rule in broken for violation in rule.listed]


def _broken_rules(
    broken: Sequence[Broken], severity: Literal["violation", "warning"]
) -> Iterator[BrokenRule]:
    counts = Counter[Rule]()
    for rule in broken:
        counts[rule.rule] += rule.count
    for name, count in counts.items():
        yield BrokenRule(name, severity, count, name.ids.split(", "), name.breaks, name.advice)
