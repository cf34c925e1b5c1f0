"""What all answers share: the results as structs, and arithmetic on stretches of time."""

__all__ = ["communication", "intervals", "results"]
