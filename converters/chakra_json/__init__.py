"""Chakra: the host and device trace (ET+ JSON) that `chakra_converter PyTorch` reads."""

from tracelink.converters.chakra_json.reader import ChakraJsonReader

__all__ = ["ChakraJsonReader"]
