"""What people see of a diagnosis and of entries side by side."""

from tracelink._hang.report.diagnosis import MOST_PROBLEMS, report_of, verdict_of

__all__ = ["MOST_PROBLEMS", "database", "entries", "matrix", "report_of", "verdict_of"]
