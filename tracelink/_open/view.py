"""What the UI shows first after it loaded a trace, as the header of the trace says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from tracelink._join.forecast import TraceKind
from tracelink.converters.perfetto.timeline.schema import OWN_HEADER, VIEW
from tracelink.converters.perfetto.timeline.view import HUNG_TRACKS, StartupView

# The startup view: commands and times in the address.


PIN = "dev.perfetto.PinTracksByRegex"
EXPAND = "dev.perfetto.ExpandTracksByRegex"
"""Commands that the UI allows in an address."""

SUMMARIES = "^rank 0*[0-7] steps and waits"
"""Tracks that JSON has instead of what the headings of ranks show in native traces, of the first ranks."""

MOST_PATTERNS, LONGEST_PATTERN = 8, 200
"""Other views are not used: a file can contain anything."""


def view_of(head: bytes, kind: TraceKind) -> StartupView:
    """The view in the header of a trace that starts with these uncompressed bytes; without one, the groups."""
    own = head.find(b'"%s"' % OWN_HEADER.encode())
    begin = head.find(b'"%s":' % VIEW.encode(), own) if own >= 0 else -1
    if begin < 0:
        return StartupView()
    text = head[begin + len(VIEW) + 3 :][: 2 * MOST_PATTERNS * LONGEST_PATTERN].decode(errors="replace")
    try:
        found, _ = json.JSONDecoder().raw_decode(text.lstrip())
        view = StartupView(_patterns(found["pinned"]), _patterns(found["expanded"]), _window(found))
    except (ValueError, KeyError, TypeError, RecursionError):
        return StartupView()
    hangs = HUNG_TRACKS[0] in view.pinned
    return view if kind is not TraceKind.JSON or hangs else replace(view, pinned=(SUMMARIES, *view.pinned))


def _patterns(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MOST_PATTERNS:
        raise ValueError("not a list of patterns")
    if not all(isinstance(one, str) and len(one) <= LONGEST_PATTERN for one in value):
        raise ValueError("not a pattern")
    return tuple(value)


def _window(view: Mapping[str, Any]) -> tuple[int, int] | None:
    window = view.get("window")
    if window is None:
        return None
    first, last = window
    if type(first) is not int or type(last) is not int or not 0 <= first < last < 1 << 62:
        raise ValueError("not a window")
    return first, last


def parts_of_address(view: StartupView) -> Mapping[str, str]:
    """The view as parts of an address."""
    commands = [(EXPAND, pattern) for pattern in view.expanded]
    commands += [(PIN, pattern) for pattern in view.pinned]
    listed = [{"id": command, "args": [pattern]} for command, pattern in commands]
    parts = {"startupCommands": json.dumps(listed, separators=(",", ":"))}
    if view.window:
        first, last = view.window
        parts |= {"visStart": str(first), "visEnd": str(last)}
    return parts
