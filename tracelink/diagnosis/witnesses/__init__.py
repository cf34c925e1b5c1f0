"""Other files than dumps and profiles that show what a rank did: compile logs.

They know neither the journal nor problems; the diagnosis asks them about a rank and a time.
"""

__all__ = ["compile_logs", "model"]
