"""Other files than dumps and profiles that show what a rank did: compile logs, and stacks as text.

They know neither the journal nor problems; the diagnosis asks them about a rank and a time.
"""

__all__ = ["bundle", "compile_logs", "evidence", "model"]
