"""A comparison as Markdown, for a comment on a pull request."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tracelink.answers.compare.model import Comparison
from tracelink.answers.compare.words import gate_in_words, headline, signed
from tracelink.model.errors import Severity, printable
from tracelink.model.text import shortened, span

MOST_CAUSES = 20
LONGEST_NAME = 80
SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~@&$:-])")
"""What Markdown or HTML could take for markup, a mention or a link."""


def markdown_of(result: Comparison) -> str:
    """The comparison as Markdown; names in it have no effect."""
    lines = [f"**{escaped(headline(result))}**", ""]
    lines += [f"- {escaped(reason)}." for reason in result.why_not]
    lines += [f"- {'❌' if gate.failed else '✅'} {escaped(gate_in_words(gate))}" for gate in result.gates]
    lines += [""] if len(lines) > 2 else []
    parts = [(part.part.value.replace("_", " "), part.before_ns, part.after_ns) for part in result.parts]
    parts.append(("**step**", result.step.before_ns, result.step.after_ns))
    rows = [[name, span(before), span(after), signed(after - before)] for name, before, after in parts]
    lines += _table(["part", "before", "after", "change"], rows)
    causes = [
        [
            escaped(shortened(cause.what, LONGEST_NAME)),
            cause.status.value,
            span(cause.before_ns),
            span(cause.after_ns),
            signed(cause.delta_ns),
        ]
        for cause in result.causes[:MOST_CAUSES]
    ]
    if hidden := result.causes[MOST_CAUSES:]:
        causes.append([f"{len(hidden)} more", "", "", "", signed(sum(cause.delta_ns for cause in hidden))])
    if causes:
        lines += ["", "<details><summary>Causes, which add up to the change</summary>", ""]
        lines += _table(["cause", "status", "before", "after", "change"], causes)
        lines += ["", "</details>"]
    notes = [note for note in result.notes if note.severity is not Severity.INFO]
    lines += ["", *(f"- {note.severity}: {escaped(note.message)}" for note in notes)] if notes else []
    return "\n".join(lines)


def escaped(text: str) -> str:
    """A text that Markdown shows as it is."""
    return SPECIAL.sub(r"\\\1", printable(text))


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        f"| {' | '.join(header)} |",
        f"|{'|'.join(' --- ' for _ in header)}|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
