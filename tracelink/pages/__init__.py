"""What the HTML pages share: their frame, their look, and plots."""

__all__ = ["markdown", "page"]
