"""What changed between two runs: their steps, aligned by structure, with causes that add up to the change."""

__all__ = ["compare", "gates", "model", "report"]
