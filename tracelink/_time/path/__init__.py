"""The critical path of a job: the chain of causes that decided its length, across ranks; replays of changed jobs."""

__all__ = ["job", "nodes", "questions", "rank", "report", "times"]
