"""Readers of files other than dumps and profiles that show what a rank did: logs, stacks, NCCL's monitor, compile logs.

They state facts, and know neither the journal nor verdicts.
"""

__all__ = ["bundle", "communicators", "compile_logs", "conflicts", "stacks", "watchdog"]
