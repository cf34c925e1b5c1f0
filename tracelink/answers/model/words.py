"""Numbers and names of summaries, as every page writes them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tracelink.answers.model.results import NOTHING_LAUNCHED, Cause, Note, Portion, WorkIn
from tracelink.model.findings import Severity
from tracelink.model.text import name_in_words, shortened
from tracelink.show.markdown import markdown_escaped

FUNCTOR = re.compile(r"(\w*[Ff]unctor\w*)")
"""What a generic kernel of PyTorch computes, among the arguments of its template."""
NOISE = re.compile(r"\(anonymous namespace\)::|^void ")
LONGEST_KERNEL = 72


def percent(part: int, whole: int) -> str:
    """`12 %`; with a decimal below 10 %."""
    share = 100 * part / whole if whole else 0
    return f"{share:.0f} %" if share >= 9.95 or not part else f"{share:.1f} %"


def kernel_in_words(name: str) -> str:
    """`at::native::vectorized_elementwise_kernel<AddFunctor>` for a kernel with the arguments of its template."""
    plain = NOISE.sub("", name_in_words(name) if len(name) < LONGEST_KERNEL else name)
    base = re.split(r"[<(]", plain, maxsplit=1)[0] or plain
    functor = FUNCTOR.search(plain[len(base) :])
    return shortened(name_in_words(f"{base}<{functor[1]}>" if functor else base), LONGEST_KERNEL)


CAUSES = {
    Cause.HOST_BOUND: "launched too late",
    Cause.DATA_LOADING: "data loading",
    Cause.SYNCHRONIZATION: "host waited for the device",
    Cause.LAUNCH_BOUND: "launching",
    Cause.KERNEL_GAP: "gaps between kernels",
    Cause.STREAM_DEPENDENCY: "dependency between streams",
    Cause.WAITING_FOR_RANK: "waiting for rank",
    Cause.TRANSFER: "transfer",
    Cause.COPY: "copy",
    Cause.NOT_RECORDED: "no events of the process",
    Cause.UNKNOWN: "unknown",
}


def cause_in_words(portion: Portion, work: WorkIn) -> str:
    """`launched too late: operators`, `waiting for rank 3`; of ranks without devices only what the host did."""
    words = CAUSES[portion.cause]
    if portion.rank is not None:
        return f"{words} {portion.rank}"
    if portion.cause is Cause.HOST_BOUND and (
        work is not WorkIn.KERNELS or portion.during == NOTHING_LAUNCHED
    ):
        return portion.during
    return f"{words}: {portion.during}" if portion.during else words


def notes_in_markdown(notes: Sequence[Note]) -> list[str]:
    """Lines of Markdown with the warnings and errors among notes, after an empty line; none if there are none."""
    shown = [note for note in notes if note.severity is not Severity.INFO]
    return ["", *(f"- {note.severity}: {markdown_escaped(note.message)}" for note in shown)] if shown else []
