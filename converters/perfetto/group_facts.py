"""What a group's track says of each collective: its name, and what is known of it as arguments."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tracelink.communications import UNKNOWN
from tracelink.converters.perfetto.hung import Hangs
from tracelink.converters.perfetto.membership import numbers_in_group
from tracelink.converters.perfetto.schema import DURATION_ARGUMENT, WAIT_ARGUMENT
from tracelink.converters.perfetto.text import Texts, micros, numbers, quoted, table
from tracelink.events import Bools, Int32s, Int64s
from tracelink.job import Job
from tracelink.ranges import Numbers

MOST_WAITS = 64
"""Waits that a slice lists at most: the longest."""

UNITS = ("B", "kB", "MB", "GB", "TB")


@dataclass(frozen=True, slots=True)
class Grouped:
    """Participations by collective, where those of each begin, and how their ranks are written."""

    order: Int64s
    begins: Int64s
    keys: Texts
    """For each rank, the beginning of its wait."""

    def of(self, collectives: Int64s) -> tuple[Int64s, Int64s]:
        """The participations of these collectives one after the other, and where those of each begin."""
        first, counts = self.begins[collectives], np.diff(self.begins)[collectives]
        cuts = np.concatenate([[0], np.cumsum(counts)])
        return self.order[np.arange(cuts[-1]) + np.repeat(first - cuts[:-1], counts)], cuts


def grouped_parts(job: Job) -> Grouped:
    """The participations of a job by collective."""
    parts = job.participations
    order = np.argsort(parts.collective, kind="stable")
    begins = np.searchsorted(parts.collective[order], np.arange(len(job.collectives) + 1))
    ranks = int(parts.rank.max(initial=-1)) + 1
    return Grouped(order, begins, table((b'"rank %d":' % rank for rank in range(ranks)), ranks))


def names_of(job: Job, rows: Int64s, hangs: Hangs) -> tuple[list[str], Int64s]:
    """Operation and size, and who is missing where it hangs: the distinct names, and which one each collective has."""
    kinds = np.stack([job.collectives.operation[rows].astype(np.int64), job.collectives.bytes[rows]])
    distinct, which = np.unique(kinds, axis=1, return_inverse=True)
    names = []
    for operation, size in distinct.T.tolist():
        text = job.strings[operation] if operation != UNKNOWN else "collective"
        names.append(text if size == UNKNOWN else f"{text} {readable_bytes(size)}")
    which = which.ravel()
    for place in np.flatnonzero(hangs.collectives[rows]).tolist():
        names.append(hangs.named(names[which[place]], int(rows[place])))
        which[place] = len(names) - 1
    return names, which


def readable_bytes(size: int) -> str:
    """A size in two or three digits: 4.2 MB."""
    value, unit = float(size), 0
    while value >= 999.5 and unit < len(UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.1f} {UNITS[unit]}" if unit and value < 99.95 else f"{value:.0f} {UNITS[unit]}"


def facts_of(job: Job, parts: Grouped, rows: Int64s, open_ended: Bools) -> list[bytes]:
    """What is known of collectives, as JSON objects."""
    whole = job.collectives
    mine, cuts = parts.of(rows)
    present, absent = _ranks(job, rows, mine, cuts)
    always = np.ones(len(rows), np.bool_)
    skew, duration = whole.skew[rows], whole.duration[rows]
    rates = [np.round(rate[rows], 3) for rate in (whole.algorithm_gb_s, whole.bus_gb_s)]
    verdicts = _texts(job, whole.verdict[rows])
    columns = [
        _members("sequence", numbers(numbers_in_group(whole, rows)), always),
        _members("ranks", present, always),
        _members("missing ranks", absent, np.array([bool(text) for text in absent])),
        _members("bytes", numbers(whole.bytes[rows]), whole.bytes[rows] != UNKNOWN),
        _members(
            "last rank", numbers(whole.last_rank[rows].astype(np.int64)), whole.last_rank[rows] != UNKNOWN
        ),
        _members("skew_us", micros(skew), skew != UNKNOWN),
        _members("duration_us", micros(duration), duration != UNKNOWN),
        _members("algorithm GB/s", numbers(rates[0]), np.isfinite(rates[0])),
        _members("bus GB/s", numbers(rates[1]), np.isfinite(rates[1])),
        _members("verdict", verdicts, whole.verdict[rows] != UNKNOWN),
        _members(DURATION_ARGUMENT, [b"false"] * len(rows), open_ended),
        _waits(job, parts, mine, cuts),
    ]
    return [b"{%s}" % b"".join(texts)[1:] for texts in zip(*columns, strict=True)]


def _texts(job: Job, codes: Int32s) -> list[bytes]:
    """Texts as JSON; empty where unknown."""
    distinct, which = np.unique(codes, return_inverse=True)
    texts = [b"" if code == UNKNOWN else quoted(job.strings[code]) for code in distinct.tolist()]
    return [texts[number] for number in which.tolist()]


def _members(name: str, values: list[bytes], known: Bools) -> list[bytes]:
    """A member with a comma before it, or nothing where it is not known."""
    key = b',"%s":' % name.encode()
    return [key + value if tells else b"" for value, tells in zip(values, known.tolist(), strict=True)]


def _ranks(job: Job, rows: Int64s, mine: Int64s, cuts: Int64s) -> tuple[list[bytes], list[bytes]]:
    """Who took part and who of the group did not: few sets of ranks take part in many collectives."""
    texts: dict[tuple[int, bytes], tuple[bytes, bytes]] = {}
    found = []
    ranks, groups = job.participations.rank[mine], job.collectives.group[rows].tolist()
    for group, (low, high) in zip(groups, pairwise(cuts.tolist()), strict=True):
        key = group, ranks[low:high].tobytes()
        if key not in texts:
            present = set(ranks[low:high].tolist())
            absent = set(job.groups[group].ranks) - present
            texts[key] = _listed(present), _listed(absent)
        found.append(texts[key])
    return [present for present, _ in found], [absent for _, absent in found]


def _listed(ranks: set[int]) -> bytes:
    return quoted(str(Numbers.of(ranks))) if ranks else b""


def _waits(job: Job, parts: Grouped, mine: Int64s, cuts: Int64s) -> list[bytes]:
    """The waits of those who took part, or nothing where none is known."""
    wait, ranks = job.participations.wait[mine], job.participations.rank[mine]
    listed = wait != UNKNOWN
    for number in np.flatnonzero(np.diff(cuts) > MOST_WAITS).tolist():
        low, high = cuts[number : number + 2].tolist()
        listed[low + np.argsort(-wait[low:high], kind="stable")[MOST_WAITS:]] = False
    kept = np.flatnonzero(listed)
    texts = [
        key + text for key, text in zip(parts.keys[ranks[kept]].tolist(), micros(wait[kept]), strict=True)
    ]
    ends = np.searchsorted(kept, cuts).tolist()
    key = b',"%s":{' % WAIT_ARGUMENT.encode()
    return [
        b"%s%s}" % (key, b",".join(texts[low:high])) if low < high else b"" for low, high in pairwise(ends)
    ]
