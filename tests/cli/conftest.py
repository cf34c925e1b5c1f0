"""Fixtures of every test of the command line."""

from builders.command_line import job, tracelink

__all__ = ["job", "tracelink"]
