"""Numbers and names of summaries, as sentences have them."""

from __future__ import annotations

import re

from tracelink._model.text import name_in_words, shortened

FUNCTOR = re.compile(r"\b(\w*[Ff]unctor\w*)")
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
