"""Formats: one folder for each, installed as `tracelink.converters`."""
