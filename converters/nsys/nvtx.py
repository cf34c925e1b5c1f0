"""NVTX rows as events: ranges that programs and libraries named, and operators of torch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tracelink.converters.nsys.activities import Activities, pid_of
from tracelink.converters.nsys.database import Block, integer
from tracelink.converters.nsys.payloads import NvtxWords
from tracelink.converters.nsys.schema import (
    CATEGORY_NAME,
    DOMAIN,
    MARK,
    PID_BITS,
    PID_MASK,
    PUSH_POP,
    RANGES,
    START_END,
    THREAD_NAME,
)
from tracelink.model.columns import UNKNOWN, Bools, Int32s, Int64s, UInt8s
from tracelink.model.events import EventKind, Key, Track, TrackKind
from tracelink.model.operations import COLLECTIVE_ANNOTATION

NO_OPERATORS = ("Torch-Compiled Region", "## Call ", "ProfilerStep#")
"""Names of torch's ranges that are no operators."""
BACKWARD = "autograd::engine::evaluate_function: "
BACKWARD_THREAD = 1
"""The forward thread of a backward operator is not recorded, only that there is one."""
UNNAMED = "unnamed NVTX range"

ID, SEQUENCE = ", op_id = ", ", seq = "
FOUND = (f"instr(text, '{ID}') AS id_at", f"instr(text, '{SEQUENCE}') AS sequence_at")
NAME = """ifnull(CAST(CASE WHEN sequence_at THEN substr(text, 1, sequence_at - 1)
    WHEN id_at THEN substr(text, 1, id_at - 1) ELSE text END AS TEXT), '')"""
"""SQL of the name in a text such as `aten::mul, seq = 45328, op_id = 990726`."""
DIGITS = 19
JOIN = re.compile(r"[nr]cclx?Comm(Init|Split)")
"""Names of ranges in which a communicator is joined."""
ACROSS = "NVTX start/end ranges"
DESCRIPTIONS = (CATEGORY_NAME, THREAD_NAME, DOMAIN)
"""Types of rows that only describe others."""


def _number_behind(mark: str, found: str) -> str:
    """SQL of the number that follows a mark."""
    return f"CASE WHEN {found} THEN CAST(substr(text, {found} + {len(mark)}, {DIGITS}) AS INTEGER) ELSE {UNKNOWN} END"


