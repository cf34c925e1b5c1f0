"""Chakra: the host and device trace (ET+ JSON) that `chakra_converter PyTorch` reads."""

from tracelink.converters.chakra.writer import ChakraJsonWriter

__all__ = ["ChakraJsonWriter"]
