"""Results and tables as files and databases."""

__all__ = ["duckdb", "results", "schema"]
