"""JSON that both formats contain: numbers and texts, the header of a job, and the arguments that tracelink adds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
from msgspec import Struct

from tracelink._model.columns import UNKNOWN, Bools, Float64s, Int32s, Int64s, ranges
from tracelink._model.events import Key
from tracelink._model.graph import EventGraph, Rank
from tracelink._model.job import LinkedJob
from tracelink._model.selection import Numbers
from tracelink._model.trace import SourceInfo
from tracelink.converters.perfetto.timeline import schema
from tracelink.converters.perfetto.timeline.drawing import Drawing
from tracelink.converters.perfetto.timeline.groups import group_label, sequence_numbers
from tracelink.converters.perfetto.timeline.hangs import LastArrivals
from tracelink.converters.perfetto.timeline.job import ArgumentChoice
from tracelink.converters.perfetto.timeline.view import startup_view

# Numbers, texts and objects that every version of Perfetto's engine loads as intended.

Texts = npt.NDArray[np.object_]
"""One bytes object for each code or row."""


NUL_SIGN = "\N{SYMBOL FOR NULL}"
"""Replaces U+0000, at which the engine would truncate a name."""


ESCAPE = re.compile(
    rb"\\(?:[uU]([dD][89abAB][0-9a-fA-F]{2})(?:\\[uU]([dD][c-fC-F][0-9a-fA-F]{2}))?|[uU][dD]...|.)"
)
"""Any escape: an escaped backslash must not be taken for the start of another one."""

SURROGATE = re.compile("[\ud800-\udfff]")


NUL_ESCAPE = r"\u0000"


ESCAPED = re.compile(r"\\(?:u[0-9a-f]{4}|.)")


REPLACEMENT = "\N{REPLACEMENT CHARACTER}".encode()


EXACT_NS = 10**15
"""Below this many nanoseconds the shortest decimal of a double of microseconds is exact: 15 digits."""


def micros(nanoseconds: Int64s) -> list[bytes]:
    """Microseconds as exact decimals with at most three digits after the point."""
    if not len(nanoseconds):
        return []
    if int(np.abs(nanoseconds).max()) >= EXACT_NS:
        return [_micros(time) for time in nanoseconds.tolist()]
    return orjson.dumps(nanoseconds / 1000, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1].split(b",")


def _micros(time: int) -> bytes:
    whole, rest = divmod(abs(time), 1000)
    return b"%s%d.%03d" % (b"-" if time < 0 else b"", whole, rest)


def numbers(values: Int64s | Float64s) -> list[bytes]:
    """Finite numbers as text."""
    if not len(values):
        return []
    return orjson.dumps(np.ascontiguousarray(values), option=orjson.OPT_SERIALIZE_NUMPY)[1:-1].split(b",")


def quoted(text: str) -> bytes:
    """A JSON string without surrogates and without U+0000."""
    return orjson.dumps(clean_text(text))


def clean_text(text: str) -> str:
    """A string without single surrogates and without U+0000."""
    text = text.replace("\0", NUL_SIGN)
    return text if text.isascii() or not SURROGATE.search(text) else _paired(text)


def encoded(value: Any) -> bytes:
    """Any JSON value, with a space after colons: HTA needs it to find the rank."""
    text = json.dumps(value, ensure_ascii=False)
    if NUL_ESCAPE in text:
        text = ESCAPED.sub(lambda escape: NUL_SIGN if escape[0] == NUL_ESCAPE else escape[0], text)
    return _paired(text).encode()


def unclosed_object(values: Mapping[str, Any]) -> bytes:
    """A JSON object with one member on each line, left open for more members."""
    lines = [b"%s: %s" % (encoded(key), encoded(value)) for key, value in values.items()]
    return b"{\n" + b",\n".join(lines)


def _paired(text: str) -> str:
    """A string with pairs of surrogates joined, and single ones replaced."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def table(texts: Iterable[bytes], length: int) -> Texts:
    """A column of texts, from which many can be taken at once."""
    column = np.empty(length, object)
    column[:] = list(texts)
    return column


def loadable(text: bytes) -> bytes:
    """JSON text as UTF-8 without surrogate escapes: Perfetto rejects a whole file because of one such pair."""
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError:
            text = text.decode(errors="replace").encode()
    if b"\\" in text and (b"\\ud" in text or b"\\uD" in text):
        text = ESCAPE.sub(_unescaped, text)
    return text


