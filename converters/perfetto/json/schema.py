"""Keys of Perfetto's JSON (Chrome's trace event format), and the constant text of its events.

Every event starts by closing the one before it, and is left open up to the text that follows.
"""

from __future__ import annotations

from typing import Any

from tracelink.converters.perfetto.json_text import quoted
from tracelink.converters.perfetto.timeline.flows import SliceFlow
from tracelink.converters.perfetto.timeline.schema import LINK, RECORDER, SCOPES

# The document.

EVENTS = b',\n"traceEvents": [\n'
LAST = b"}"
"""Closes the last event."""

END = b"\n]\n}\n"

# Parts of events.

NEXT = b"},\n"
"""Closes an event, before the next one."""

TIME = b',"ts":'
DURATION = b',"dur":'
ARGUMENTS = b',"args":'
RECORDED = b'{"%s":%%s}' % RECORDER.encode()
"""The argument that holds what a recorder recorded."""

COUNTER_VALUE = b',"args":{"value":'
AFTER_ARGUMENT = b'}},"ts":'
"""Follows the value of the only argument of an instant."""

HUNG_COLOUR = b',"cname":"terrible"'
"""The colour of slices that hang; `chrome://tracing` uses it."""

SLICE, INSTANT = b'"X"', b'"i","s":"t"'
INSTANTS = tuple(b'"i","s":"%s"' % scope.encode() for scope in SCOPES.values())
"""Instants by their scope, a value of `InstantScope`."""

FLOW_START, FLOW_END = b'"s"', b'"f"'
ENCLOSED_FLOW_END = b'"f","bp":"e"'
"""The end of a flow at the slice around it, not at the next one."""


def metadata_event(name: str, pid: int | str, tid: int | str, args: dict[str, Any]) -> dict[str, Any]:
    """An event with the name, label or order of a thread, or of a process if `tid` is 0."""
    return {"ph": "M", "name": name, "pid": pid, "tid": tid or pid, "ts": 0, "args": args}


def event_opening(phase: bytes, category: bytes, pid: bytes, tid: bytes) -> bytes:
    """A slice or an instant up to its name; everything is JSON text."""
    return b'%s{"ph":%s,"cat":%s,"pid":%s,"tid":%s,"name":' % (NEXT, phase, category, pid, tid)


def instant_opening(category: str, name: str, argument: str | None, pid: int, tid: int) -> bytes:
    """An instant up to the value of its only argument, or up to its time without one."""
    form = '%s{"ph":"i","s":"t","cat":"%s","name":"%s","pid":%d,"tid":%d'
    args = "" if argument is None else f',"args":{{"{LINK}":{{"{argument}":'
    return (form % (NEXT.decode(), category, name, pid, tid) + args).encode()


def flow_opening(phase: bytes, name: str, pid: int, tid: int) -> bytes:
    """The start or end of a flow up to its number."""
    text = name.encode()
    return b'%s{"ph":%s,"cat":"%s","name":"%s","pid":%d,"tid":%d,"id":' % (NEXT, phase, text, text, pid, tid)


def sample_opening(name: str, pid: int) -> bytes:
    """A sample of a counter up to its time."""
    return b'%s{"ph":"C","name":%s,"pid":%d,"tid":%d' % (NEXT, quoted(name), pid, pid)


def slice_flow_members(slice_flow: SliceFlow) -> bytes:
    """The members of a slice that carries a flow."""
    outgoing = b',"flow_out":true' if slice_flow.outgoing else b""
    incoming = b',"flow_in":true' if slice_flow.incoming else b""
    return b',"bind_id":%d%s%s' % (slice_flow.number, outgoing, incoming)
