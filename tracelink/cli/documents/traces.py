"""What `inspect --json` and `validate --json` print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from tracelink.cli.documents.results import (
    Count,
    Finding,
    Nanoseconds,
    Positive,
    RankNumber,
    Text,
    findings_of,
)
from tracelink.converters.chakra.schema import Variant
from tracelink.converters.chakra.table import Role
from tracelink.converters.chakra.validation import rules
from tracelink.converters.chakra.validation.rules import RULES, Rule

if TYPE_CHECKING:
    from tracelink.api import Inspection
    from tracelink.converters.chakra import census
    from tracelink.model.trace import SourceInfo

# inspect

LONGEST_CYCLE = 100
"""Nodes of a cycle that are listed."""


class Communication(Struct, frozen=True):
    """Communication nodes of one kind in one group."""

    kind: Text
    group: Annotated[str, Meta(description="As the nodes name it; empty means all ranks.")]
    count: Positive
    bytes: Count
    without_size: Count


class LongestChain(Struct, frozen=True):
    """The chain of dependent nodes that takes the most time."""

    ns: Nanoseconds
    compute_ns: Nanoseconds
    communication_ns: Nanoseconds
    host_ns: Nanoseconds
    nodes: Count


class Census(Struct, frozen=True):
    """What a Chakra trace contains."""

    nodes: Annotated[
        Mapping[Role, Positive],
        Meta(
            description="Number of nodes of each kind; kinds without nodes are left out.",
            extra_json_schema={"propertyNames": {"enum": [role.value for role in Role]}},
        ),
    ]
    communication: Annotated[
        Sequence[Communication], Meta(description="Each kind in each group, most bytes first.")
    ]
    longest_chain: LongestChain
    device_nodes: Count
    device_nodes_after_device: Annotated[
        Count, Meta(description="How many of them depend on another device node directly.")
    ]
    missing_dependencies: Annotated[Count, Meta(description="Dependencies on nodes that do not exist.")]
    nodes_without_order: Annotated[Count, Meta(description="Nodes on a cycle, or dependent on one.")]
    cycle: Annotated[
        Sequence[Count],
        Meta(max_length=LONGEST_CYCLE, description="Ids of the nodes of a cycle; the first 100 of them."),
    ]


class Source(Struct, frozen=True):
    """One input."""

    path: Text
    format: str
    version: str
    rank: RankNumber | None
    host: str
    world_size: Count | None
    pid: int | None
    events: Count
    records: Annotated[
        Count, Meta(description="Everything that the file lists, with what only links events.")
    ]
    bytes: Annotated[
        Count, Meta(description="Size as stored; of a rank of a timeline of several, a share of it.")
    ]
    start_ns: Annotated[int | None, Meta(description="In ns since 1970; null if the source has no times.")]
    end_ns: int | None
    chakra: Annotated[Census | UnsetType, Meta(description="Chakra traces only: what they contain.")] = UNSET


class Inspect(Struct, frozen=True):
    """Result of `tracelink inspect --json`."""

    sources: Sequence[Source]
    findings: Sequence[Finding]


def inspect_document(inspection: Inspection, censuses: Mapping[str, census.Census]) -> Inspect:
    """The result of `inspect`."""
    sources = [_source(source, censuses.get(source.path)) for source in inspection.sources]
    return Inspect(sources, findings_of(inspection.findings))


def _source(source: SourceInfo, counts: census.Census | None) -> Source:
    return Source(
        path=source.path,
        format=source.format,
        version=source.version,
        rank=source.rank,
        host=source.host,
        world_size=source.world_size,
        pid=source.pid,
        events=source.events,
        records=source.records,
        bytes=source.bytes,
        start_ns=source.start_ns,
        end_ns=source.end_ns,
        chakra=_census(counts) if counts else UNSET,
    )


def _census(counts: census.Census) -> Census:
    longest = counts.longest
    return Census(
        nodes=counts.nodes,
        communication=[
            Communication(row.kind, row.group, row.count, row.bytes, row.sizeless)
            for row in counts.communicated
        ],
        longest_chain=LongestChain(
            longest.total_ns,
            longest.compute_ns,
            longest.communication_ns,
            longest.host_ns,
            longest.nodes,
        ),
        device_nodes=counts.device_nodes,
        device_nodes_after_device=counts.device_nodes_after_device,
        missing_dependencies=counts.missing,
        nodes_without_order=counts.unordered,
        cycle=counts.cycle[:LONGEST_CYCLE],
    )


# validate


class CheckedFile(Struct, frozen=True):
    """A file that was checked."""

    path: str
    rank: RankNumber
    nodes: Count
    variant: Variant
    bytes: Count


class Violation(Struct, frozen=True, forbid_unknown_fields=True):
    """One place where a rule is broken."""

    rule: Rule
    rank: Annotated[RankNumber | None, Meta(description="Null if it is about all ranks.")]
    node: Annotated[Count | None, Meta(description="Id of the node; null if it is about a file or a rank.")]
    message: Text
    file: Annotated[str, Meta(description="Empty if it is about a missing file.")]


class BrokenRule(Struct, frozen=True):
    """A rule that is broken, and how often."""

    rule: Rule
    severity: Literal["violation", "warning"]
    count: Annotated[Positive, Meta(description="Number of violations, listed or not.")]
    invariants: Annotated[
        Sequence[str], Meta(description="What it checks: M within a file, X across ranks, S recommended.")
    ]
    breaks: str
    advice: str


class Validate(Struct, frozen=True):
    """Result of `tracelink validate --json`."""

    valid: Annotated[bool, Meta(description="True if there is no violation; warnings do not count.")]
    files: Sequence[CheckedFile]
    violations: Annotated[Sequence[Violation], Meta(description="The first ones of each rule and rank.")]
    warnings: Sequence[Violation]
    rules: Annotated[Sequence[BrokenRule], Meta(description="Each rule that is broken.")]


def validate_document(validation: rules.Validation) -> Validate:
    """The verdict, the files, each violation that is listed, and how often each rule is broken."""
    return Validate(
        valid=validation.valid,
        files=[
            CheckedFile(file.path, file.rank, file.nodes, file.variant, file.bytes)
            for file in validation.files
        ],
        violations=[_violation(violation) for violation in validation.violations],
        warnings=[_violation(violation) for violation in validation.warnings],
        rules=[
            *(_broken(rule, count, "violation") for rule, count in validation.counts.items()),
            *(_broken(rule, count, "warning") for rule, count in validation.warning_counts.items()),
        ],
    )


def _violation(violation: rules.Violation) -> Violation:
    return Violation(violation.rule, violation.rank, violation.node, violation.message, violation.file)


def _broken(rule: Rule, count: int, severity: Literal["violation", "warning"]) -> BrokenRule:
    text = RULES[rule]
    return BrokenRule(rule, severity, count, text.ids.split(", "), text.breaks, text.advice)
