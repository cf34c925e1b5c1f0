"""Sources to a diagnosis: dumps read, put into one journal, and judged."""

from __future__ import annotations

from dataclasses import dataclass

from tracelink.analysis.advice import with_advice
from tracelink.analysis.diagnosing import diagnose
from tracelink.analysis.evidence import with_evidence
from tracelink.diagnosis import Diagnosis
from tracelink.engine import Engine
from tracelink.journal import Journal, journal_of
from tracelink.recordings import read_recordings
from tracelink.sources import Discovery


@dataclass(frozen=True, slots=True)
class Examined:
    """A diagnosis, and the entries that it rests on."""

    diagnosis: Diagnosis
    journal: Journal


def examine_sources(discovery: Discovery, engine: Engine) -> Examined:
    """Reads what recorders left behind and says what went wrong."""
    recorded = read_recordings(discovery, engine)
    journal = journal_of(recorded.recordings)
    diagnosis = diagnose(journal, recorded.unreadable, recorded.findings)
    return Examined(with_advice(with_evidence(diagnosis, journal)), journal)
