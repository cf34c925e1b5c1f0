"""What people see of a diagnosis and of entries side by side."""

from tracelink.diagnosis.report.diagnosis import MOST_PROBLEMS, report_of, verdict_of

__all__ = ["MOST_PROBLEMS", "entries", "report_of", "table", "verdict_of"]
