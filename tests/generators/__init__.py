"""Generators of synthetic jobs, whose every link is known because the generator made it."""
