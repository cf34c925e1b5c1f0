"""What became of a message, in words."""

from __future__ import annotations

from tracelink.analysis.waits import Wait
from tracelink.operations import Operation, operation_of


def never_answered(wait: Wait, what: str) -> str:
    """`never sent what rank 2 waits for in recv 2<-3 #5 of group 4 (pp)`."""
    rank = next(iter(wait.rows))
    if operation_of(wait.operation) == Operation.SEND:
        return f"never received what rank {rank} sends in {what}"
    return f"never sent what rank {rank} waits for in {what}"
