"""Ranks that request different things: other operations, types, sizes or peers, skipped calls and extra ones."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from tracelink._hang.model import Category, Kind
from tracelink._hang.verdicts.base import Verdict
from tracelink._model.columns import UNKNOWN
from tracelink._model.operations import ROOTED, operation_of
from tracelink._model.text import capitalized, counted, lowered, operation_in_words


class OtherProgram(Verdict, frozen=True, kw_only=True):
    """Ranks made too few or too many calls: they disagree with the others in all later calls of the group."""

    number: int = 1
    """How many calls in a row."""

    usual = Category.CODE_PATH
    foldable = True

    def facts(self) -> tuple[Any, ...]:
        """What is around the calls is of one group."""
        return (self.number,)

    @property
    def after(self) -> str:
        """` and the 2 calls after it`."""
        calls = "call" if self.number == 2 else f"{self.number - 1} calls"
        return f" and the {calls} after it" if self.number > 1 else ""


class Skipped(OtherProgram, frozen=True, kw_only=True):
    """Ranks skipped calls and continued with later ones."""

    kind: Kind = Kind.SKIPPED
    continued: str = ""
    """What they continued with: `all_reduce at train.py:65`."""
    line: str = ""
    """Where the others made the first skipped call, if only that tells it from the one after them."""

    def claim(self) -> str:
        """Rank 3 skipped a call."""
        at = f" at {self.line}" if self.line else ""
        return f"{self.ranks} skipped {self.call}{at}{self.after} and continued with {self.continued}"

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


class ExtraCall(OtherProgram, frozen=True, kw_only=True):
    """Ranks made calls that the others did not make."""

    kind: Kind = Kind.EXTRA_CALL
    other: int
    """A rank that did not make them."""

    def claim(self) -> str:
        """Rank 0 made 3 calls that rank 1 did not make."""
        calls = "a call" if self.number == 1 else f"{self.number} calls"
        return f"{self.ranks} made {calls} that rank {self.other} did not make: {self.call}{self.after}"

    def next_step(self) -> str:
        """The branch that only the culprit takes."""
        where = f" at {self.own_line}" if self.own_line else ""
        return f"Look for the branch or the loop that only {self.example} takes{where}, or make the call on all ranks."


class Request(Struct, frozen=True):
    """What a rank requested."""

    operation: str
    elements_in: int
    elements_out: int
    type_in: str
    type_out: str

    @property
    def elements(self) -> int:
        """Of what is sent, else of what is received."""
        return self.elements_in if self.elements_in != UNKNOWN else self.elements_out

    @property
    def type(self) -> str:
        """Of what is sent, else of what is received."""
        return self.type_in or self.type_out or "no type"

    def in_words(self) -> str:
        """`broadcast of 256 Float`."""
        size = f" of {self.elements:,} {self.type}" if self.elements != UNKNOWN else ""
        return f"{operation_in_words(self.operation)}{size}"


class Mismatch(Verdict, frozen=True, kw_only=True):
    """Ranks requested something else than the others under one number."""

    own: Request | None = None
    others: Request | None = None
    within: str = ""
    """Where in a coalesced call: ` in tensor 4 of 4`."""

    foldable = True

    def both(self) -> tuple[str, str]:
        """What the culprits requested, and the others, as far as it differs."""
        raise NotImplementedError

    def claim(self) -> str:
        """Rank 1 called something else."""
        own, others = self.both()
        if own == others:
            often = "equally often" if self.tie else "as often as the others"
            claim = f"{self.ranks} did not call {self.call} {often} under this sequence number"
        elif self.tie:
            differing = f"{own} or {others}{self.within}. It is unknown which rank is wrong"
            claim = f"{self.ranks} do not agree in {self.call}: {differing}"
        else:
            claim = f"{self.ranks} called {self.difference(own, others)}"
        return f"{claim}{self.shown_by}"

    def difference(self, own: str, others: str) -> str:
        """`all_reduce #5 of group 0 with Int, the others with Float`."""
        return f"{self.call} with {own}{self.within}, the others with {others}"

    def step_to_other_line(self) -> str:
        """The condition that takes culprits to another line than the others; empty if no other line is known."""
        own, other = self.own_line, self.other_line
        if not own or not other or own == other:
            return ""
        return (
            f"{capitalized(self.example)} called from {own}, the others from {other}: look for the condition that "
            "takes them to different lines."
        )

    @property
    def shown_by(self) -> str:
        """` (3 collectives show it)`."""
        return f" ({self.count} collectives show it)" if self.count > 1 else ""


class OtherOperation(Mismatch, frozen=True, kw_only=True):
    """Ranks called another operation than the others."""

    kind: Kind = Kind.OPERATION_MISMATCH

    usual = Category.CODE_PATH

    def both(self) -> tuple[str, str]:
        """The requests; the recorded operations if they are alike."""
        assert self.own
        assert self.others
        own, others = self.own.in_words(), self.others.in_words()
        return (self.own.operation, self.others.operation) if own == others else (own, others)

    def difference(self, own: str, others: str) -> str:
        """`broadcast of 8 Float instead of all_reduce #5 of group 0`."""
        return f"{own} instead of {self.call}, the others called {others}"

    def next_step(self) -> str:
        """The condition that takes them there."""
        other = f"Look for the condition that takes {self.example} to another call than the others."
        return self.step_to_other_line() or other


class OtherTensor(Mismatch, frozen=True, kw_only=True):
    """Ranks passed tensors of another type or size than the others."""

    usual = Category.WRONG_ARGUMENTS

    def found_category(self) -> Category:
        """Calls of different lines are of ranks that took different ways."""
        return Category.CODE_PATH if self.step_to_other_line() else super().found_category()

    def both(self) -> tuple[str, str]:
        """Types or sizes."""
        assert self.own
        assert self.others
        own, others = self.own, self.others
        if self.kind is Kind.DTYPE_MISMATCH:
            if own.type != others.type:
                return own.type, others.type
            return f"output of {own.type_out or 'no type'}", others.type_out or "no type"
        if own.elements != others.elements:
            return counted(own.elements, "element"), f"{others.elements:,}"
        if own.elements_out != others.elements_out:
            return f"{counted(own.elements_out, 'element')} of output", f"{others.elements_out:,}"
        return f"another tensor shape (also {counted(own.elements, 'element')})", "one shape"

    def next_step(self) -> str:
        """The tensor, and the usual causes; or the lines of the calls, if these differ."""
        if step := self.step_to_other_line():
            return step
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


class Split(Struct, frozen=True):
    """What ranks of an all-to-all send, and what the receivers expect."""

    sent: int
    expected: int
    sender: int = UNKNOWN
    """UNKNOWN if only the sums of all ranks are known."""
    receiver: int = UNKNOWN


class OtherSplit(OtherTensor, frozen=True, kw_only=True):
    """Ranks of an all-to-all send another size than the receivers expect."""

    kind: Kind = Kind.SIZE_MISMATCH
    split: Split

    def claim(self) -> str:
        """The first pair of ranks, or the sums."""
        split, sent = self.split, counted(self.split.sent, "element")
        if split.sender == UNKNOWN:
            sizes = f"all ranks together send {sent} and expect {split.expected:,}"
        else:
            sizes = (
                f"rank {split.sender} sends {sent} to rank {split.receiver}, which expects {split.expected:,}"
            )
        wrong = (
            "it is unknown which rank is wrong" if self.tie else f"{lowered(self.ranks)} has the wrong sizes"
        )
        return f"Sizes do not match in {self.call}: {sizes}; {wrong}{self.shown_by}"


class OtherPeer(Mismatch, frozen=True, kw_only=True):
    """Ranks named another root, source or target than the others."""

    kind: Kind = Kind.PEER_MISMATCH
    roots: tuple[int, int] | None = None
    """The root that they named, and that of the others."""

    usual = Category.WRONG_ARGUMENTS

    def both(self) -> tuple[str, str]:
        """The roots."""
        own, others = self.roots or (UNKNOWN, UNKNOWN)
        return f"root {own}", f"root {others}"

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