def _unescaped(match: re.Match[bytes]) -> bytes:
    high, low = match.groups()
    whole = match.group()
    if high and low:
        pair = bytes.fromhex((high + low).decode())
        return pair.decode("utf-16-be").encode()
    if whole[1:3].lower() == b"ud" and int(whole[3:4], 16) >= 8:
        return REPLACEMENT
    return whole


# The header: what is known of the job, of its ranks, and of their sources.


PROFILER_KEYS = frozenset({"deviceProperties", "distributedInfo"})
"""The header of a profiler contains one of these."""


def header(job: LinkedJob, base: int) -> bytes:
    """A JSON object with everything but the events, left open."""
    values: dict[str, Any] = {"schemaVersion": 1}
    single = _single_header(job)
    if single is not None:
        values |= single
    values |= {
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": base,
        schema.OWN_HEADER: ({} if single else {schema.VIEW: startup_view(job).as_header()})
        | {"ranks": [_rank(job, rank, brief=single is not None) for rank in job.ranks]},
    }
    return unclosed_object(values)


def _single_header(job: LinkedJob) -> dict[str, Any] | None:
    """The profile's header of a job of one rank, at the top level, where other tools expect it."""
    if len(job.ranks) != 1:
        return None
    rank = job.ranks[0]
    header: dict[str, Any] = {"deviceProperties": [], "distributedInfo": {}}
    for source in job.sources:
        if PROFILER_KEYS & source.header.keys():
            header |= _public(source.header)
            break
    known = {} if rank.world_size is None else {"world_size": rank.world_size}
    header["distributedInfo"] = known | dict(header["distributedInfo"] or {}) | {"rank": rank.rank}
    return header


def _rank(job: LinkedJob, rank: Rank, *, brief: bool) -> dict[str, Any]:
    facts: dict[str, Any] = {"rank": rank.rank, "clock_offset_ns": rank.clock_offset_ns}
    clock = {
        "clock_drift_ppm": rank.clock_drift_ppm or None,
        "clock_low_ns": rank.clock_low_ns,
        "clock_high_ns": rank.clock_high_ns,
        "clock_uncertainty_ns": rank.clock_uncertainty_ns,
    }
    facts |= {name: value for name, value in clock.items() if value is not None}
    if rank.world_size is not None:
        facts["world_size"] = rank.world_size
    facts["sources"] = [
        _source(source, brief=brief) for source in job.sources if source.rank in (rank.rank, None)
    ]
    return facts


def _source(source: SourceInfo, *, brief: bool) -> dict[str, Any]:
    facts: dict[str, Any] = {"format": source.format}
    if source.version:
        facts["version"] = source.version
    if not brief:
        facts |= _public(source.header)
    return facts


def _public(header: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value
        for key, value in header.items()
        if key not in schema.PRIVATE_HEADER | schema.REPLACED_HEADER
    }


# Arguments of the events of a rank: links without a flow, and the collectives in which they take part.


MAX_WAITS = 64
"""A slice lists at most this many waits: the longest."""

AddedArguments = Mapping[str, Mapping[int, bytes]]
"""By the name of an outer argument and by row: the members of its JSON object."""


def added_arguments(
    graph: EventGraph, drawing: Drawing, job: LinkedJob, args: ArgumentChoice
) -> AddedArguments:
    """The arguments that tracelink adds to the events of one rank that are drawn."""
    if args == ArgumentChoice.NONE:
        return {}
    shown = drawing.shown.tolist()
    parts = _participation_arguments(job, graph.ranks[0].rank)
    return {
        schema.LINK: _link_arguments(graph, drawing),
        schema.COLLECTIVE: {row: members for row, members in parts.items() if shown[row]},
    }


def add_member(members: dict[int, bytes], row: int, member: bytes) -> None:
    """Appends a member to those of a row."""
    members[row] = members[row] + b"," + member if row in members else member


