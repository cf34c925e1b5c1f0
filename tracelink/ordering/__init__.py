"""Ordering."""
