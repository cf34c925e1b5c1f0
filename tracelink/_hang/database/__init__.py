"""A diagnosis and its entries as SQLite or Parquet tables."""

__all__ = ["tables"]
