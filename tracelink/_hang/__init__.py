"""Why a job hangs: facts, verdicts on them, evidence and advice."""

__all__ = ["examine", "facts", "report", "verdicts"]
