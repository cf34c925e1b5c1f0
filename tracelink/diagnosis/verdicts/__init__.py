"""Verdicts: each kind of problem is a class with its facts, of which it makes its sentence, next step and category."""

__all__ = [
    "absence",
    "base",
    "compilations",
    "deadlocks",
    "drafts",
    "hangs",
    "logs",
    "messages",
    "mismatches",
    "monitor",
    "unrecorded",
]
