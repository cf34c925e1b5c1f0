"""Pictures of nodes and of what they wait for."""

from tracelink.converters.chakra.drawing.formats import DotDrawing, GraphmlDrawing, SvgDrawing

__all__ = ["DotDrawing", "GraphmlDrawing", "SvgDrawing"]
