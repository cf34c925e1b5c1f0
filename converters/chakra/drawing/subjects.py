"""The ranks that are drawn, out of files."""

from __future__ import annotations

from collections.abc import Sequence

from tracelink.converters.chakra.decoding import Decoded, Fault, decode
from tracelink.converters.chakra.drawing.scene import Subject
from tracelink.converters.chakra.schema import Said
from tracelink.converters.chakra.streaming import buffered
from tracelink.engine import Engine
from tracelink.errors import UnreadableError, UsageError
from tracelink.findings import Finding, Severity
from tracelink.ranges import Numbers
from tracelink.sources import Source


def subjects_of(
    sources: Sequence[Source], ranks: Numbers | None, engine: Engine, findings: list[Finding]
) -> list[Subject]:
    """The nodes of every file, in order of rank; where `ranks` are asked for, of those."""
    subjects = []
    for source in sources:
        with buffered(source, engine.meter.add) as (stream, opened):
            decoded = decode(stream)
            damage = opened.damage
        rank = _rank(source, decoded)
        if ranks is not None and rank is not None and rank not in ranks:
            continue
        subjects.append(Subject(source.path, decoded.nodes, rank))
        findings += _faults(source.path, decoded.faults, damage)
    _check(subjects, sources, ranks)
    return sorted(subjects, key=lambda subject: -1 if subject.rank is None else subject.rank)


def _rank(source: Source, decoded: Decoded) -> int | None:
    """What the user says, else the metadata, else the name."""
    said = decoded.said(Said.RANK)
    if source.rank is not None:
        return source.rank
    if isinstance(said, int) and said >= 0:
        return said
    return source.rank_hint.rank if source.rank_hint else None


def _check(subjects: Sequence[Subject], sources: Sequence[Source], ranks: Numbers | None) -> None:
    if not subjects:
        raise UsageError(f"--ranks: no file is of {ranks.called('rank') if ranks else 'these'}")
    if not any(len(subject.nodes) for subject in subjects):
        raise UnreadableError("there are no nodes in it", source=sources[0].path)


def _faults(path: str, faults: Sequence[Fault], damage: str) -> list[Finding]:
    """What was wrong with the bytes, each reason once."""
    by_reason: dict[str, list[Fault]] = {}
    for fault in faults:
        by_reason.setdefault(fault.reason, []).append(fault)
    found = [
        Finding(Severity.WARNING, reason, f"{path}: {alike[0].message}.", len(alike), path)
        for reason, alike in by_reason.items()
    ]
    if damage and not faults:
        found.append(Finding(Severity.WARNING, "cut_off", f"{path}: {damage}.", source=path))
    return found
