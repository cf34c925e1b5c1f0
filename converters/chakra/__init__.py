"""Chakra: the `.et` traces that simulators load."""

from tracelink.converters.chakra.reader import ChakraNodesReader, ChakraReader

__all__ = ["ChakraNodesReader", "ChakraReader"]
