"""Verdicts: each kind of problem is a class with its facts, of which it makes its sentence, next step and category.

A new kind: a class in the file of its family, with `kind`, its facts as fields, `claim` and `next_step`; what finds it
makes it with `of_call`. Each witness sets fields of its own with `replace`; texts are made by `settled` alone.
"""

__all__ = [
    "absence",
    "base",
    "deadlocks",
    "drafts",
    "hangs",
    "lateness",
    "logs",
    "messages",
    "mismatches",
    "monitor",
    "unrecorded",
]
