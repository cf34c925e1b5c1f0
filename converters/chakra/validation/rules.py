"""The rules by name; Violation, Validation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tracelink.converters.chakra.schema import Variant

# The rules by name: which invariant each stands for, what breaks without it, and what to do.


class Rule(StrEnum):
    """What can be wrong, in the order in which it is told."""

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
    RANK_LEFT_OUT = "rank_left_out"
    FILE_NAME = "file_name"
    NO_NODE_COUNT = "no_node_count"
    NO_VERSION = "no_version"
    NO_DURATION = "no_duration"
    NO_HOST_MARK = "no_host_mark"
    COMMA_IN_NAME = "comma_in_name"
    HOST_NODES = "host_nodes"
    NOT_COMPARED = "not_compared"


@dataclass(frozen=True, slots=True)
class RuleText:
    """A rule in words."""

    ids: str
    """The invariants of consumers that it stands for, as the documentation numbers them."""
    breaks: str
    advice: str
    warns: bool = False
    """Whether a file that breaks it is still valid."""


_AGAIN = "Copy or write the file again."
_WRITER = "Correct what writes the file."
_SIMULATED = "tracelink merge --to chakra --variant astra-sim writes what it can run."

RULES: dict[Rule, RuleText] = {
    Rule.UNREADABLE: RuleText("X1", "the file cannot be read", "Check permissions and the disk."),
    Rule.COMPRESSED: RuleText("M17", "ASTRA-sim reads compressed bytes as nodes", "Unpack it with gunzip."),
    Rule.NOT_CHAKRA: RuleText(
        "M1", "nothing in it is a node", "Name .et files; tracelink merge --to chakra writes them."
    ),
    Rule.NO_METADATA: RuleText("M1", "readers take the first node for the metadata", _AGAIN),
    Rule.BROKEN_MESSAGE: RuleText(
        "M2, S6", "ASTRA-sim runs what is left and says nothing; others end with an error", _AGAIN
    ),
    Rule.EMPTY_MESSAGE: RuleText(
        "M2, M3", "Python takes it for the end of the file, ASTRA-sim for one more node", _WRITER
    ),
    Rule.UNREADABLE_NODE: RuleText("M2", "its node is lost, and whatever depends on it never runs", _AGAIN),
    Rule.NODE_COUNT: RuleText("M2", "the file is cut between two nodes, or put together from two", _AGAIN),
    Rule.NO_ROOT: RuleText("M1", "a simulator has no node to begin with", _WRITER),
    Rule.DUPLICATE_ID: RuleText("M4", "ASTRA-sim merges the nodes, the older feeder crashes", _WRITER),
    Rule.NO_NAME: RuleText("M3, S3", "statistics and timelines know nodes by name", "Name the nodes."),
    Rule.NODE_TYPE: RuleText(
        "M3, M8",
        "ASTRA-sim aborts at metadata nodes and stalls behind nodes without a type",
        "Leave these nodes out, or give them a type from 2 to 7.",
    ),
    Rule.ABSURD_TIME: RuleText("S1", "readers with signed numbers see a negative time", _WRITER),
    Rule.MISSING_DEPENDENCY: RuleText(
        "M5", "ASTRA-sim aborts, the older feeder waits for ever", "Remove these ids, or add their nodes."
    ),
    Rule.SELF_DEPENDENCY: RuleText("M6", "the node never runs", "Remove its own id."),
    Rule.DUPLICATE_DEPENDENCY: RuleText("M7", "the older feeder waits for ever", "State each id once."),
    Rule.CYCLE: RuleText(
        "M6", "ASTRA-sim skips these nodes and all after them, with exit code 0", "Remove one dependency."
    ),
    Rule.BACKWARD_TIME: RuleText(
        "beyond", "replayed in order of time, it would run before what it needs", _WRITER
    ),
    Rule.ATTRIBUTE_KIND: RuleText(
        "M10, M16", "feeders read another field of the value, and find 0 or nothing", "Use the kind it names."
    ),
    Rule.ATTRIBUTE_TWICE: RuleText(
        "beyond", "one feeder takes the first value, the other the last", "State it once."
    ),
    Rule.HOST_COMMUNICATION: RuleText(
        "M9", "ASTRA-sim puts it on the CPU and never sends it", "Set is_cpu_op to false."
    ),
    Rule.INCOMPLETE_COLLECTIVE: RuleText("M10", "ASTRA-sim aborts", "State comm_type and comm_size."),
    Rule.UNKNOWN_COLLECTIVE: RuleText("M11", "no reader knows the number", "Use a type from 0 to 9."),
    Rule.UNSIMULATED_COLLECTIVE: RuleText(
        "M11",
        "ASTRA-sim throws: it runs ALL_REDUCE, ALL_GATHER, BROADCAST, ALL_TO_ALL and REDUCE_SCATTER",
        "tracelink merge --to chakra --variant astra-sim writes types that it can run.",
    ),
    Rule.NEGATIVE_SIZE: RuleText("M10, M13", "a size below 0 is read as exabytes", _WRITER),
    Rule.GROUP_NAME: RuleText(
        "M12", "ASTRA-sim aborts: it knows groups by number", "Number the groups; 0 is all ranks."
    ),
    Rule.UNKNOWN_GROUP: RuleText(
        "M12",
        "ASTRA-sim ends with an error",
        "Put PREFIX.groups.json beside the files, or name it with --groups.",
    ),
    Rule.FOREIGN_GROUP: RuleText("M12", "the group never completes", "Correct the members or the group."),
    Rule.INCOMPLETE_MESSAGE: RuleText("M13", "ASTRA-sim throws", "State peer, comm_tag and comm_size."),
    Rule.FOREIGN_MESSAGE: RuleText(
        "M13", "it is sent or received in another rank's name", "State the own rank, or nothing."
    ),
    Rule.UNKNOWN_PEER: RuleText("M13", "there is no such NPU to send to or receive from", _WRITER),
    Rule.LONE_COLLECTIVE: RuleText("seen", "ASTRA-sim never finishes a collective of one rank", _SIMULATED),
    Rule.SMALL_GATHER: RuleText(
        "seen",
        "ASTRA-sim never finishes an ALL_GATHER of 0 bytes, and loops for ever at fewer than it is cut into (4)",
        _SIMULATED,
    ),
    Rule.NO_BYTES: RuleText("seen", "ASTRA-sim aborts at a message of 0 bytes", _SIMULATED),
    Rule.NEGATIVE_TAG: RuleText("seen", "ASTRA-sim aborts at a tag below 0", "Use tags from 0 on."),
    Rule.OWN_MESSAGE: RuleText("seen", "ASTRA-sim aborts at a message of a rank to itself", _SIMULATED),
    Rule.INCOMPLETE_MEMORY: RuleText("M14", "ASTRA-sim throws", "State tensor_size."),
    Rule.ROOFLINE: RuleText(
        "M15", "the roofline model divides by 0", "State num_ops and tensor_size above 0, or neither."
    ),
    Rule.TENSOR_LISTS: RuleText(
        "M15", "track-local-mem reads pairs of texts", "Write them as string_list of even length."
    ),
    Rule.INVOLVED_DIMENSIONS: RuleText("M16", "ASTRA-sim throws", "Write it as bool_list."),
    Rule.BAD_GROUPS: RuleText(
        "M12", "ASTRA-sim cannot load the groups", 'Write {"1": [0, 1], …}: numbers above 0, and ranks.'
    ),
    Rule.IGNORED_GROUPS: RuleText(
        "seen", "ASTRA-sim reads no file of groups whose path has the word empty", "Rename the file."
    ),
    Rule.MISSING_RANK: RuleText(
        "X1", "ASTRA-sim needs one file for each NPU", "Add the file, or write all ranks again."
    ),
    Rule.DUPLICATE_RANK: RuleText("X1", "only one of them is run", "Keep one."),
    Rule.RANK_MISMATCH: RuleText("X1", "the trace runs as another rank's", "Rename the file."),
    Rule.COLLECTIVE_MISSING: RuleText(
        "X2", "the others wait for ever, and ASTRA-sim ends with exit code 0", _WRITER
    ),
    Rule.COLLECTIVE_DIFFERS: RuleText(
        "X2", "the ranks run different collectives, and some never end", _WRITER
    ),
    Rule.UNMATCHED_MESSAGE: RuleText("X3", "the receiver waits for ever", "Give both ends one tag and size."),
    Rule.MISCOUNTED: RuleText(
        "seen",
        "ASTRA-sim counts the collectives of all ranks on with those of groups, and takes them for different ones",
        "Give the group of all ranks a number in the file of groups, and state it as pg_name.",
    ),
    Rule.RANK_LEFT_OUT: RuleText(
        "X1", "ASTRA-sim needs one file for each NPU of a group", "Merge the traces of all ranks.", True
    ),
    Rule.FILE_NAME: RuleText("X1", "ASTRA-sim opens PREFIX.0.et, PREFIX.1.et, …", "Rename the file.", True),
    Rule.NO_NODE_COUNT: RuleText(
        "M2",
        "a file that was cut between two nodes cannot be told from a whole one",
        "State the number of nodes in the metadata attribute nodes.",
        True,
    ),
    Rule.NO_VERSION: RuleText("S4", "readers cannot tell what they read", "State the version.", True),
    Rule.NO_DURATION: RuleText("S1", "it runs for 1 ns", "Round up to 1 µs what is shorter.", True),
    Rule.NO_HOST_MARK: RuleText("S2", "readers guess where it ran", "State is_cpu_op.", True),
    Rule.COMMA_IN_NAME: RuleText("S3", "the timeline tool splits names at commas", "Use another sign.", True),
    Rule.HOST_NODES: RuleText(
        "S5",
        "ASTRA-sim's main branch prints no statistics",
        "tracelink merge --to chakra --variant astra-sim leaves them out.",
        True,
    ),
    Rule.NOT_COMPARED: RuleText(
        "X2, X3", "what it does with others was not checked", "Correct the file, and validate again.", True
    ),
}


# What a validation says.


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that breaks a rule."""

    rule: Rule
    rank: int | None
    node: int | None
    """The id of the node; None where it is about the file, or about all ranks."""
    message: str
    file: str = ""


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A file that was looked at."""

    path: str
    rank: int
    nodes: int
    variant: Variant
    bytes: int


@dataclass(frozen=True, slots=True)
class Found:
    """A rule that a rank breaks: how often, and the first ones."""

    rule: Rule
    warns: bool
    count: int
    listed: Sequence[Violation]

    @classmethod
    def of(cls, violations: Sequence[Violation], limit: int | None) -> list[Found]:
        """Violations of one rule, of which `limit` are kept."""
        if not violations:
            return []
        rule = violations[0].rule
        return [cls(rule, RULES[rule].warns, len(violations), violations[:limit])]


@dataclass(frozen=True, slots=True)
class Validation:
    """All that was found, in the order of the rules and then of ranks."""

    files: Sequence[CheckedFile]
    violations: Sequence[Violation]
    warnings: Sequence[Violation]
    counts: Mapping[Rule, int]
    """How often each rule is violated, also where not each time is listed."""
    warning_counts: Mapping[Rule, int]

    @classmethod
    def of(cls, files: Sequence[CheckedFile], found: Iterable[Found]) -> Validation:
        """What was found of each file and of all of them together."""
        order = list(Rule)
        ordered = sorted(found, key=lambda one: order.index(one.rule))
        wrong = [one for one in ordered if not one.warns]
        doubtful = [one for one in ordered if one.warns]
        return cls(files, _listed(wrong), _listed(doubtful), _counted(wrong), _counted(doubtful))

    @property
    def valid(self) -> bool:
        """Whether every consumer takes the files; warnings do not matter."""
        return not self.violations

    @property
    def nodes(self) -> int:
        """The nodes of all files."""
        return sum(file.nodes for file in self.files)


def _listed(found: Sequence[Found]) -> list[Violation]:
    return [violation for one in found for violation in one.listed]


def _counted(found: Sequence[Found]) -> dict[Rule, int]:
    counts: dict[Rule, int] = {}
    for one in found:
        counts[one.rule] = counts.get(one.rule, 0) + one.count
    return counts
