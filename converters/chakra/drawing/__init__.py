"""Drawings of nodes and of what they wait for: SVG, DOT and GraphML."""

__all__: list[str] = []
