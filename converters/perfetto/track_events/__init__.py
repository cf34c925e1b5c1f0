"""Perfetto traces of PyTorch (`.pftrace` of torch.profiler since 2026) and of rocprofv3, read as what they are."""

__all__: list[str] = []
