"""A file opened in Perfetto's UI: forecast of its size, server, page, startup view."""

__all__ = ["forecast", "offer", "server", "startup_view"]
