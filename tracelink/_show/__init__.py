"""Reports as people see them: one document, drawn by one renderer for each medium."""

__all__ = [
    "cells",
    "charts",
    "csv",
    "document",
    "frames",
    "html",
    "json",
    "markdown",
    "markup",
    "page",
    "terminal",
]
