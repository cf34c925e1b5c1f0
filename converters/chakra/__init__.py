"""Chakra: the `.et` traces that simulators load."""

from tracelink.converters.chakra.recognition import ChakraNodesReader, ChakraReader

__all__ = ["ChakraNodesReader", "ChakraReader"]
