"""Findings that several formats have."""

from __future__ import annotations

import pytest

from tracelink._model.findings import (
    Finding,
    Message,
    NewerVersion,
    Severity,
    Truncated,
    UnknownRank,
    in_order,
)


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (
            Truncated("k.json", "the array has no end", 12, "event", 93, " without arguments"),
            "k.json: the array has no end at byte 93; the 12 events before it are used without arguments. "
            "Copy or record the file again.",
        ),
        (
            Truncated("k.json", "it is damaged", 1, "line"),
            "k.json: it is damaged; the 1 line before it is used. Copy or record the file again.",
        ),
        (
            Truncated("k.json", "it is damaged", 0, "line"),
            "k.json: it is damaged; nothing is used. Copy or record the file again.",
        ),
        (
            NewerVersion("d_0", "9.0", "2.10"),
            "d_0: version 9.0 is newer than 2.10, the newest known one; only known fields are read.",
        ),
        (NewerVersion("et.json", "x", ""), "et.json: version x is unknown; only known fields are read."),
        (
            UnknownRank("stacks.txt"),
            "stacks.txt: neither content nor name contains its rank. Set it with --rank stacks.txt=N.",
        ),
    ],
)
def test_a_message_has_one_sentence(message: Message, sentence: str) -> None:
    assert message.finding() == Finding(
        message.severity,
        message.reason,
        sentence,
        source=message.path,
        example="byte 93" if "93" in sentence else "",
    )


def test_a_format_can_weigh_a_message_itself() -> None:
    found = UnknownRank("a").finding(severity=Severity.ERROR, count=3, example="b")
    assert (found.severity, found.count, found.example) == (Severity.ERROR, 3, "b")


def test_errors_come_first() -> None:
    findings = [Finding(severity, "r", "m") for severity in Severity]
    assert [finding.severity for finding in in_order(findings)] == ["error", "warning", "info"]
