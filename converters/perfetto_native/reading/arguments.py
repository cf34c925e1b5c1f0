"""What events say as arguments, as JSON: that of all events of a batch at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from tracelink.converters.perfetto.schema import COLLECTIVE, LINK, ORIGINAL
from tracelink.converters.perfetto.text import Texts, quoted, table
from tracelink.converters.perfetto_native.readable import as_recorded
from tracelink.converters.perfetto_native.reading import sequences
from tracelink.converters.perfetto_native.reading.messages import numbers_of, of_wire
from tracelink.converters.perfetto_native.reading.packets import NOTHING
from tracelink.converters.perfetto_native.schema import Argument, Event, Table
from tracelink.events import Bools, Int32s, Int64s
from tracelink.fields import Fields, split_all
from tracelink.octets import Octets

ANY = msgspec.json.Decoder(msgspec.Raw)


@dataclass(frozen=True, slots=True)
class ArgumentTexts:
    """Turns the arguments of events into text."""

    names: sequences.Texts
    recorded: bool = False
    """Whether only what sources recorded is written."""

    def of_events(self, octets: Octets, inner: Fields, sequence: Int32s, bare: Bools) -> Texts:
        """The arguments of events, of which `inner` are the fields; in those that are `bare` collectives are too."""
        event, read = of_wire(inner, Event.ARGUMENT)
        told = split_all(octets, read.begin, read.end)
        number = numbers_of(told, Argument.NAME, len(event), NOTHING)
        owner, read = of_wire(told, Argument.JSON)
        event, number = event[owner], number[owner]
        names, name = sequences.named(self.names, Table.ARGUMENT_NAMES, sequence[event], number)
        if self.recorded:
            some = ~_is(names, LINK, COLLECTIVE)[name]
            event, name, read = event[some], name[some], read.where(some)
        alone = _is(names, ORIGINAL)[name] | (_is(names, COLLECTIVE)[name] & bare[event])
        spans = map(slice, read.begin.tolist(), read.end.tolist())
        texts = _recorded([octets.data[span] for span in spans])
        return _joined(_members(texts, names, name, alone), event, len(sequence))


def _is(names: Sequence[str | None], *some: str) -> Bools:
    return np.array([name in some for name in names], np.bool_)


def _recorded(texts: Sequence[bytes]) -> list[bytes]:
    """JSON texts as their sources said them; what is none, in a damaged file, as a text."""
    return [text if _is_json(text) else quoted(text.decode(errors="replace")) for text in as_recorded(texts)]


def _is_json(text: bytes) -> bool:
    try:
        ANY.decode(text if text.isascii() else text.decode())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _members(texts: Sequence[bytes], names: Sequence[str | None], name: Int64s, alone: Bools) -> list[bytes]:
    """Each as a member of an object; of those that stand alone the members that they have."""
    keys = [quoted(one or "") + b":" for one in names]
    return [
        text[1:-1].strip() if bare and text.startswith(b"{") else keys[of] + text
        for text, of, bare in zip(texts, name.tolist(), alone.tolist(), strict=True)
    ]


def _joined(members: Sequence[bytes], event: Int64s, count: int) -> Texts:
    """All members of each of `count` events, as the arguments that it has."""
    joined = [b""] * count
    for place, member in zip(event.tolist(), members, strict=True):
        if member:
            joined[place] = joined[place] + b"," + member if joined[place] else member
    return table([b',"args":{%s}' % text if text else b"" for text in joined], count)
