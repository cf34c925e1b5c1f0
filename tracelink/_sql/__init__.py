"""SQL on the tables of a job: statements of the user, and queries that come with tracelink."""

__all__ = ["results", "session", "shipped"]
