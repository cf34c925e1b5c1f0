"""A diagnosis and every entry that it rests on, as tables that join: one SQLite file, or Parquet files."""

from tracelink.converters.flight_database.database import Database, database_at

__all__ = ["Database", "database_at"]
