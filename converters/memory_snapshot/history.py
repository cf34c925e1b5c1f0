"""The history of the allocator of each device: levels of memory over time, and which blocks were in use when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._model.columns import MICROSECOND, NO_TIME, UNKNOWN, Bools, Int32s, Int64s, Table
from tracelink.converters.memory_snapshot import schema
from tracelink.converters.memory_snapshot.pickles import Decoded, List

LAST_US = 4 * 10**15
"""Later times (after the year 2096) are invalid."""
MOST_DEVICES = 1024


class Trace(Table, frozen=True):
    """The entries of one device with valid sizes, and times if any has one, in their order."""

    action: Int32s
    address: Int64s
    size: Int64s
    time: Int64s
    """In ns since 1970; NO_TIME if no entry has a time."""
    stack: Int32s


class Blocks(Table, frozen=True):
    """The blocks of a device that were in use when the snapshot was taken."""

    address: Int64s
    size: Int64s
    stack: Int32s


class Lives(Table, frozen=True):
    """Blocks that were in use at some time."""

    size: Int64s
    address: Int64s
    stack: Int32s
    born: Int64s
    """Row of the trace, or UNKNOWN if that was before it."""
    died: Int64s
    """Row of the trace, or its length if the block is still in use."""


class Device(Struct, frozen=True):
    """One device."""

    number: int
    trace: Trace
    allocated: Int64s
    """Bytes in use after each entry, as requested."""
    reserved: Int64s
    """Bytes that the allocator holds after each entry."""
    in_use: int
    """Bytes in use in the snapshot."""
    held: int
    blocks: Blocks

    @property
    def timed(self) -> bool:
        """True if its entries have times: old versions of torch record none."""
        return len(self.trace) > 0 and int(self.trace.time[0]) != NO_TIME


class History(Struct, frozen=True):
    """All devices, and what does not fit."""

    devices: Sequence[Device]
    entries: int
    untimed: int = 0
    """Entries without a valid time or size."""
    unplaced: int = 0
    """Entries that are in no list of a device."""


def history_of(decoded: Decoded) -> History | None:
    """The history of all devices; None if the content is no snapshot."""
    root = decoded.root
    segments = root if type(root) is List else root.get(schema.SEGMENTS) if isinstance(root, dict) else None
    traces = root.get(schema.TRACES) if isinstance(root, dict) else None
    if type(segments) is not List and type(traces) is not List:
        return None
    rows_of = _rows_by_list(decoded)
    per_device = [one if type(one) is List else List() for one in (traces if type(traces) is List else ())]
    held, blocks = _held(segments if type(segments) is List else (), rows_of)
    numbers = sorted({*range(len(per_device)), *held})[:MOST_DEVICES]
    entries = _columns(decoded)
    devices, untimed = [], 0
    for number in numbers:
        rows = rows_of.get(id(per_device[number]), _NO_ROWS) if number < len(per_device) else _NO_ROWS
        trace = _trace(entries, rows)
        untimed += len(rows) - len(trace)
        in_use = _in_use(entries, blocks.get(number, _NO_ROWS), decoded)
        device = _device(decoded, number, trace, in_use, held.get(number, 0))
        if len(trace) or device.held:
            devices.append(device)
    placed = sum(len(rows) for rows in rows_of.values())
    return History(devices, len(entries), untimed, len(entries) - placed)


_NO_ROWS = np.empty(0, np.int64)


def _rows_by_list(decoded: Decoded) -> dict[int, Int64s]:
    """The rows of entries by the list that they are in."""
    parts: dict[int, list[Int64s]] = {}
    for owned in decoded.owned:
        parts.setdefault(id(owned.owner), []).append(np.frombuffer(owned.rows, np.int64))
    return {owner: rows[0] if len(rows) == 1 else np.concatenate(rows) for owner, rows in parts.items()}


def _held(segments: Sequence[Any], rows_of: Mapping[int, Int64s]) -> tuple[dict[int, int], dict[int, Int64s]]:
    """By device the bytes of its segments, and the rows of their blocks."""
    held: dict[int, int] = {}
    parts: dict[int, list[Int64s]] = {}
    for segment in segments:
        if not isinstance(segment, dict):
            continue
        device, total = segment.get(schema.DEVICE, 0), segment.get(schema.TOTAL)
        if type(device) is not int or not 0 <= device < MOST_DEVICES or type(total) is not int:
            continue
        held[device] = held.get(device, 0) + min(max(total, 0), _LARGEST)
        parts.setdefault(device, []).append(rows_of.get(id(segment.get(schema.BLOCKS)), _NO_ROWS))
    return held, {device: np.concatenate(rows) for device, rows in parts.items()}


_LARGEST = 1 << 50
"""Bytes of the largest allocation that is possible: a petabyte, so that sums fit a column."""


def _columns(decoded: Decoded) -> Trace:
    """The entries as columns; what they were collected in is not needed any more."""
    taken = decoded.entries.taken()
    size = np.frombuffer(taken.size, np.int64)
    return Trace(
        np.frombuffer(taken.action, np.int32),
        np.frombuffer(taken.address, np.int64),
        np.where((size >= 0) & (size <= _LARGEST), size, UNKNOWN),
        np.frombuffer(taken.time, np.int64),
        np.frombuffer(taken.stack, np.int32),
    )


def _trace(entries: Trace, rows: Int64s) -> Trace:
    time, size = entries.time[rows], entries.size[rows]
    timed = (time > 0) & (time <= LAST_US)
    if not timed.any():
        untimed = entries.take(rows[size >= 0])
        return replace(untimed, time=np.full(len(untimed), NO_TIME))
    chosen = entries.take(rows[timed & (size >= 0)])
    return replace(chosen, time=chosen.time * MICROSECOND)


def _in_use(entries: Trace, rows: Int64s, decoded: Decoded) -> Blocks:
    chosen = entries.take(rows)
    used = (chosen.action == decoded.entries.actions.find(schema.IN_USE)) & (chosen.size >= 0)
    return Blocks(chosen.address[used], chosen.size[used], chosen.stack[used])


def actions_among(decoded: Decoded, names: frozenset[str] | set[str]) -> list[int]:
    """The codes of some actions."""
    return [code for name, code in decoded.entries.actions.items() if name in names]


def _device(decoded: Decoded, number: int, trace: Trace, blocks: Blocks, held: int) -> Device:
    """Levels end at what the snapshot has, so that they are right although a trace keeps only the last entries."""
    allocates = np.isin(trace.action, actions_among(decoded, {schema.ALLOC}))
    frees = _frees(decoded, trace)
    grows = np.isin(trace.action, actions_among(decoded, schema.SEGMENT_GROWS))
    shrinks = np.isin(trace.action, actions_among(decoded, schema.SEGMENT_SHRINKS))
    in_use = int(blocks.size.sum())
    return Device(
        number,
        trace,
        _levels(trace.size, allocates, frees, None if decoded.truncated else in_use),
        _levels(trace.size, grows, shrinks, None if decoded.truncated else held),
        in_use,
        held,
        blocks,
    )


def _frees(decoded: Decoded, trace: Trace) -> Bools:
    """Entries after which memory is not in use: requests, or completions where no request is recorded."""
    requested = np.isin(trace.action, actions_among(decoded, {schema.FREE_REQUESTED}))
    if requested.any():
        return requested
    completed: Bools = np.isin(trace.action, actions_among(decoded, {schema.FREE_COMPLETED}))
    return completed


def _levels(size: Int64s, plus: Bools, minus: Bools, last: int | None) -> Int64s:
    """The level after each entry; never negative, whatever was recorded."""
    change = np.cumsum(np.where(plus, size, 0) - np.where(minus, size, 0))
    if not len(change):
        return change
    return change + max(0, -int(change.min()), 0 if last is None else last - int(change[-1]))


def lives_of(decoded: Decoded, device: Device) -> Lives:
    """All blocks of a device that were in use within its trace."""
    trace, blocks = device.trace, device.blocks
    if decoded.truncated and len(trace):
        blocks = Blocks.empty()  # they are of a later moment than the last entry
    allocates = np.isin(trace.action, actions_among(decoded, {schema.ALLOC}))
    rows = np.flatnonzero(allocates | _frees(decoded, trace))
    order = rows[np.lexsort((rows, trace.address[rows]))]
    address, is_birth = trace.address[order], allocates[order]
    same = np.append(address[1:] == address[:-1], False)
    end = np.where(same, np.append(order[1:], 0), len(trace))
    born = order[is_birth]
    died = end[is_birth]
    before = np.append(False, is_birth[:-1] & same[:-1]) if len(order) else is_birth
    early = ~is_birth & ~before  # in use before the trace begins
    early[1:] &= ~same[:-1]
    old = order[early]
    kept = _of_before(blocks, trace.take(born[died == len(trace)]))
    count = int(np.count_nonzero(kept))
    return Lives(
        np.concatenate([trace.size[born], trace.size[old], blocks.size[kept]]),
        np.concatenate([trace.address[born], trace.address[old], blocks.address[kept]]),
        np.concatenate([trace.stack[born], np.full(len(old), UNKNOWN, np.int32), blocks.stack[kept]]),
        np.concatenate([born, np.full(len(old) + count, UNKNOWN)]),
        np.concatenate([died, old, np.full(count, len(trace))]),
    )


def _of_before(blocks: Blocks, unfreed: Trace) -> Bools:
    """Which blocks in use are no allocation of the trace: by address, or by size where torch 2.0 records no address."""
    rows = np.argsort(blocks.size, kind="stable")
    sizes = blocks.size[rows]
    rank = np.empty(len(rows), np.int64)
    rank[rows] = np.arange(len(rows)) - np.searchsorted(sizes, sizes)
    known = np.sort(unfreed.size)
    same_size = np.searchsorted(known, blocks.size, "right") - np.searchsorted(known, blocks.size)
    by_size: Bools = rank >= same_size
    return np.where(blocks.address == UNKNOWN, by_size, ~np.isin(blocks.address, unfreed.address))


def largest_at(lives: Lives, row: int, most: int) -> Int64s:
    """The largest blocks in use after an entry of the trace, the largest first."""
    alive = np.flatnonzero((lives.born <= row) & (lives.died > row))
    return alive[np.argsort(-lives.size[alive], kind="stable")[:most]]


def usage_at(lives: Lives, row: int) -> list[tuple[int, int, int]]:
    """Stack, bytes and number of the blocks in use after an entry of the trace, the stack with most bytes first."""
    alive = np.flatnonzero((lives.born <= row) & (lives.died > row))
    stacks, of_stack = np.unique(lives.stack[alive], return_inverse=True)
    total = np.zeros(len(stacks), np.int64)
    np.add.at(total, of_stack, lives.size[alive])
    count = np.bincount(of_stack, minlength=len(stacks))
    order = np.argsort(-total, kind="stable")
    return list(zip(stacks[order].tolist(), total[order].tolist(), count[order].tolist(), strict=True))
