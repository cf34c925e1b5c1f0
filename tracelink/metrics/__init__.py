"""What sampled metrics say of events and ranks: averages while something ran, GPUs that differ from the others."""

__all__ = ["deviations", "during", "quantities"]
