"""Drawings of nodes and of what they wait for: SVG, DOT and GraphML."""
