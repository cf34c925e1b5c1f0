"""Packets of Perfetto's native format, as every reader of it needs them: field numbers, batches, state of sequences."""

__all__ = ["reading", "schema"]