def _link_arguments(graph: EventGraph, drawing: Drawing) -> dict[int, bytes]:
    """Events with an unknown end, nodes that are the same as an event, and the lines of generated kernels."""
    members = dict.fromkeys(
        drawing.open_ended.tolist(), b'"%s":false' % schema.Argument.DURATION_KNOWN.encode()
    )
    ids = graph.key(Key.NODE_ID).dense(len(graph), -1) if drawing.nodes else drawing.open_ended
    for row, node in drawing.nodes.items():
        add_member(members, row, b'"%s":%d' % (schema.Argument.NODE.encode(), ids[node]))
    lines = graph.key(Key.SOURCE_LINES)
    for row, code in zip(lines.rows.tolist(), lines.values.tolist(), strict=True):
        if drawing.shown[row]:
            add_member(
                members,
                row,
                b'"%s":%s' % (schema.Argument.SOURCE_LINES.encode(), quoted(graph.strings[code])),
            )
    return members


def _participation_arguments(job: LinkedJob, rank: int) -> Mapping[int, bytes]:
    """Group, number, wait and last rank of the collective, for the rows of a rank that take part in one."""
    mine = np.flatnonzero(job.participations.rank == rank)
    which = job.participations.collective[mine]
    last = np.where(job.collectives.skew[which] == UNKNOWN, UNKNOWN, job.collectives.last_rank[which])
    waits = _wait_members(job.participations.wait[mine])
    rest = [wait + _last_member(number, rank) for wait, number in zip(waits, last.tolist(), strict=True)]
    labels = [group_label(group) for group in job.groups]
    groups = job.collectives.group[which].tolist()
    numbers = sequence_numbers(job.collectives, which).tolist()
    names = [f"{labels[group]} #{number}" for group, number in zip(groups, numbers, strict=True)]
    parts_of_row: dict[int, list[int]] = {}
    for column in job.participations.event_columns():
        rows = getattr(job.participations, column)[mine]
        known = np.flatnonzero(rows != UNKNOWN)
        for part, row in zip(known.tolist(), rows[known].tolist(), strict=True):
            parts_of_row.setdefault(row, []).append(part)
    key = b'"%s":' % schema.Argument.GROUP.encode()
    return {
        row: key + quoted(", ".join([names[part] for part in parts])) + rest[parts[-1]]
        for row, parts in parts_of_row.items()
    }


def _wait_members(wait: Int64s) -> list[bytes]:
    key = b',"%s":' % schema.Argument.WAIT.encode()
    return [
        key + text if known else b""
        for text, known in zip(micros(wait), (wait != UNKNOWN).tolist(), strict=True)
    ]


def _last_member(last_rank: int, rank: int) -> bytes:
    if last_rank == UNKNOWN:
        return b""
    if last_rank == rank:
        return b',"%s":true' % schema.Argument.LAST.encode()
    return b',"%s":%d' % (schema.Argument.AWAITED.encode(), last_rank)


# Arguments of the slices and instants on the tracks of process groups.


class PartsByCollective(Struct, frozen=True):
    """The participations of a job, sorted by collective."""

    order: Int64s
    starts: Int64s
    """For each collective the index in `order` at which its participations start."""
    keys: Texts
    """For each rank the key of its wait."""

    @classmethod
    def of(cls, job: LinkedJob) -> PartsByCollective:
        """The participations of a job."""
        parts = job.participations
        order = np.argsort(parts.collective, kind="stable")
        starts = np.searchsorted(parts.collective[order], np.arange(len(job.collectives) + 1))
        ranks = int(parts.rank.max(initial=-1)) + 1
        return cls(order, starts, table([b'"rank %d":' % rank for rank in range(ranks)], ranks))

    def of_collectives(self, collectives: Int64s) -> tuple[Int64s, Int64s]:
        """The participations of these collectives in their order, and the bounds of each collective among them."""
        first, counts = self.starts[collectives], np.diff(self.starts)[collectives]
        bounds = np.concatenate([[0], np.cumsum(counts)])
        return self.order[ranges(first, counts)], bounds


