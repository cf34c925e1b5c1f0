"""The folder that `tracelink run` puts in front of PYTHONPATH."""

__all__: list[str] = []
