"""Validation of Chakra traces: can simulators load them, and do the ranks fit together?"""

from tracelink.converters.chakra.validation.file_rules import Checked, check_nodes
from tracelink.converters.chakra.validation.job_rules import check_replay
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
    "check_nodes",
    "check_replay",
    "rules",
    "validate",
]
