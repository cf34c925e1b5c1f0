"""What torch.compile compiled, why and at what cost: compile logs of all ranks as tables."""

__all__ = ["diff", "divergences", "graphs", "model", "payloads", "reading", "report", "summary"]
