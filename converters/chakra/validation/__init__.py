"""Validation of Chakra traces: can simulators load them, and do the ranks fit together?"""

from tracelink.converters.chakra.validation.check import Checked, checked_nodes
from tracelink.converters.chakra.validation.job_rules import broken_replay
from tracelink.converters.chakra.validation.rules import (
    RULES,
    Broken,
    CheckedFile,
    Rule,
    RuleText,
    Validation,
    Violation,
)
from tracelink.converters.chakra.validation.validate import validate

__all__ = [
    "RULES",
    "Broken",
    "Checked",
    "CheckedFile",
    "Rule",
    "RuleText",
    "Validation",
    "Violation",
    "broken_replay",
    "checked_nodes",
    "rules",
    "validate",
]
