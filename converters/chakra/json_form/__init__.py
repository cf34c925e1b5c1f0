"""Chakra traces as JSON: protobuf's mapping, one node a line, and back without loss."""
