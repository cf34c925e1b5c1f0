"""Files of metrics to readings: the dialect decides which module reads them."""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from tracelink._io.engine import Engine
from tracelink._io.sources import Opened, Source
from tracelink._model.events import Track, TrackKind
from tracelink._model.metrics import Readings
from tracelink._model.trace import NoPayloads, RankTrace
from tracelink.converters.metrics import dialect_of, prometheus, tables
from tracelink.converters.metrics.cells import FORMAT, Samples


class MetricsFileReader:
    """Reads metrics that other programs sampled."""

    name = FORMAT

    def read(self, source: Source, engine: Engine) -> RankTrace:
        """All samples, by the file's own times, hosts and devices; jobs use `read_metrics`."""
        readings = self.read_metrics(source, engine)
        tracks = [
            Track(TrackKind.COUNTER, gauge.device or gauge.host, gauge.name, gauge.name, unit=gauge.unit)
            for gauge in readings.gauges
        ]
        return RankTrace(
            [readings.source],
            tracks=tracks,
            counters=readings.counters,
            payloads=[NoPayloads()],
            findings=list(readings.findings),
        )

    def read_metrics(self, source: Source, engine: Engine) -> Readings:
        """All samples, with what the file says of hosts and devices."""
        dialect = dialect_of(source.head(), source.name) or "csv"
        samples = Samples()
        with source.open() as stream:
            _READERS[dialect](stream, samples, engine.meter.add)
            damage = stream.damage
        return samples.readings(source, dialect, damage)


Advanced = Callable[[int], None]


DialectReader = Callable[[Opened, Samples, Advanced], None]


def _of_lines(read: Callable[[Iterable[list[str]], Samples], None]) -> DialectReader:
    """A reader of blocks of lines as a reader of a stream."""
    return lambda stream, samples, advanced: read(
        _blocks_of_lines(stream, samples.skipped, advanced), samples
    )


_READERS: Mapping[str, DialectReader] = {
    "csv": _of_lines(tables.read_csv),
    "headless": _of_lines(tables.read_headless),
    "dmon": _of_lines(tables.read_dmon),
    "dcgmi": _of_lines(tables.read_dcgmi),
    "vmstat": _of_lines(tables.read_vmstat),
    "prometheus": _of_lines(prometheus.read_text),
    "query-range": prometheus.read_query_range,
    "smi-json": prometheus.read_smi,
    "dynolog": _of_lines(prometheus.read_dynolog),
}


# Lines in blocks of bounded size, whatever the encoding and however long a line is.

BLOCK = 1 << 20
LONGEST_LINE = 1 << 20


def _blocks_of_lines(
    stream: Opened, skipped: Counter[str], advanced: Callable[[int], None]
) -> Iterator[list[str]]:
    """Yields whole lines, about a megabyte at a time; longer lines are skipped and counted."""
    decoder: codecs.IncrementalDecoder | None = None
    rest, dropping = "", False
    while data := stream.read(BLOCK):
        advanced(len(data))
        if decoder is None:
            utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
            decoder = codecs.getincrementaldecoder("utf-16" if utf16 else "utf-8-sig")("replace")
        text = decoder.decode(data)
        if dropping:
            _, newline, text = text.partition("\n")
            if not newline:
                continue
            dropping = False
        whole, newline, last = text.rpartition("\n")
        if newline:
            yield (rest + whole).split("\n")
            rest = last
        else:
            rest += last
        if len(rest) > LONGEST_LINE:
            skipped["long_lines"] += 1
            rest, dropping = "", True
    if rest.strip("\r\n\x00 "):
        yield [rest]
