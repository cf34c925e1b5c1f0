"""Ranks that request different things: other operations, types, sizes or peers, skipped calls and extra ones."""

from __future__ import annotations

from tracelink.diagnosis.model import Category, Kind
from tracelink.diagnosis.verdicts.base import Verdict
from tracelink.model.operations import ROOTED, operation_of
from tracelink.model.text import capitalized


class Skipped(Verdict, frozen=True, kw_only=True):
    """Ranks skipped a call and continued with later ones."""

    kind: Kind = Kind.SKIPPED
    continued: str = ""
    """What they continued with: `all_reduce at train.py:65`."""

    usual = Category.CODE_PATH
    foldable = True

    def claim(self) -> str:
        """Rank 3 skipped a call."""
        return f"{self.ranks} skipped {self.call} and continued with {self.continued}"

    def next_step(self) -> str:
        """The branch that skips it."""
        own, other = self.own_line, self.other_line
        if own and other and own != other:
            return (
                f"The others called it at {other}, and {self.example} continued at {own}: look for the branch that "
                "skipped the call."
            )
        where = f" at {other}" if other else ""
        return f"Look for the branch or the loop in which {self.example} skipped the call{where}."


class OtherOperation(Verdict, frozen=True, kw_only=True):
    """Ranks called another operation than the others."""

    kind: Kind = Kind.OPERATION_MISMATCH

    usual = Category.CODE_PATH
    foldable = True

    def next_step(self) -> str:
        """The condition that takes them there."""
        own, other = self.own_line, self.other_line
        if own and other and own != other:
            return (
                f"{capitalized(self.example)} called from {own}, the others from {other}: look for the condition that "
                "takes them to different lines."
            )
        return f"Look for the condition that takes {self.example} to another call than the others."


class OtherTensor(Verdict, frozen=True, kw_only=True):
    """Ranks passed tensors of another type or size than the others."""

    usual = Category.WRONG_ARGUMENTS
    foldable = True

    def next_step(self) -> str:
        """The tensor, and the usual causes."""
        causes = (
            "autocast, a cast, or a checkpoint or default of another dtype"
            if self.kind is Kind.DTYPE_MISMATCH
            else "an uneven last batch (drop_last), uneven shards, or a setting that differs"
        )
        at = f" at {self.own_line}" if self.own_line else ""
        look = (
            f"It is unknown which rank is wrong: compare the tensors{at} on all of them."
            if self.tie
            else f"Check the tensor that {self.example} passes{at}."
        )
        return f"{look} Usual causes: {causes}."


class OtherPeer(Verdict, frozen=True, kw_only=True):
    """Ranks named another root, source or target than the others."""

    kind: Kind = Kind.PEER_MISMATCH

    usual = Category.WRONG_ARGUMENTS
    foldable = True

    def next_step(self) -> str:
        """The calls to compare."""
        if operation_of(self.operation) in ROOTED:
            return (
                f"Compare the root (src, dst) of the calls{self.lines}: all ranks must name the same one, by its rank "
                "in the job and not in the group."
            )
        return (
            f"Compare source, destination and order of the calls{self.lines}: each send needs a receive between the "
            "same two ranks, in the same order."
        )