@dataclass(slots=True)
class Ranges:
    """Reads the table of NVTX events."""

    activities: Activities
    domains: dict[tuple[int, int], str] = field(default_factory=dict)
    """The name of each domain of a process."""
    kinds: dict[int, EventKind] = field(default_factory=dict)
    """The kinds of torch's ranges by the code of their name."""
    backward: dict[int, bool] = field(default_factory=dict)
    """Whether names with a sequence number are of backward functions, by the code of the name."""
    categories: dict[tuple[int, int, int], str] | None = None
    described: bool = False
    """Whether there are rows with names of categories."""
    inits: dict[int, list[int]] = field(default_factory=dict)
    """The rows of each process in which NCCL communicators are joined."""
    others: int = 0
    """Number of rows of other types."""

    def read(self) -> None:
        """Reads the table, if it is there."""
        database = self.activities.database
        if RANGES not in database.tables:
            return
        needed = ("start", "end", "eventType", "globalTid", "text")
        if not database.has(RANGES, *needed):
            database.damage[RANGES] = f"it has not all of the columns {', '.join(needed)}"
            return
        numbers = [integer(name) for name in needed[:-1]]
        numbers += [
            integer(name, unknown) if database.has(RANGES, name) else str(unknown)
            for name, unknown in (("domainId", 0), ("textId", UNKNOWN))
        ]
        numbers += [_number_behind(ID, "id_at"), _number_behind(SEQUENCE, "sequence_at")]
        for block in database.blocks(RANGES, numbers, [NAME], FOUND):
            self._add(block)

    def words(self, pid: int) -> NvtxWords:
        """The names of domains and categories of a process."""
        domains = {domain: name for (owner, domain), name in self.domains.items() if owner == pid}
        categories = {key[1:]: name for key, name in self._categories().items() if key[0] == pid}
        return NvtxWords(domains, categories)

    def _categories(self) -> dict[tuple[int, int, int], str]:
        """The names of categories by process, domain and number; found when they are first used."""
        if self.categories is None:
            rows = (
                self.activities.database.rows(
                    RANGES,
                    "globalTid",
                    "domainId",
                    "category",
                    "text",
                    where=f"WHERE eventType = {CATEGORY_NAME}",
                )
                if self.described
                else []
            )
            self.categories = {
                (thread >> PID_BITS & PID_MASK, domain or 0, category): text
                for thread, domain, category, text in rows
                if isinstance(thread, int) and isinstance(category, int) and isinstance(text, str)
            }
        return self.categories

    def _add(self, block: Block) -> None:
        row, start, end, form, thread, domain, text_id, identity, sequence = block.numbers
        name = self._names(block.texts[0], text_id)
        self._learn_inits(row, thread, name, text_id)
        self._learn(form, thread, domain, name)
        self.described |= bool((form == CATEGORY_NAME).any())
        chosen = (form == PUSH_POP) | (form == START_END) | (form == MARK)
        self.others += int(np.count_nonzero(~chosen & ~np.isin(form, DESCRIPTIONS)))
        kind = self._kinds(form, name, identity != UNKNOWN)
        end = np.where(form == MARK, UNKNOWN, end)
        forward = np.where(self._are_backward(name, sequence), BACKWARD_THREAD, UNKNOWN)
        keys = {Key.RECORD_FUNCTION: identity, Key.SEQUENCE: sequence, Key.FORWARD_THREAD: forward}
        columns = (name, self._tracks(thread, form), row, start, end)
        if not chosen.all():
            kind, thread = kind[chosen], thread[chosen]
            columns = tuple(column[chosen] for column in columns)
            keys = {key: values[chosen] for key, values in keys.items()}
        self.activities.add(RANGES, pid_of(thread), kind, columns, keys)

    def _names(self, texts: Sequence[str], text_id: Int64s) -> Int32s:
        """The codes of names: the texts, else those with the ids."""
        names = self.activities.collector.names
        code = np.fromiter(map(names.__getitem__, texts), np.int32, len(texts))
        by_id = np.flatnonzero((code == names[""]) & (text_id != UNKNOWN))
        if len(by_id):
            code[by_id] = self.activities.names.of_ids(text_id[by_id])
        code[code == names[""]] = names[UNNAMED]
        return code

    def _kinds(self, form: Int64s, name: Int32s, identified: Bools) -> UInt8s:
        """Ranges with an id are torch's; most of them are operators."""
        kind = np.full(len(form), EventKind.ANNOTATION, np.uint8)
        kind[form == START_END] = EventKind.SPAN
        kind[form == MARK] = EventKind.INSTANT
        rows = np.flatnonzero(identified & (form == PUSH_POP))
        distinct, which = np.unique(name[rows], return_inverse=True)
        if new := [code for code in distinct.tolist() if code not in self.kinds]:
            texts = self.activities.collector.names.texts()
            self.kinds |= {code: kind_of_range(texts[code]) for code in new}
        kind[rows] = np.array([self.kinds[code] for code in distinct.tolist()], np.uint8)[which]
        return kind

    def _are_backward(self, name: Int32s, sequence: Int64s) -> Bools:
        """Whether a range runs a backward function: its sequence number is that of a forward operator."""
        backward = np.zeros(len(name), np.bool_)
        rows = np.flatnonzero(sequence != UNKNOWN)
        distinct, which = np.unique(name[rows], return_inverse=True)
        if new := [code for code in distinct.tolist() if code not in self.backward]:
            texts = self.activities.collector.names.texts()
            self.backward |= {code: texts[code].startswith(BACKWARD) for code in new}
        backward[rows] = np.array([self.backward[code] for code in distinct.tolist()], np.bool_)[which]
        return backward

    def _tracks(self, thread: Int64s, form: Int64s) -> Int32s:
        """The thread of each range; start/end ranges are of no single thread."""
        track = self.activities.lanes.threads(thread)
        across = np.flatnonzero(form == START_END)
        if len(across):
            pids, which = np.unique(pid_of(thread[across]), return_inverse=True)
            tracks = [Track(TrackKind.PROCESS, str(pid), ACROSS, ACROSS) for pid in pids.tolist()]
            track[across] = np.array(list(map(self.activities.collector.track, tracks)), np.int32)[which]
        return track

    def _learn_inits(self, row: Int64s, thread: Int64s, name: Int32s, text_id: Int64s) -> None:
        """Rows in which NCCL communicators are joined: their names are always registered strings."""
        named = np.flatnonzero(text_id != UNKNOWN)
        if not len(named):
            return
        distinct, which = np.unique(name[named], return_inverse=True)
        texts = self.activities.collector.names.texts()
        joins = np.array([JOIN.match(texts[code]) is not None for code in distinct.tolist()], np.bool_)
        for index in named[joins[which]].tolist():
            self.inits.setdefault(int(pid_of(thread[index])), []).append(int(row[index]))

    def _learn(self, form: Int64s, thread: Int64s, domain: Int64s, name: Int32s) -> None:
        """Names of threads and domains."""
        rows = np.flatnonzero((form == THREAD_NAME) | (form == DOMAIN))
        if not len(rows):
            return
        texts = self.activities.collector.names.texts()
        for row in rows.tolist():
            text = texts[name[row]]
            if form[row] == DOMAIN:
                self.domains[int(pid_of(thread[row])), int(domain[row])] = text
            else:
                self.activities.lanes.name(int(thread[row]), text)


def kind_of_range(name: str) -> EventKind:
    """The kind of a range of torch by its name."""
    if name.startswith(NO_OPERATORS) or COLLECTIVE_ANNOTATION.match(name):
        return EventKind.ANNOTATION
    return EventKind.OPERATOR
