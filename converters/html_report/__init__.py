"""HTML: a diagnosis as one page that can be attached to a ticket."""

from tracelink.converters.html_report.file import write_page
from tracelink.converters.html_report.report import html_report

__all__ = ["html_report", "write_page"]
