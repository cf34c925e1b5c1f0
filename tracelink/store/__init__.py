"""Results and tables as files and databases."""

__all__ = ["results"]
