"""What events say as arguments, as the text of JSON objects: those of all events of a batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

import msgspec
import numpy as np

from tracelink.converters.perfetto.schema import COLLECTIVE, LINK, ORIGINAL, RECORDER
from tracelink.converters.perfetto.text import Texts, numbers, quoted, table
from tracelink.converters.perfetto_native.readable import as_recorded
from tracelink.converters.perfetto_native.reading.packets import NOTHING
from tracelink.converters.perfetto_native.reading.sequences import Tables, named
from tracelink.converters.perfetto_native.reading.states import last_numbers
from tracelink.converters.perfetto_native.schema import Argument, Event, Table
from tracelink.errors import UnreadableError
from tracelink.events import Bools, Int32s, Int64s
from tracelink.fields import DELIMITED, Fields, Read, split_all
from tracelink.octets import Octets

GROUPS = (ORIGINAL, RECORDER, LINK, COLLECTIVE)
"""The arguments that all others stand in."""

MOST_DEPTH = 200
NUMBERED = {Argument.BOOLEAN, Argument.UNSIGNED, Argument.INTEGER, Argument.TEXT_NUMBER}
VALUES = [*NUMBERED, Argument.DOUBLE, Argument.TEXT, Argument.JSON]
BEFORE = b',"args":{'


@dataclass(frozen=True, slots=True)
class Nodes:
    """Arguments and their members, each before what is in it."""

    event: Int64s
    """The place of the event among those that are asked for."""
    first: Int64s
    """Where the argument begins that it is in: events and arguments stand in the order of the bytes."""
    begin: Int64s
    depth: Int64s
    name: Int64s
    """A place in the list of names."""
    kind: Int64s
    """The field of its value, `Argument.MEMBER` where it has members, 0 where it has nothing."""
    value: Int64s
    """A number, its bits, or where its text begins."""
    end: Int64s

    def __len__(self) -> int:
        return len(self.event)

    def where(self, some: Int64s | Bools) -> Nodes:
        """Some of them."""
        return Nodes(*(getattr(self, one.name)[some] for one in fields(self)))

    @classmethod
    def concatenate(cls, parts: list[Nodes]) -> Nodes:
        """All of them."""
        return cls(*(np.concatenate([getattr(part, one.name) for part in parts]) for one in fields(cls)))


@dataclass(frozen=True, slots=True)
class Pieces:
    """For each node what stands before its value and the value; and what closes the arguments of each event."""

    event: Int64s
    before: Texts
    value: Texts
    closing: Texts


@dataclass(slots=True)
class ArgumentTexts:
    """Turns the arguments of events into text."""

    tables: Tables
    recorded: bool = False
    """Whether only what sources recorded is written."""
    _values: dict[tuple[int, int], bytes] = field(default_factory=dict)
    _names: dict[str, int] = field(default_factory=dict)

    def of_events(self, octets: Octets, inner: Fields, epoch: Int32s, bare: Bools) -> Pieces:
        """The arguments of events, of which `inner` are the fields; in those that are `bare` collectives are too."""
        nodes = self._nodes(octets, inner, epoch)
        nodes = self._in_groups(nodes)
        nodes = nodes.where(np.lexsort((nodes.begin, nodes.first)))
        if self.recorded:
            nodes = nodes.where(~np.isin(nodes.first, nodes.first[self._found_out(nodes)]))
        nodes = _without_wrapping(nodes, self._wraps(nodes, bare) & (nodes.kind == Argument.MEMBER))
        value = self._value_texts(octets, nodes, epoch)
        spread = _spread(value, np.flatnonzero(self._wraps(nodes, bare) & (nodes.kind == Argument.JSON)))
        nodes.name[spread] = NOTHING
        return self._pieces(nodes, value, len(epoch))

    def _nodes(self, octets: Octets, inner: Fields, epoch: Int32s) -> Nodes:
        owner, read = inner.of(Event.ARGUMENT)
        some = read.wire == DELIMITED
        event, read = owner[some], read.where(some)
        first, depth, parts = read.begin, 0, list[Nodes]()
        while len(event) or not parts:
            if depth > MOST_DEPTH:
                raise UnreadableError(f"arguments within arguments, {MOST_DEPTH} deep")
            told = split_all(octets, read.begin, read.end)
            parts.append(self._level(octets, told, event, first, read, depth, epoch))
            owner, read = told.of(Argument.MEMBER)
            some = read.wire == DELIMITED
            event, first, read, depth = event[owner[some]], first[owner[some]], read.where(some), depth + 1
        return Nodes.concatenate(parts)

    def _level(
        self,
        octets: Octets,
        told: Fields,
        event: Int64s,
        first: Int64s,
        read: Read,
        depth: int,
        epoch: Int32s,
    ) -> Nodes:
        """The nodes of one depth, each of which is one message."""
        count = len(event)
        kind, value, end = np.zeros((3, count), np.int64)
        for number in VALUES:
            owner, found = told.of(number)
            kind[owner] = number
            value[owner] = found.value if number in NUMBERED else found.begin
            end[owner] = found.end
        kind[told.of(Argument.MEMBER)[0]] = Argument.MEMBER
        name = self._name_places(octets, told, epoch[event])
        return Nodes(event, first, read.begin, np.full(count, depth), name, kind, value, end)

    def _name_places(self, octets: Octets, told: Fields, epoch: Int32s) -> Int64s:
        number = last_numbers(told, Argument.NAME, len(epoch), NOTHING)
        texts, which = named(self.tables, Table.ARGUMENT_NAMES, epoch, number)
        places = np.array([self._place(text or "") for text in texts], np.int64)[which]
        owner, read = told.of(Argument.NAME_TEXT)
        for row, begin, end in zip(owner.tolist(), read.begin.tolist(), read.end.tolist(), strict=True):
            places[row] = self._place(octets.data[begin:end].decode(errors="replace"))
        return places

    def _place(self, name: str) -> int:
        return self._names.setdefault(name, len(self._names))

    def _in_groups(self, nodes: Nodes) -> Nodes:
        """Arguments that say with a dot which one they are in, put into that one."""
        split = [name.partition(".") for name in list(self._names)]
        dotted = np.array([bool(dot) and group in GROUPS for group, dot, _ in split], np.bool_)
        if not dotted.any():
            return nodes
        flat = np.flatnonzero((nodes.depth == 0) & dotted[nodes.name])
        group_of = np.array([self._place(group) for group, _, _ in split], np.int64)
        rest_of = np.array([self._place(rest) for _, _, rest in split], np.int64)
        begins = nodes.begin[flat]
        groups = np.stack([nodes.event[flat], group_of[nodes.name[flat]]])
        kinds, at, which = np.unique(groups, axis=1, return_index=True, return_inverse=True)
        heads, nothing = begins[at] - 1, np.zeros(len(at), np.int64)
        member = nothing + Argument.MEMBER
        inside = np.flatnonzero(np.isin(nodes.first, begins))
        first, depth, name = nodes.first.copy(), nodes.depth.copy(), nodes.name.copy()
        first[inside] = heads[which.ravel()][np.searchsorted(begins, first[inside])]
        depth[inside] += 1
        name[flat] = rest_of[name[flat]]
        moved = replace(nodes, first=first, depth=depth, name=name)
        return Nodes.concatenate(
            [Nodes(kinds[0], heads, heads, nothing, kinds[1], member, nothing, nothing), moved]
        )

    def _wraps(self, nodes: Nodes, bare: Bools) -> Bools:
        """Which arguments only hold others that stand by themselves in JSON."""
        original, collective = self._place(ORIGINAL), self._place(COLLECTIVE)
        inside = (nodes.name == original) | ((nodes.name == collective) & bare[nodes.event])
        wraps: Bools = inside & (nodes.depth == 0)
        return wraps

    def _found_out(self, nodes: Nodes) -> Bools:
        """The arguments of what tracelink found out."""
        known = [self._place(LINK), self._place(COLLECTIVE)]
        found: Bools = np.isin(nodes.name, known) & (nodes.depth == 0)
        return found

    def _value_texts(self, octets: Octets, nodes: Nodes, epoch: Int32s) -> Texts:
        texts = np.full(len(nodes), b"{}", object)
        texts[nodes.kind == Argument.MEMBER] = b"{"
        made: Mapping[Argument, Callable[[Int64s], list[bytes]]] = {
            Argument.BOOLEAN: lambda value: [b"true" if one else b"false" for one in value.tolist()],
            Argument.INTEGER: numbers,
            Argument.UNSIGNED: lambda value: [b"%d" % one for one in value.view(np.uint64).tolist()],
            Argument.DOUBLE: lambda value: numbers(octets.words(value).view(np.float64)),
        }
        for kind, make in made.items():
            some = np.flatnonzero(nodes.kind == kind)
            texts[some] = table(make(np.ascontiguousarray(nodes.value[some])), len(some))
        for kind, texts_of in ((Argument.TEXT, _quoted), (Argument.JSON, _recorded)):
            some = np.flatnonzero(nodes.kind == kind)
            spans = map(slice, nodes.value[some].tolist(), nodes.end[some].tolist())
            texts[some] = table(texts_of([octets.data[span] for span in spans]), len(some))
        some = np.flatnonzero(nodes.kind == Argument.TEXT_NUMBER)
        texts[some] = self._numbered(epoch[nodes.event[some]], nodes.value[some])
        return texts

    def _numbered(self, epoch: Int32s, number: Int64s) -> Texts:
        """Texts that stand in tables: those of even numbers are JSON."""
        texts, which = named(self.tables, Table.ARGUMENT_TEXTS, epoch, number)
        _, first = np.unique(which, return_index=True)
        pairs = zip(epoch[first].tolist(), number[first].tolist(), strict=True)
        found = [self._known(pair, text) for pair, text in zip(pairs, texts, strict=True)]
        return table(found, len(found))[which]

    def _known(self, pair: tuple[int, int], text: str | None) -> bytes:
        if pair not in self._values:
            self._values[pair] = b"null" if text is None else _text(text, is_json=pair[1] % 2 == 0)
        return self._values[pair]

    def _pieces(self, nodes: Nodes, value: Texts, events: int) -> Pieces:
        depth, event = nodes.depth, nodes.event
        opens = np.diff(event, prepend=-1) != 0
        inside = np.append(False, nodes.kind[:-1] == Argument.MEMBER)[: len(nodes)] & ~opens
        rises = np.append(0, depth[:-1])[: len(nodes)] - depth
        code = np.where(opens, 0, np.where(inside, 1, 2 + np.maximum(rises, 0)))
        names = [b"", *(quoted(name) + b":" for name in self._names)]
        codes, which = np.unique(code * len(names) + nodes.name + 1, return_inverse=True)
        keys = [
            _separator(how) + names[name] for how, name in (divmod(one, len(names)) for one in codes.tolist())
        ]
        closing = np.full(events, b"", object)
        last = np.flatnonzero(np.diff(event, append=-1) != 0)
        closing[event[last]] = table((b"}" * (deep + 1) for deep in depth[last].tolist()), len(last))
        return Pieces(event, table(keys, len(keys))[which], value, closing)


def _separator(code: int) -> bytes:
    """What stands before a name: the opening, nothing at the beginning of an object, or ends of objects."""
    return (BEFORE, b"")[code] if code < 2 else b"}" * (code - 2) + b","


def _without_wrapping(nodes: Nodes, wraps: Bools) -> Nodes:
    """Without some of the outermost arguments; their members take their place."""
    if not wraps.any():
        return nodes
    shallow = np.isin(nodes.first, nodes.begin[wraps])
    return replace(nodes, depth=nodes.depth - shallow).where(~wraps)


def _spread(value: Texts, places: Int64s) -> Int64s:
    """Leaves the members of these objects without what is around them; says of which there are any."""
    texts = [text.strip() for text in value[places].tolist()]
    members = [text[1:-1].strip() if text[:1] == b"{" else b"" for text in texts]
    some = places[[bool(text) for text in members]]
    value[some] = table(filter(None, members), len(some))
    return some


def _quoted(texts: Sequence[bytes]) -> list[bytes]:
    return [quoted(text.decode(errors="replace")) for text in texts]


def _recorded(texts: Sequence[bytes]) -> list[bytes]:
    """JSON texts as their sources said them."""
    texts = as_recorded(texts)
    try:
        whole = msgspec.json.decode(b"[%s]" % b",".join(texts), type=list[msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        whole = []
    if len(whole) == len(texts) and all(map(bytes.__eq__, map(bytes, whole), texts)):
        return texts
    return [_text(text.decode(errors="replace"), is_json=True) for text in texts]


def _text(text: str, *, is_json: bool) -> bytes:
    """JSON as it is where it is any, and every other text as a JSON string."""
    if is_json:
        try:
            msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return quoted(text)
        return text.encode()
    return quoted(text)
