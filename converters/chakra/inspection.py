"""Files of ranks to what `tracelink inspect` says of them: a census of each, and what consumers would complain of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tracelink.converters.chakra.census import Census, census
from tracelink.converters.chakra.decoding import decode
from tracelink.converters.chakra.streaming import buffered
from tracelink.converters.chakra.validation import RULES, Violation, validate
from tracelink.engine import Engine
from tracelink.errors import TraceError
from tracelink.findings import Finding, Severity
from tracelink.sources import Source


@dataclass(frozen=True, slots=True)
class Inspection:
    """What is in the files, by path, and what is wrong with them."""

    censuses: Mapping[str, Census]
    findings: Sequence[Finding] = ()


def inspect_traces(sources: Sequence[Source], engine: Engine) -> Inspection:
    """Counts the nodes of every `.et` file, and checks all of them together."""
    censuses = engine.map(_census_of, sources)
    by_path = {source.path: one for source, one in zip(sources, censuses, strict=True)}
    return Inspection(by_path, _problems(sources, engine))


def _census_of(source: Source) -> Census:
    with buffered(source) as (stream, _):
        return census(decode(stream).nodes)


def _problems(sources: Sequence[Source], engine: Engine) -> list[Finding]:
    """What `tracelink validate` says of the same files, a finding for each rule and file."""
    paths = [source.path for source in sources if source.local]
    found = list[Finding]()
    if len(paths) < len(sources):
        message = (
            "traces within archives and from standard input are not checked: tracelink validate does that."
        )
        found.append(Finding(Severity.INFO, "not_checked", message, len(sources) - len(paths)))
    if not paths:
        return found
    try:
        validation = validate(paths, limit=1, jobs=engine.jobs)
    except TraceError as error:
        return [*found, Finding(Severity.WARNING, "not_checked", f"the traces are not checked: {error}")]
    counts = {**validation.counts, **validation.warning_counts}
    listed = [*validation.violations, *validation.warnings]
    examples = {violation.rule: violation for violation in reversed(listed)}
    return found + [_problem(examples[rule], count) for rule, count in counts.items()]


def _problem(example: Violation, count: int) -> Finding:
    text = RULES[example.rule]
    severity = Severity.INFO if text.warns else Severity.WARNING
    message = f"{example.rule.value}: {text.breaks}; `tracelink validate` lists all."
    return Finding(severity, f"invalid.{example.rule.value}", message, count, example.file, example.message)
