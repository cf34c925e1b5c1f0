"""Validation of Chakra traces: can simulators load them, and do the ranks fit together?"""

from tracelink.converters.chakra.validation.rules import (
    RULES,
    CheckedFile,
    Rule,
    RuleText,
    Validation,
    Violation,
)
from tracelink.converters.chakra.validation.validate import validate

__all__ = ["RULES", "CheckedFile", "Rule", "RuleText", "Validation", "Violation", "rules", "validate"]
