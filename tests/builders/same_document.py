"""Documents of Perfetto's JSON as what they say, whatever numbers their arrows have and however events are sorted."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

from tracelink.io.streams import GZIP_MAGIC

Event = dict[str, Any]


def meaning(path: Path) -> tuple[dict[str, Any], Counter[str]]:
    """The header, and every event as a text; times are nanoseconds."""
    data = path.read_bytes()
    text = gzip.decompress(data) if data.startswith(GZIP_MAGIC) else data
    document = json.loads(text, parse_float=Decimal)
    events: list[Event] = document.pop("traceEvents")
    begins = {one["id"]: _place(one) for one in events if one["ph"] == "s"}
    carried: defaultdict[int, list[str]] = defaultdict(list)
    for one in events:
        if "bind_id" in one:
            carried[one["bind_id"]].append(
                f"{_place(one)} {one['name']} {'flow_in' in one} {'flow_out' in one}"
            )
    return document, Counter(_text(one, begins, carried) for one in events)


def _place(event: Event) -> str:
    return f"{event['cat']} {event['tid']} {event['ts']}"


def _text(event: Event, begins: dict[int, str], carried: dict[int, list[str]]) -> str:
    said = dict(event)
    for name in ("ts", "dur"):
        if name in said:
            said[name] = int(said[name] * 1000)
            assert said[name] == event[name] * 1000
    if "id" in said:
        said["id"] = begins[said["id"]]
    if "bind_id" in said:
        said["bind_id"] = sorted(carried[said["bind_id"]])
    if said.get("args") == {}:
        del said["args"]
    return json.dumps(said, sort_keys=True, default=float)
