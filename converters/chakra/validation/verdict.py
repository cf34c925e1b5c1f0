"""What a validation says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tracelink.converters.chakra.schema import Profile
from tracelink.converters.chakra.validation.rules import RULES, Rule


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
    profile: Profile
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
