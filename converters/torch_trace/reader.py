"""Compile log to rank trace: a slice for each phase of the compiler, an instant for each of its decisions."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct

from tracelink._io.engine import Engine
from tracelink._io.sources import Source
from tracelink._model.columns import UNKNOWN, Int64s, StringTable
from tracelink._model.events import EventKind, Events, Key, KeyColumn, Track, TrackKind
from tracelink._model.trace import Payload, RankTrace
from tracelink._model.witnesses import CompileLog, Phase
from tracelink.converters.torch_trace.log import FORMAT, Decoded, decoded
from tracelink.converters.torch_trace.schema import ChromiumEvent

MAIN, WORKERS = "compiler", "compiler workers"
"""The tracks: work that overlaps other work is of worker processes or threads."""
EMPTY = b"{}"


class TorchTraceReader:
    """Reads the structured logs of torch.compile."""

    name = FORMAT

    def read(self, source: Source, engine: Engine) -> RankTrace:
        """One event for each phase, and for each instant."""
        return _trace(decoded(source, engine.meter.add), source)

    def read_log(self, source: Source, engine: Engine) -> CompileLog:
        """The same log as tables of what was compiled."""
        return decoded(source, engine.meter.add).log


def _trace(whole: Decoded, source: Source) -> RankTrace:
    log = whole.log
    strings = StringTable()
    overlaps = _overlaps(log.phases)
    process = str(log.source.pid)
    last = log.last_ns or 0
    return RankTrace(
        sources=[log.source],
        strings=strings,
        events=Events.of(
            kind=[EventKind.INSTANT if phase.instant else EventKind.COMPILATION for phase in log.phases],
            name=strings.encode(phase.name for phase in log.phases),
            track=overlaps,
            start=[phase.start_ns for phase in log.phases],
            duration=[_duration(phase, last) for phase in log.phases],
            source=0,
            payload=[phase.number for phase in log.phases],
        ),
        tracks=[
            Track(TrackKind.THREAD, process, label, label) for label in (MAIN, WORKERS)[: 1 + any(overlaps)]
        ],
        keys=_keys(log.phases, strings),
        payloads=[_Arguments(source, whole.places)],
        findings=list(log.findings),
    )


def _keys(phases: Sequence[Phase], strings: StringTable) -> dict[Key, KeyColumn]:
    """What links phases to the code that ran. A phase can generate several files."""
    values = {
        Key.COMPILE_ID: [(row, phase.compile_id) for row, phase in enumerate(phases)],
        Key.COMPILED_FUNCTION: [(row, phase.function) for row, phase in enumerate(phases)],
        Key.CACHE_KEY: [(row, phase.cache_key) for row, phase in enumerate(phases)],
        Key.KERNEL_SOURCES: [
            (row, text) for row, phase in enumerate(phases) for text in phase.kernel_sources
        ],
        Key.KERNEL_FILES: [(row, text) for row, phase in enumerate(phases) for text in phase.kernel_files],
        Key.OUTPUT_CODE: [(row, path) for row, phase in enumerate(phases) for path in phase.output_code],
    }
    return {
        key: KeyColumn.of(
            rows=[row for row, text in pairs if text], values=[strings[text] for _, text in pairs if text]
        )
        for key, pairs in values.items()
    }


def _duration(phase: Phase, last_ns: int) -> int:
    """UNKNOWN for an instant; what is open lasts until the end of the log."""
    if phase.instant:
        return UNKNOWN
    return max((last_ns if phase.end_ns is None else phase.end_ns) - phase.start_ns, 0)


def _overlaps(phases: Sequence[Phase]) -> list[bool]:
    """True for each phase, in order of time, that begins within one that ends before it does."""
    order = sorted(
        range(len(phases)),
        key=lambda place: (phases[place].start_ns, -(phases[place].end_ns or 2**62)),
    )
    overlaps = [False] * len(phases)
    ends: list[int] = []
    for place in order:
        phase = phases[place]
        if phase.instant:
            continue
        end = phase.end_ns or 2**62
        while ends and ends[-1] <= phase.start_ns:
            ends.pop()
        if ends and end > ends[-1]:
            overlaps[place] = True
        else:
            ends.append(end)
    return overlaps


class _Arguments(Struct, frozen=True):
    """The arguments of phases, which are read again from the log."""

    source: Source
    places: array[int]
    """The offset and the size of each."""

    def batches(self, first: int = 0, last: int | None = None) -> Iterator[tuple[int, Sequence[Payload]]]:
        """Yields runs of one; ends are in the order of the log, so few bytes are read twice."""
        chosen = range(len(self.places) // 2)[first:last]
        order = sorted(chosen, key=lambda number: self.places[2 * number])
        texts: dict[int, bytes] = {}
        with self.source.open() as stream:
            position = 0
            for number in order:
                offset, size = self.places[2 * number : 2 * number + 2]
                if offset < position:
                    continue
                stream.skip(offset - position)
                texts[number] = _arguments_of(stream.read(size))
                position = offset + size
        if texts:
            yield chosen.start, [texts.get(number, EMPTY) for number in chosen]

    def near(self, numbers: Int64s) -> Iterator[tuple[int, Sequence[Payload]]]:
        """Yields the payloads of these numbers."""
        for number in numbers.tolist():
            yield from self.batches(number, number + 1)


def _arguments_of(stored: bytes) -> bytes:
    """On one line: torch writes each value on its own, and formats copy arguments as they are."""
    text = stored.replace(b"\n\t", b"").lstrip(b"\t")
    try:
        arguments = bytes(msgspec.json.decode(text, type=ChromiumEvent).args)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return EMPTY
    return arguments or EMPTY
