"""Keys and constant text of Perfetto's JSON."""

from __future__ import annotations

from tracelink.converters.perfetto.timeline.schema import RECORDER

INNER_END = b'"f","bp":"e"'
"""The end of an arrow that belongs to the slice around it."""


HUNG_COLOUR = b',"cname":"terrible"'
"""The colour of slices that hang, where the viewer takes one: `chrome://tracing` does."""


COUNTER_KEY = "value"


EVENTS = b',\n"traceEvents": [\n'


END = b"\n]\n}\n"


LAST = b"}"
"""Closes the last event."""


NEXT = b"},\n"
"""Every event closes the one before it: one piece fewer for each."""


DURATION = b',"dur":'


ARGUMENTS = b',"args":'


RECORDED = b'{"%s":%%s}' % RECORDER.encode()


TIME = b',"ts":'


AFTER_ARGUMENT = b'}},"ts":'
