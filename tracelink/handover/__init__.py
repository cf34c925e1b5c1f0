"""Handing one file over to Perfetto's UI in a browser, and to nobody else."""
