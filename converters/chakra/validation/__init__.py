"""Whether simulators can load Chakra traces, and whether the traces of all ranks fit together."""

from tracelink.converters.chakra.validation.rules import RULES, Rule, RuleText
from tracelink.converters.chakra.validation.validating import validate
from tracelink.converters.chakra.validation.verdict import CheckedFile, Validation, Violation

__all__ = ["RULES", "CheckedFile", "Rule", "RuleText", "Validation", "Violation", "validate"]
