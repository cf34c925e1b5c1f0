"""Findings: what did not fit. Nothing is dropped without one."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, ClassVar

from tracelink._model.fields import Doc, Positive, Row, Shown, Text
from tracelink._model.text import counted


class Severity(StrEnum):
    """How much a finding matters to the person who reads it."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Finding(Row, frozen=True):
    """One kind of problem or note in one source: how often, and an example."""

    severity: Annotated[Severity, Doc("How much it matters.")]
    reason: Annotated[Text, Doc("The kind of finding, for programs.")]
    message: Annotated[Text, Doc("What it is, and what to do.")]
    count: Annotated[Positive, Doc("How often.")] = 1
    source: Annotated[str, Doc("Path of the source; empty if it is about all of them."), Shown(drop=1)] = ""
    example: Annotated[str, Doc("One of the places; empty if there is none to show."), Shown(drop=2)] = ""


def in_order(findings: Sequence[Finding]) -> list[Finding]:
    """Findings in the order of severity."""
    order = [Severity.ERROR, Severity.WARNING, Severity.INFO]
    return sorted(findings, key=lambda finding: order.index(finding.severity))


# Findings that several formats have: each is a kind with its facts, and its sentence stands here only.


class Message(Row, frozen=True):
    """A kind of finding on one source; a test compares its facts."""

    path: str

    reason: ClassVar[str]
    severity: ClassVar[Severity] = Severity.WARNING

    def sentence(self) -> str:
        """What people read."""
        raise NotImplementedError

    def finding(self, *, severity: Severity | None = None, count: int = 1, example: str = "") -> Finding:
        """The message as a finding; `severity` where the format loses more, or less, than usual."""
        return Finding(severity or self.severity, self.reason, self.sentence(), count, self.path, example)


class Truncated(Message, frozen=True):
    """A source ends early, or cannot be read to its end."""

    why: str
    kept: int
    thing: str
    """What is used of it: events, nodes, lines."""
    offset: int | None = None
    """The byte where it breaks off."""
    aside: str = ""
    """What else is used of it, or not."""

    reason = "truncated"

    def sentence(self) -> str:
        """`k_0.json: the array has no end at byte 93; the 12 events before it are used. Copy or record it again.`"""
        byte = f"byte {self.offset}"
        at = "" if self.offset is None or byte in self.why else f" at {byte}"
        is_used = "is" if self.kept == 1 else "are"
        used = (
            f"the {counted(self.kept, self.thing)} before it {is_used} used"
            if self.kept
            else "nothing is used"
        )
        return f"{self.path}: {self.why.rstrip('.')}{at}; {used}{self.aside}. Copy or record the file again."

    def finding(self, *, severity: Severity | None = None, count: int = 1, example: str = "") -> Finding:
        """The message as a finding, whose example is the byte."""
        at = "" if self.offset is None else f"byte {self.offset}"
        return super().finding(severity=severity, count=count, example=example or at)


class NewerVersion(Message, frozen=True):
    """A source has a version that this one does not know."""

    version: str
    newest: str
    """The newest known version; empty if versions have no order."""

    reason = "newer_version"
    severity = Severity.INFO

    def sentence(self) -> str:
        """`dump_0: version 9.0 is newer than 2.10, the newest known one; only known fields are read.`"""
        newer = f"newer than {self.newest}, the newest known one" if self.newest else "unknown"
        return f"{self.path}: version {self.version} is {newer}; only known fields are read."


class UnknownRank(Message, frozen=True):
    """Nothing says of which rank a source is."""

    what: str = "neither content nor name contains its rank"

    reason = "unknown_rank"

    def sentence(self) -> str:
        """`stacks.txt: neither content nor name contains its rank. Set it with --rank stacks.txt=N.`"""
        return f"{self.path}: {self.what}. Set it with --rank {self.path}=N."
