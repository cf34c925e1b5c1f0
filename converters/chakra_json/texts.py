"""The JSON text of nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import msgspec
import numpy as np

from tracelink.converters.chakra_json.groups import profiled_groups
from tracelink.converters.chakra_json.names import current_name
from tracelink.converters.chakra_json.plan import Plan
from tracelink.converters.chakra_json.schema import (
    ATTRIBUTES,
    CATEGORIES,
    CATEGORY,
    COLLECTIVE_KERNEL,
    COMPLETE,
    EXCLUSIVE,
    GROUP,
    ID,
    INCLUSIVE,
    INPUTS,
    LINKED,
    NAME,
    OTHER_THREAD,
    OUTPUTS,
    PARENT,
    PHASE,
    PROCESS_ROOT,
    RECORDED_GROUP,
    STARTED,
    STREAM,
    SYNCHRONISED,
)
from tracelink.converters.chakra_json.spool import Spool
from tracelink.converters.chakra_json.upgrade import Fields, fields_of
from tracelink.events import EventKind
from tracelink.excerpt import NONE

NULL = b"null"


@dataclass(frozen=True, slots=True)
class NodeTexts:
    """Writes the nodes of a plan; `spool` has them as their file has them."""

    plan: Plan
    spool: Spool
    groups: Mapping[int, bytes]

    def all(self) -> Iterator[bytes]:
        """Each node, followed by the work that it put on devices."""
        tree, work = self.plan.tree, self.plan.work
        bounds = np.searchsorted(work.node, np.arange(len(tree) + 1)).tolist()
        for place in range(len(tree)):
            fields = self._node(place)
            yield _object(fields)
            for number in range(bounds[place], bounds[place + 1]):
                row = int(work.rows[number])
                yield _object(self._work(row, place, number - bounds[place] + 1, fields))

    def _node(self, place: int) -> Fields:
        plan = self.plan
        recorded = fields_of(self._recorded(place))
        fields = {
            ID: b"%d" % plan.ids[place],
            NAME: recorded.pop(NAME, b"") or self._name(place),
            PARENT: b"%d" % plan.ids[plan.tree.parent[place]],
        }
        fields |= {key: value for key, value in recorded.items() if key not in fields and key not in LINKED}
        operator = int(plan.operator[place])
        if operator == NONE:
            return fields
        waited = int(plan.hand_overs.awaited[place])
        other_thread = NULL if waited == NONE else b"%d" % plan.ids[waited]
        fields |= self._times(operator, int(plan.exclusive[operator]), other_thread)
        if waits := plan.device_waits.of(place):
            fields[SYNCHRONISED] = b"[%s]" % b",".join(b"%d" % plan.id_of_work(number) for number in waits)
        return fields

    def _work(self, row: int, place: int, number: int, node: Fields) -> Fields:
        """A copy of its node's values, with a name, times and a stream of its own."""
        graph, events = self.plan.part.graph, self.plan.part.events
        inclusive = max(int(events.duration[row]), 0)
        name = graph.strings[events.name[row]]
        fields = {
            ID: b"%d" % (self.plan.ids[place] + number),
            NAME: _quoted(current_name(name)),
            PARENT: node[ID],
            **{key: node[key] for key in (INPUTS, OUTPUTS, ATTRIBUTES)},
            **self._times(row, inclusive, node.get(OTHER_THREAD, NULL)),
            CATEGORY: _quoted(CATEGORIES[EventKind(events.kind[row])]),
            PHASE: _quoted(COMPLETE),
            STREAM: _whole(graph.tracks[events.track[row]].identity),
        }
        group = self.groups.get(row) or (COLLECTIVE_KERNEL.search(name) and self._recorded_group(place))
        return fields | {GROUP: group} if group else fields

    def _times(self, row: int, exclusive: int, other_thread: bytes) -> Fields:
        return {
            INCLUSIVE: microseconds(max(int(self.plan.part.events.duration[row]), 0)),
            EXCLUSIVE: microseconds(exclusive),
            STARTED: microseconds(int(self.plan.part.events.start[row]) - self.plan.base),
            OTHER_THREAD: other_thread,
        }

    def _recorded(self, place: int) -> bytes:
        row = int(self.plan.tree.rows[place])
        return b"" if row == NONE else self.spool.text(int(self.plan.part.events.payload[row]))

    def _recorded_group(self, place: int) -> bytes:
        """The group that the node or the one around it names: `nccl:*` stands in `record_param_comms`."""
        for candidate in (place, int(self.plan.tree.parent[place])):
            if match := RECORDED_GROUP.search(self._recorded(candidate)):
                return match[1]
        return b""

    def _name(self, place: int) -> bytes:
        row = int(self.plan.tree.rows[place])
        part = self.plan.part
        return _quoted(PROCESS_ROOT if row == NONE else part.graph.strings[part.events.name[row]])


def node_texts(plan: Plan, spool: Spool) -> NodeTexts:
    """The texts of a plan, with the groups that its profile names."""
    part = plan.part
    return NodeTexts(plan, spool, profiled_groups(part.graph, plan.work.rows))


def microseconds(nanoseconds: int) -> bytes:
    """An exact decimal."""
    whole, rest = divmod(abs(nanoseconds), 1000)
    return b"%s%d.%03d" % (b"-" if nanoseconds < 0 else b"", whole, rest)


def _object(fields: Fields) -> bytes:
    return b"{" + b",".join([_key(key) + value for key, value in fields.items()]) + b"}"


@lru_cache(maxsize=256)
def _key(text: str) -> bytes:
    return _quoted(text) + b":"


def _quoted(text: str) -> bytes:
    return msgspec.json.encode(text)


def _whole(text: str) -> bytes:
    return text.encode() if text.isdecimal() and text.isascii() else b"0"
