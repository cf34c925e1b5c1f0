"""Perfetto's own format: what people look at, exact to the nanosecond and a third as long."""
