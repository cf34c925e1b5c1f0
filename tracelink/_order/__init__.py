"""The order of events on one rank: lanes, streams, waits of the host, threads, tensors."""

__all__ = ["host", "order", "streams"]
