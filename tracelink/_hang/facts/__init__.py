"""What dumps, logs and stacks show of a job: one journal, what ranks take part in, and which ranks wait for which.

It knows no verdicts.
"""

__all__ = [
    "bundle",
    "deviations",
    "disagreements",
    "journal",
    "members",
    "messages",
    "model",
    "participation",
    "programs",
    "recordings",
    "sets",
    "stalls",
    "waits",
    "watchdog",
]
