"""JSON objects of samples: rocm-smi and amd-smi, one document after the other, and lines of dynolog."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tracelink._model.columns import NO_TIME
from tracelink._model.metrics import Basis, Gauge
from tracelink.converters.metrics import schema
from tracelink.converters.metrics.cells import TimeFormat, is_missing, numbers, time_format, times, unit_of
from tracelink.converters.metrics.samples import LONGEST_NAME, Samples

if TYPE_CHECKING:
    from tracelink._io.sources import Opened

LARGEST = 256 << 20
"""Uncompressed bytes of a file: it is decoded as a whole."""
DEEPEST = 8
MOST_WASTED = 4
"""How often a damaged text is decoded in vain, before the rest of it is given up."""
CARD = re.compile(r"(?:card|gpu)(\d{1,6})$", re.IGNORECASE)
TIME_MARK, DATA_MARK = "time = ", " data = "
"""Before the two parts of a line of dynolog."""
NO_METRICS = frozenset(("timestamp", "time", "gpu", "device", "hostname", "host", "uuid", "gpu_uuid", "pid"))

Value = tuple[str, str, float]
"""Name, unit and value."""


class _Rows:
    """Values by gauge, until they become columns."""

    def __init__(self, samples: Samples) -> None:
        self.samples = samples
        self._values: defaultdict[Gauge, tuple[list[int], list[float]]] = defaultdict(lambda: ([], []))

    def add(self, device: Gauge, time: int, values: Iterable[Value]) -> None:
        """The values of one device at one time."""
        for name, unit, value in values:
            gauge = Gauge(name[:LONGEST_NAME], unit, device.host, device.device, device.uuid, device.pid)
            moments, numbers_of = self._values[gauge]
            moments.append(time)
            numbers_of.append(value)
        self.samples.rows += 1

    def finish(self) -> None:
        """Hands all of them to the samples."""
        for gauge, (moments, values) in self._values.items():
            self.samples.add(gauge, np.array(moments, np.int64), np.array(values, np.float64))


def _values(
    content: Mapping[str, Any], samples: Samples, prefix: str = "", depth: int = 0
) -> Iterator[Value]:
    """All numbers in an object; nested objects give their names to what is in them, except `{"value", "unit"}`."""
    for key, value in content.items():
        name, unit = schema.name_and_unit(str(key)[:LONGEST_NAME])
        if name.lower() in NO_METRICS and not prefix:
            continue
        whole = f"{prefix}.{name}" if prefix else name
        if isinstance(value, dict):
            if "value" in value:
                own = value.get("unit")
                yield from _value(whole, str(own) if own else unit, value["value"], samples)
            elif depth < DEEPEST:
                yield from _values(value, samples, whole, depth + 1)
        elif isinstance(value, list):
            for number, item in enumerate(value[:64]):
                yield from _value(f"{whole}[{number}]", unit, item, samples)
        else:
            yield from _value(whole, unit, value, samples)


def _value(name: str, unit: str, value: Any, samples: Samples) -> Iterator[Value]:
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, int | float):
        yield name, unit, float(value) if abs(value) < 1e300 else math.inf
        return
    if not isinstance(value, str):
        return
    if is_missing(value):
        samples.skipped["no_value"] += 1
        return
    own = unit or unit_of(value)
    (number,), wrong = numbers([value], own)
    if not wrong:
        yield name, own, float(number)


# rocm-smi and amd-smi.


def read_smi(stream: Opened, samples: Samples, advanced: Callable[[int], None]) -> None:
    """Adds each document: a round of all devices; a line between documents can be the time of the next one."""
    text = stream.read_all(LARGEST).decode("utf-8-sig", "replace")
    advanced(len(text))
    rows = _Rows(samples)
    form: TimeFormat | None = None
    for number, (before, document) in enumerate(_documents(text, samples)):
        stated = next((line for line in reversed(before.splitlines()) if time_format(line)), "")
        for device, content in _devices(document):
            cell = stated or str(content.get("timestamp") or content.get("time") or "")
            form = form or (time_format(cell) if cell else None)
            time = int(times([cell], form)[0]) if form and cell else number if form is None else NO_TIME
            samples.skipped["no_time"] += time == NO_TIME
            rows.add(device, time, _values(content, samples))
    samples.basis = form.basis if form else Basis.ROUND
    rows.finish()


def _documents(text: str, samples: Samples) -> Iterator[tuple[str, Any]]:
    """The JSON documents in a text, each with the text before it."""
    decoder = json.JSONDecoder()
    position, wasted = 0, 0
    for begin in _begins(text):
        if begin < position:
            continue
        try:
            document, end = decoder.raw_decode(text, begin)
        except (ValueError, RecursionError) as error:
            samples.skipped["damaged_objects"] += 1
            wasted += max(getattr(error, "pos", 0) - begin, LONGEST_NAME)
            if wasted > MOST_WASTED * len(text):
                break
            continue
        yield text[position:begin][-1000:], document
        position = end


def _begins(text: str) -> Iterator[int]:
    """Where a line begins with a brace or a bracket."""
    return (match.end() - 1 for match in re.finditer(r"(?:^|\n|\})[ \t\r]*[{\[]", text))


def _devices(document: Any) -> Iterator[tuple[Gauge, Mapping[str, Any]]]:
    """The objects of devices in a document, whatever the tool and its version."""
    if isinstance(document, dict) and isinstance(document.get("gpu_data"), list):
        document = document["gpu_data"]
    if isinstance(document, list):
        for item in document:
            if isinstance(item, dict) and "gpu" in item:
                uuid = item.get("uuid")
                yield Gauge("", device=schema.index_of_device(str(item["gpu"])), uuid=str(uuid or "")), item
    elif isinstance(document, dict):
        for key, content in document.items():
            if (match := CARD.match(key)) and isinstance(content, dict):
                yield Gauge("", device=str(int(match[1]))), content


# dynolog.


def read_dynolog(blocks: Iterable[list[str]], samples: Samples) -> None:
    """Adds the object of each line; its time is local, although a Z follows it."""
    rows = _Rows(samples)
    samples.basis = Basis.LOCAL
    form = TimeFormat(Basis.LOCAL)
    for lines in blocks:
        for line in lines:
            before, mark, text = line.partition(DATA_MARK)
            moment = before.rpartition(TIME_MARK)[2]
            if not mark or not text.startswith("{"):
                continue
            try:
                content = msgspec.json.decode(text)
            except (msgspec.DecodeError, UnicodeError, RecursionError):
                samples.skipped["damaged_objects"] += 1
                continue
            (time,) = times([moment.removesuffix("Z")], form).tolist()
            samples.skipped["no_time"] += time == NO_TIME
            device = content.get("device")
            index = "" if device is None else schema.index_of_device(str(device))
            host = str(content.get("hostname") or content.get("host") or "")
            rows.add(Gauge("", host=host, device=index), time, _values(content, samples))
    rows.finish()
