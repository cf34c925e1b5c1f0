"""The head of an HTTP request, read strictly: whoever writes it otherwise is no browser."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

END = b"\r\n\r\n"
LONGEST = 8 << 10
"""Bytes of a head; that of a browser has about 1,000."""

MOST_HEADERS = 64
FIRST_LINE = re.compile(r"([A-Z]{1,16}) (/[!-~]*) HTTP/1\.[01]", re.ASCII)
HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t -~\x80-\xff]*)")


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for."""

    method: str
    target: str
    headers: Mapping[str, str]
    """By names in small letters."""

    @classmethod
    def parse(cls, head: bytes) -> Request | None:
        """The request that begins with `head`; None where it is none."""
        first, *lines = head.removesuffix(END).decode("latin-1").split("\r\n")
        asked = FIRST_LINE.fullmatch(first)
        if not asked or len(lines) > MOST_HEADERS:
            return None
        headers: dict[str, str] = {}
        for line in lines:
            header = HEADER.fullmatch(line)
            if not header or header[1].lower() in headers:
                return None
            headers[header[1].lower()] = header[2].strip(" \t")
        return cls(asked[1], asked[2], headers)
