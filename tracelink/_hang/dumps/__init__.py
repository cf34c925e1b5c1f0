"""The dumps of a job: which files are one of each rank, lives of its groups, and what ranks did since earlier dumps."""

__all__ = ["lives", "movement", "recordings", "sets"]
