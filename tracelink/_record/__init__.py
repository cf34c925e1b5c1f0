"""Recording a training job: profile and execution trace of the same steps, dumps, metrics and a capture file.

Nothing in this package may end, delay or change the training that it records: what cannot be recorded is a warning and
an entry of the capture file. torch is imported when a capture begins.
"""

__all__ = ["automatic", "environment", "files", "hooks", "options", "profiling", "rank", "session"]
