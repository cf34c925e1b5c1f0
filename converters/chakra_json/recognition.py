"""By what a linked trace is told from the execution trace that it was made of."""

from __future__ import annotations

import re

NODES_MARK = re.compile(rb'^[\xef\xbb\xbf \t\r\n]*\{.*?"nodes"\s*:\s*\[', re.DOTALL)
LINKED_MARK = re.compile(
    rb'"(?:inclusive_dur|exclusive_dur|inter_thread_dep|baseTimeNanoseconds)"\s*:'
    rb'|"nodes"\s*:\s*\[\s*\{(?=[^{}]*"id"\s*:\s*0\b)[^{}]*\|process\]"'
)
"""Times, or the root as node 0: its ids count anew. The first nodes are often such as no profile saw."""


def is_linked(head: bytes) -> bool:
    """Whether a file that begins so is an execution trace linked to a profile."""
    return bool(NODES_MARK.match(head) and LINKED_MARK.search(head))
