"""One clock for all ranks: offsets, drifts and their bounds, estimated from collectives and messages."""

__all__ = ["clock", "observations", "report"]
