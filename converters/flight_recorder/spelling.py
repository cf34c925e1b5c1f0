"""How torch spells an entry whose texts all stood in the dump before: numbers, and what stands between them.

A *span* is whole fields without numbers and the key of the next number, so that it can stand in another entry for
the same. It brings nothing into the memo: an entry of such spans can be left out, and nothing else reads differently.
"""

from __future__ import annotations

import re

GET = rb"(?:h.|j.{4})"
WHOLE_NUMBER = rb"(?:K.|M..|J.{4}|\x8a\x08.{8})"
LIST = rb"\]\((?:%b|\]\(%b*+e)*+e" % (GET, WHOLE_NUMBER)
WORD = rb"(?:%b%b\x86|%b|[\x88\x89]|%b)" % (GET, GET, GET, LIST)
"""A pair of texts, a text, a flag, or a list of texts or of sizes."""

FIELDS = rb"(?>%b%b)*+" % (GET, WORD)
TO_A_NUMBER = FIELDS + GET + rb"(?=[KMJGN\x8a])"

FIRST = re.compile(rb"\}\(" + TO_A_NUMBER, re.DOTALL)
MIDDLE = re.compile(TO_A_NUMBER, re.DOTALL)
LAST = re.compile(FIELDS + rb"u(?![qr])", re.DOTALL)
"""What is followed by a PUT is shared, and so is left where it is."""

NUMBER = re.compile(rb"%b|(G).{8}|N" % WHOLE_NUMBER, re.DOTALL)

KEYS = re.compile(rb"(%b)(?:%b)?+" % (GET, WORD), re.DOTALL)
"""The keys of a span."""

MOST_NUMBERS = 64
"""In an entry; torch writes ten."""

SHORT_PUT, LONG_PUT = b"qr"
GET_OF = {SHORT_PUT: b"h", LONG_PUT: b"j"}

FIRST_ENTRY = re.compile(
    rb"X\x07\0\0\0entries(?:q.|r.{4})\]\(\}\((?:(?P<known>%b)|X(?P<size>.{4}))" % GET, re.DOTALL
)
"""Where the list of entries begins, up to the first key of its first entry."""


def opening_of_entries(data: bytes) -> bytes | None:
    """How entries begin whose keys were all written before; None where there is no first entry."""
    first = FIRST_ENTRY.search(data)
    if not first or first["known"]:
        return b"}(" + first["known"] if first else None
    end = first.end() + int.from_bytes(first["size"], "little")
    put = data[end : end + 5]
    if len(put) < 5 or put[0] not in GET_OF:
        return None
    return b"}(" + GET_OF[put[0]] + (put[1:2] if put[0] == SHORT_PUT else put[1:])


def floats_among_numbers(data: bytes, start: int) -> list[bool] | None:
    """Which of its numbers are floats, of the entry that begins there; None where it is not of this kind."""
    floats: list[bool] = []
    span = FIRST.match(data, start)
    while span and len(floats) < MOST_NUMBERS and (number := NUMBER.match(data, span.end())):
        floats.append(number.lastindex is not None)
        if LAST.match(data, number.end()):
            return floats
        span = MIDDLE.match(data, number.end())
    return None