def collective_arguments(
    job: LinkedJob, parts: PartsByCollective, rows: Int64s, open_ended: Bools
) -> list[bytes]:
    """The facts of collectives, as JSON objects."""
    collectives = job.collectives
    part_rows, bounds = parts.of_collectives(rows)
    present, missing = _ranks(job, rows, part_rows, bounds)
    always = np.ones(len(rows), np.bool_)
    size, last_rank = collectives.bytes[rows], collectives.last_rank[rows].astype(np.int64)
    skew, duration = collectives.skew[rows], collectives.duration[rows]
    algorithm, bus = (np.round(rate[rows], 3) for rate in (collectives.algorithm_gb_s, collectives.bus_gb_s))
    verdict = collectives.verdict[rows]
    columns = [
        _members(schema.Argument.SEQUENCE, numbers(sequence_numbers(collectives, rows)), always),
        _members(schema.Argument.RANKS, present, always),
        _members(schema.Argument.MISSING_RANKS, missing, np.array([bool(text) for text in missing])),
        _members(schema.Argument.BYTES, numbers(size), size != UNKNOWN),
        _members(schema.Argument.LAST_RANK, numbers(last_rank), last_rank != UNKNOWN),
        _members(schema.Argument.SKEW, micros(skew), skew != UNKNOWN),
        _members(schema.Argument.DURATION, micros(duration), duration != UNKNOWN),
        _members(schema.Argument.ALGORITHM_BANDWIDTH, numbers(algorithm), np.isfinite(algorithm)),
        _members(schema.Argument.BUS_BANDWIDTH, numbers(bus), np.isfinite(bus)),
        _members(schema.Argument.VERDICT, _strings(job, verdict), verdict != UNKNOWN),
        _members(schema.Argument.DURATION_KNOWN, [b"false"] * len(rows), open_ended),
        _waits(job, parts, part_rows, bounds),
    ]
    return [b"{%s}" % b"".join(texts)[1:] for texts in zip(*columns, strict=True)]


def arrival_arguments(arrivals: LastArrivals) -> list[bytes]:
    """The facts of the last arrivals, as JSON objects."""
    form = b'{"%s":%%s,"%s":%%s}' % (schema.Argument.RANK.encode(), schema.Argument.SKEW.encode())
    return [form % pair for pair in zip(numbers(arrivals.rank), micros(arrivals.skew), strict=True)]


def _members(name: str, values: list[bytes], known: Bools) -> list[bytes]:
    """Members after a comma; empty where the value is unknown."""
    key = b',"%s":' % name.encode()
    return [key + value if given else b"" for value, given in zip(values, known.tolist(), strict=True)]


def _strings(job: LinkedJob, codes: Int32s) -> list[bytes]:
    """Strings of the job as JSON; empty where unknown."""
    distinct, which = np.unique(codes, return_inverse=True)
    texts = [b"" if code == UNKNOWN else quoted(job.strings[code]) for code in distinct.tolist()]
    return [texts[number] for number in which.tolist()]


def _ranks(
    job: LinkedJob, rows: Int64s, part_rows: Int64s, bounds: Int64s
) -> tuple[list[bytes], list[bytes]]:
    """Participating and missing ranks; texts are made once for each set of ranks, of which there are few."""
    texts: dict[tuple[int, bytes], tuple[bytes, bytes]] = {}
    found = []
    ranks, groups = job.participations.rank[part_rows], job.collectives.group[rows].tolist()
    for group, (low, high) in zip(groups, pairwise(bounds.tolist()), strict=True):
        key = group, ranks[low:high].tobytes()
        if key not in texts:
            present = set(ranks[low:high].tolist())
            missing = set(job.groups[group].ranks) - present
            texts[key] = _rank_list(present), _rank_list(missing)
        found.append(texts[key])
    return [present for present, _ in found], [missing for _, missing in found]


def _rank_list(ranks: set[int]) -> bytes:
    return quoted(str(Numbers.of(ranks))) if ranks else b""


def _waits(job: LinkedJob, parts: PartsByCollective, part_rows: Int64s, bounds: Int64s) -> list[bytes]:
    """The waits of the ranks of each collective; empty if none is known."""
    wait, ranks = job.participations.wait[part_rows], job.participations.rank[part_rows]
    listed = wait != UNKNOWN
    for number in np.flatnonzero(np.diff(bounds) > MAX_WAITS).tolist():
        low, high = bounds[number : number + 2].tolist()
        listed[low + np.argsort(-wait[low:high], kind="stable")[MAX_WAITS:]] = False
    kept = np.flatnonzero(listed)
    texts = [
        key + text for key, text in zip(parts.keys[ranks[kept]].tolist(), micros(wait[kept]), strict=True)
    ]
    ends = np.searchsorted(kept, bounds).tolist()
    key = b',"%s":{' % schema.Argument.WAIT.encode()
    return [
        b"%s%s}" % (key, b",".join(texts[low:high])) if low < high else b"" for low, high in pairwise(ends)
    ]
