"""Chakra: the `.et` traces that simulators load."""
