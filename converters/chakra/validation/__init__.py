"""Validation of Chakra traces: can simulators load them, and do the ranks fit together?"""

from tracelink.converters.chakra.validation.file_rules import Checked, checked_nodes
from tracelink.converters.chakra.validation.job_rules import broken_replay
from tracelink.converters.chakra.validation.rules import (
    Broken,
    CheckedFile,
    Level,
    Rule,
    Validation,
    Violation,
)
from tracelink.converters.chakra.validation.validate import validate

__all__ = [
    "Broken",
    "Checked",
    "CheckedFile",
    "Level",
    "Rule",
    "Validation",
    "Violation",
    "broken_replay",
    "checked_nodes",
    "rules",
    "validate",
]
