"""Why a job hangs: recordings, participation, disagreements, waits, lateness, evidence and advice."""

__all__ = ["database", "examine", "explain", "html", "journal", "matrix", "model", "movement", "timeline"]
