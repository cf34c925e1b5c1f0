"""Why a job hangs: recordings, participation, disagreements, waits, lateness, evidence and advice."""

__all__ = [
    "database",
    "dumps",
    "examine",
    "journal",
    "matrix",
    "model",
    "report",
    "verdicts",
    "witnesses",
]
