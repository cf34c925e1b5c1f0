"""Perfetto's own format: packets of a timeline."""

__all__ = ["arguments", "decode", "schema", "trace"]
