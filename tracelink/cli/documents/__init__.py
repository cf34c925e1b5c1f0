"""What `--json` prints: one struct for each document, of which the JSON Schemas are made."""

__all__ = ["results"]
