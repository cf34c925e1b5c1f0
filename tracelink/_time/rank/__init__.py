"""Answers about one rank, computed from its graph in the worker that has it in memory."""

__all__ = ["account", "breakdown", "call_sites", "costs", "host", "steps", "tables", "view"]
