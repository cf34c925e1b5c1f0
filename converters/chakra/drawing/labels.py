"""Texts of a drawing. Names come out of a trace, so they are bounded, and show whatever cannot be seen."""

from __future__ import annotations

import re

from tracelink.converters.chakra.drawing.scene import Box

LONGEST_NAME = 400
"""Letters of a name, where all of it is to be read."""

QUALIFIERS = re.compile(
    r"^(?:(?:static |inline )*(?:void|int|float|bool|auto) )?(?:(?:\w+|\(anonymous namespace\))::)+(?=\w)"
)
"""What stands before the own name of a kernel."""

MICROSECOND, MILLISECOND, SECOND = 10**3, 10**6, 10**9
UNITS = ((SECOND, "s"), (MILLISECOND, "ms"), (MICROSECOND, "µs"))
KILO = 1000


def visible(text: str, most: int = LONGEST_NAME) -> str:
    """The text in at most so many letters, with everything spelled out that no printer would show."""
    if len(text) > most:
        text = text[: most - 1] + "…"
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )


def short_name(box: Box) -> str:
    """The name without what kernels of C++ carry before it."""
    name = box.name[:LONGEST_NAME]
    bare = QUALIFIERS.sub("", name.removeprefix("void ")) if "(" in name or "<" in name else name
    return visible(bare or name or box.role.value)


def duration(ns: float) -> str:
    """12.3 µs."""
    for unit, name in UNITS:
        if abs(ns) >= unit:
            return f"{ns / unit:,.4g} {name}" if ns < KILO * unit else f"{ns / unit:,.0f} {name}"
    return f"{ns:.0f} ns"


def size(count: int) -> str:
    """12.3 MB."""
    value, units = float(count), iter(("kB", "MB", "GB", "TB", "PB"))
    unit = "B"
    while value >= KILO and (following := next(units, "")):
        value, unit = value / KILO, following
    return f"{value:.4g} {unit}"


def group_of(box: Box) -> str:
    """`group 3 (tp)`, or that it is all ranks."""
    if not box.group:
        return "all ranks"
    return f"group {visible(box.group, 60)}" + (f" ({visible(box.group_name, 60)})" if box.group_name else "")


def facts(box: Box, origin_ns: float) -> list[str]:
    """Everything that is to be said of a box, a line each."""
    lines = [visible(box.name) or "(no name)"]
    rank = "" if box.rank is None else f", rank {box.rank}"
    lines.append(f"{box.kind or box.role.value}, id {box.id}{rank}, {box.lane}")
    when = [f"takes {duration(box.duration_ns)}"]
    if box.start_ns is not None:
        when.insert(0, f"starts at {duration(box.start_ns - origin_ns)}")
    lines.append(", ".join(when))
    if box.kind:
        lines.append(", ".join([*([] if box.bytes is None else [size(box.bytes)]), group_of(box)]))
    if box.peer is not None:
        tag = "" if box.tag is None else f", tag {box.tag}"
        lines.append(f"{'to' if box.role == 'send' else 'from'} rank {box.peer}{tag}")
    if box.parts > 1:
        lines.append(f"stands for {box.parts:,} nodes: itself and those inside it")
    return lines
