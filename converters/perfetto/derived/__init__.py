"""Counters that no source has: what follows from events and from what ranks did together."""
