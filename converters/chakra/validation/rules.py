"""The catalogue of rules in words, and the verdict on files: violations, warnings and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Annotated, Literal

from msgspec import Meta, Struct

from tracelink._model.fields import PATH, Bytes, Count, Doc, Positive, RankNumber, Row, Shown, Text, Unit
from tracelink._model.results import Result
from tracelink.converters.chakra.schema import Variant


class Rule(StrEnum):
    """What can be wrong, in the order in which it is reported."""

    UNREADABLE = "unreadable"
    COMPRESSED = "compressed"
    NOT_CHAKRA = "not_chakra"
    NO_METADATA = "no_metadata"
    BROKEN_MESSAGE = "broken_message"
    EMPTY_MESSAGE = "empty_message"
    UNREADABLE_NODE = "unreadable_node"
    NODE_COUNT = "node_count"
    NO_ROOT = "no_root"
    DUPLICATE_ID = "duplicate_id"
    NO_NAME = "no_name"
    NODE_TYPE = "node_type"
    ABSURD_TIME = "absurd_time"
    MISSING_DEPENDENCY = "missing_dependency"
    SELF_DEPENDENCY = "self_dependency"
    DUPLICATE_DEPENDENCY = "duplicate_dependency"
    CYCLE = "cycle"
    BACKWARD_TIME = "backward_time"
    ATTRIBUTE_KIND = "attribute_kind"
    ATTRIBUTE_TWICE = "attribute_twice"
    HOST_COMMUNICATION = "host_communication"
    INCOMPLETE_COLLECTIVE = "incomplete_collective"
    UNKNOWN_COLLECTIVE = "unknown_collective"
    UNSIMULATED_COLLECTIVE = "unsimulated_collective"
    NEGATIVE_SIZE = "negative_size"
    GROUP_NAME = "group_name"
    UNKNOWN_GROUP = "unknown_group"
    FOREIGN_GROUP = "foreign_group"
    INCOMPLETE_MESSAGE = "incomplete_message"
    FOREIGN_MESSAGE = "foreign_message"
    UNKNOWN_PEER = "unknown_peer"
    LONE_COLLECTIVE = "lone_collective"
    SMALL_GATHER = "small_gather"
    NO_BYTES = "no_bytes"
    NEGATIVE_TAG = "negative_tag"
    OWN_MESSAGE = "own_message"
    ENDS_IN_MESSAGE = "ends_in_message"
    INCOMPLETE_MEMORY = "incomplete_memory"
    ROOFLINE = "roofline"
    TENSOR_LISTS = "tensor_lists"
    INVOLVED_DIMENSIONS = "involved_dimensions"
    BAD_GROUPS = "bad_groups"
    IGNORED_GROUPS = "ignored_groups"
    MISSING_RANK = "missing_rank"
    DUPLICATE_RANK = "duplicate_rank"
    RANK_MISMATCH = "rank_mismatch"
    COLLECTIVE_MISSING = "collective_missing"
    COLLECTIVE_DIFFERS = "collective_differs"
    UNMATCHED_MESSAGE = "unmatched_message"
    MISCOUNTED = "miscounted"
    DEADLOCK = "deadlock"
    RANK_LEFT_OUT = "rank_left_out"
    RACE = "race"
    FILE_NAME = "file_name"
    NO_NODE_COUNT = "no_node_count"
    NO_VERSION = "no_version"
    NO_DURATION = "no_duration"
    NO_HOST_MARK = "no_host_mark"
    COMMA_IN_NAME = "comma_in_name"
    HOST_NODES = "host_nodes"
    NOT_COMPARED = "not_compared"


class RuleText(Struct, frozen=True):
    """A rule in words."""

    ids: str
    """The invariants of consumers that it checks, as numbered in docs/validate.md."""
    breaks: str
    """What goes wrong in a consumer."""
    advice: str
    warns: bool = False
    """True if a file that breaks it is still valid."""


_COPY_AGAIN = "Copy or write the file again."
_FIX_WRITER = "Fix the program that writes the file."
_SIMULATED = "tracelink merge --to chakra --variant astra-sim writes only what it can run."

RULES: dict[Rule, RuleText] = {
    Rule.UNREADABLE: RuleText("X1", "the file cannot be read", "Check permissions and the disk."),
    Rule.COMPRESSED: RuleText("M17", "ASTRA-sim reads compressed bytes as nodes", "Unpack it with gunzip."),
    Rule.NOT_CHAKRA: RuleText(
        "M1", "the file contains no nodes", "Name .et files; tracelink merge --to chakra writes them."
    ),
    Rule.NO_METADATA: RuleText("M1", "readers parse the first node as metadata", _COPY_AGAIN),
    Rule.BROKEN_MESSAGE: RuleText(
        "M2, S6", "ASTRA-sim silently runs the nodes before it; other readers fail", _COPY_AGAIN
    ),
    Rule.EMPTY_MESSAGE: RuleText(
        "M2, M3", "Python readers stop at it; ASTRA-sim reads one more node", _FIX_WRITER
    ),
    Rule.UNREADABLE_NODE: RuleText(
        "M2", "the node is lost, and nodes that depend on it never run", _COPY_AGAIN
    ),
    Rule.NODE_COUNT: RuleText(
        "M2", "the file was truncated between two nodes, or concatenated from two files", _COPY_AGAIN
    ),
    Rule.NO_ROOT: RuleText("M1", "a simulator has no node to start with", _FIX_WRITER),
    Rule.DUPLICATE_ID: RuleText("M4", "ASTRA-sim merges the nodes; the older feeder crashes", _FIX_WRITER),
    Rule.NO_NAME: RuleText("M3, S3", "statistics and timelines identify nodes by name", "Name the nodes."),
    Rule.NODE_TYPE: RuleText(
        "M3, M8",
        "ASTRA-sim aborts at metadata nodes and stalls behind nodes without a type",
        "Remove these nodes, or give them a type from 2 to 7.",
    ),
    Rule.ABSURD_TIME: RuleText("S1", "readers that use signed integers see a negative time", _FIX_WRITER),
    Rule.MISSING_DEPENDENCY: RuleText(
        "M5", "ASTRA-sim aborts; the older feeder deadlocks", "Remove these ids, or add their nodes."
    ),
    Rule.SELF_DEPENDENCY: RuleText("M6", "the node never runs", "Remove the node's own id."),
    Rule.DUPLICATE_DEPENDENCY: RuleText("M7", "the older feeder deadlocks", "List each id once."),
    Rule.CYCLE: RuleText(
        "M6",
        "ASTRA-sim skips these nodes and all nodes after them, and exits with code 0",
        "Remove one dependency.",
    ),
    Rule.BACKWARD_TIME: RuleText(
        "beyond", "replayed in time order, it would run before its dependency", _FIX_WRITER
    ),
    Rule.ATTRIBUTE_KIND: RuleText(
        "M10, M16",
        "feeders read another field of the value, and get 0 or nothing",
        "Use the kind that the message names.",
    ),
    Rule.ATTRIBUTE_TWICE: RuleText(
        "beyond", "one feeder uses the first value, the other the last", "Write it once."
    ),
    Rule.HOST_COMMUNICATION: RuleText(
        "M9", "ASTRA-sim runs it on the CPU and sends nothing", "Set is_cpu_op to false."
    ),
    Rule.INCOMPLETE_COLLECTIVE: RuleText("M10", "ASTRA-sim aborts", "Write comm_type and comm_size."),
    Rule.UNKNOWN_COLLECTIVE: RuleText("M11", "no reader knows this number", "Use a type from 0 to 9."),
    Rule.UNSIMULATED_COLLECTIVE: RuleText(
        "M11",
        "ASTRA-sim throws an exception: it runs only ALL_REDUCE, ALL_GATHER, BROADCAST, ALL_TO_ALL and REDUCE_SCATTER",
        "tracelink merge --to chakra --variant astra-sim writes types that it can run.",
    ),
    Rule.NEGATIVE_SIZE: RuleText("M10, M13", "a negative size is read as exabytes", _FIX_WRITER),
    Rule.GROUP_NAME: RuleText(
        "M12", "ASTRA-sim aborts: it identifies groups by number", "Number the groups; 0 is all ranks."
    ),
    Rule.UNKNOWN_GROUP: RuleText(
        "M12",
        "ASTRA-sim fails",
        "Put PREFIX.groups.json next to the files, or name it with --groups.",
    ),
    Rule.FOREIGN_GROUP: RuleText("M12", "the group never completes", "Fix the members or the group."),
    Rule.INCOMPLETE_MESSAGE: RuleText(
        "M13", "ASTRA-sim throws an exception", "Write the peer, comm_tag and comm_size."
    ),
    Rule.FOREIGN_MESSAGE: RuleText(
        "M13", "it is sent or received as another rank", "Write the rank of the file, or leave it out."
    ),
    Rule.UNKNOWN_PEER: RuleText("M13", "the peer is not an NPU of the job", _FIX_WRITER),
    Rule.LONE_COLLECTIVE: RuleText("seen", "ASTRA-sim never finishes a collective of one rank", _SIMULATED),
    Rule.SMALL_GATHER: RuleText(
        "seen",
        "ASTRA-sim never finishes an ALL_GATHER of 0 bytes, and loops endlessly at fewer bytes than splits (4)",
        _SIMULATED,
    ),
    Rule.NO_BYTES: RuleText("seen", "ASTRA-sim aborts at a message of 0 bytes", _SIMULATED),
    Rule.NEGATIVE_TAG: RuleText("seen", "ASTRA-sim aborts at a negative tag", "Use tags of 0 and above."),
    Rule.OWN_MESSAGE: RuleText("seen", "ASTRA-sim aborts at a message of a rank to itself", _SIMULATED),
    Rule.ENDS_IN_MESSAGE: RuleText(
        "seen",
        "ASTRA-sim aborts when such a rank ends: its statistics fail at host nodes, and a message is not guarded",
        "tracelink merge --to chakra --variant astra-sim leaves host nodes out.",
    ),
    Rule.INCOMPLETE_MEMORY: RuleText("M14", "ASTRA-sim throws an exception", "Write tensor_size."),
    Rule.ROOFLINE: RuleText(
        "M15", "the roofline model divides by 0", "Write num_ops and tensor_size above 0, or neither."
    ),
    Rule.TENSOR_LISTS: RuleText(
        "M15", "track-local-mem reads pairs of strings", "Write them as a string_list of even length."
    ),
    Rule.INVOLVED_DIMENSIONS: RuleText("M16", "ASTRA-sim throws an exception", "Write it as a bool_list."),
    Rule.BAD_GROUPS: RuleText(
        "M12",
        "ASTRA-sim cannot load the groups",
        'Write {"1": [0, 1], …}: group numbers above 0, each with its ranks.',
    ),
    Rule.IGNORED_GROUPS: RuleText(
        "seen", "ASTRA-sim reads no groups file whose path contains the word empty", "Rename the file."
    ),
    Rule.MISSING_RANK: RuleText(
        "X1", "ASTRA-sim needs one file for each NPU", "Add the file, or write all ranks again."
    ),
    Rule.DUPLICATE_RANK: RuleText("X1", "only one of the files is run", "Keep one."),
    Rule.RANK_MISMATCH: RuleText("X1", "the trace runs as another rank", "Rename the file."),
    Rule.COLLECTIVE_MISSING: RuleText(
        "X2", "the other ranks deadlock, and ASTRA-sim exits with code 0", _FIX_WRITER
    ),
    Rule.COLLECTIVE_DIFFERS: RuleText(
        "X2", "the ranks run different collectives, and some never complete", _FIX_WRITER
    ),
    Rule.UNMATCHED_MESSAGE: RuleText("X3", "the receiver deadlocks", "Give both ends the same tag and size."),
    Rule.MISCOUNTED: RuleText(
        "seen",
        "ASTRA-sim numbers the collectives of all ranks together with those of groups, and does not match them",
        "Give the group of all ranks a number in the groups file, and write it as pg_name.",
    ),
    Rule.DEADLOCK: RuleText(
        "seen",
        "the ranks wait for each other: ASTRA-sim ends with code 0 before they finish",
        "Order the communication of all ranks in one way with data_deps, and send before you receive;"
        " tracelink merge --to chakra --variant astra-sim does.",
    ),
    Rule.RANK_LEFT_OUT: RuleText(
        "X1", "ASTRA-sim needs one file for each NPU of the job", "Merge the traces of all ranks."
    ),
    Rule.RACE: RuleText(
        "seen",
        "durations decide which of the two runs first, and ranks that decide differently deadlock",
        "Order the two nodes with data_deps.",
        True,
    ),
    Rule.FILE_NAME: RuleText("X1", "ASTRA-sim opens PREFIX.0.et, PREFIX.1.et, …", "Rename the file.", True),
    Rule.NO_NODE_COUNT: RuleText(
        "M2",
        "a file that was truncated between two nodes looks complete",
        "Write the number of nodes as the metadata attribute nodes.",
        True,
    ),
    Rule.NO_VERSION: RuleText(
        "S4", "readers do not know which version they read", "Write the version.", True
    ),
    Rule.NO_DURATION: RuleText("S1", "it runs for 1 ns", "Round shorter durations up to 1 µs.", True),
    Rule.NO_HOST_MARK: RuleText("S2", "readers guess where it ran", "Write is_cpu_op.", True),
    Rule.COMMA_IN_NAME: RuleText(
        "S3", "the timeline tool splits names at commas", "Use another character.", True
    ),
    Rule.HOST_NODES: RuleText(
        "S5",
        "ASTRA-sim's main branch prints no statistics",
        "tracelink merge --to chakra --variant astra-sim leaves them out.",
        True,
    ),
    Rule.NOT_COMPARED: RuleText(
        "X2, X3",
        "its communication with other ranks was not checked",
        "Fix the file and validate again.",
        True,
    ),
}


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
    def of(cls, violations: Sequence[Violation], limit: int | None) -> list[Broken]:
        """Violations of one rule, of which the first `limit` are kept."""
        if not violations:
            return []
        rule = violations[0].rule
        return [cls(rule, RULES[rule].warns, len(violations), violations[:limit])]


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
        text = RULES[name]
        yield BrokenRule(name, severity, count, text.ids.split(", "), text.breaks, text.advice)
