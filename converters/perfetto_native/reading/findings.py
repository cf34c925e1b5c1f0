"""What did not fit in a native trace."""

from __future__ import annotations

from collections.abc import Iterator

from tracelink.converters.perfetto_native.reading.trace import Native
from tracelink.findings import Finding, Severity


def findings_of(path: str, native: Native) -> Iterator[Finding]:
    """All that is wrong with a file."""
    troubles, kept = native.troubles, len(native.events)
    if troubles.cut_off:
        text = (
            f"{path}: {troubles.cut_off}; the {kept:,} events before that are used. Copy or write it again."
        )
        yield _warning(path, "cut_off", text, 1, f"byte {troubles.offset}")
    counted = {
        "damaged": (troubles.damaged, "packets are damaged; what stands in them before the damage is used"),
        "damaged_bundles": (troubles.bundles, "bundles are damaged; the packets before the damage are used"),
        "unfinished": (troubles.unended, "events have no end: they last to the last one of the file"),
        "without_begin": (troubles.unbegun, "ends of events have no beginning and are left out"),
        "unknown_track": (
            troubles.homeless,
            "packets are on tracks that the file does not describe; left out",
        ),
        "without_name": (troubles.nameless, "events have names that are not in the file"),
        "unreadable_facts": (native.said.unusable, "descriptions of ranks cannot be read; left out"),
    }
    for reason, (count, text) in counted.items():
        if count:
            yield _warning(path, reason, f"{path}: {count:,} {text}.", count)


def _warning(path: str, reason: str, text: str, count: int, example: str = "") -> Finding:
    return Finding(Severity.WARNING, reason, text, count, path, example)


def left_out(path: str, count: int) -> Iterator[Finding]:
    """What to say of events that profilers did not record."""
    if count:
        text = (
            f"{path}: {count:,} entries of recorders, nodes of execution traces and ends of arrows are in the picture "
            "only; merge the files that it was made of to use them."
        )
        yield Finding(Severity.INFO, "picture_only", text, count, path)
