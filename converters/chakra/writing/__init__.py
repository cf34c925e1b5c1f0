"""Chakra traces from event graphs: the files of all ranks, and what a simulator would not finish in them."""

__all__: list[str] = []
