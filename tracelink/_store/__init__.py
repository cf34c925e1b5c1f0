"""Results and tables as files and databases."""

__all__ = ["duckdb", "parquet", "results", "schema", "sqlite"]
