"""Chakra traces to rank traces: what each node is, when it was, what it depends on and what it communicates."""
