"""Database."""
