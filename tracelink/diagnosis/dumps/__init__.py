"""The dumps of a job: which files are one of each rank, and what ranks did since earlier dumps."""

__all__ = ["movement", "recordings"]
