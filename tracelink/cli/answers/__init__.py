"""Commands that say where the time of a job went, and their pages."""

__all__ = ["summary"]
