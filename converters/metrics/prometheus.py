"""Samples by name: text of Prometheus, its answers to `query_range` and `query`, and JSON of rocm-smi and dynolog."""

from __future__ import annotations

import json
import math
import re
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tracelink._model.columns import NO_TIME
from tracelink._model.errors import UnreadableError
from tracelink._model.metrics import Basis, Gauge
from tracelink.converters.metrics import schema
from tracelink.converters.metrics.cells import (
    LONGEST_NAME,
    Samples,
    TimeFormat,
    is_missing,
    numbers,
    time_format,
    times,
    unit_of,
)

if TYPE_CHECKING:
    from tracelink._io.sources import Opened


# JSON objects of samples: rocm-smi and amd-smi, one document after the other, and lines of dynolog.

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
                yield from _json_value(whole, str(own) if own else unit, value["value"], samples)
            elif depth < DEEPEST:
                yield from _values(value, samples, whole, depth + 1)
        elif isinstance(value, list):
            for number, item in enumerate(value[:64]):
                yield from _json_value(f"{whole}[{number}]", unit, item, samples)
        else:
            yield from _json_value(whole, unit, value, samples)


def _json_value(name: str, unit: str, value: Any, samples: Samples) -> Iterator[Value]:
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


MOST_LABELS = 64
LABEL = re.compile(r'[\s,]*+([A-Za-z_]\w*+)\s*+=\s*+"((?:[^"\\]|\\.)*+)"')
SAMPLE = re.compile(r"([A-Za-z_:][\w:.]*(?:\{.*\})?)\s+([-+]?[\w.+-]+)(?:\s+(-?\d{1,16}))?\s*")
HOST_LABELS = (
    "hostname", "host", "node", "nodename", "node_name", "exported_hostname", "kubernetes_node",
    "instance",
)  # fmt: skip
INDEX_LABELS = ("gpu", "gpu_id", "gpu_index", "minor_number", "card", "device")
UUID_LABELS = ("uuid", "gpu_uuid")
OF_DEVICE = re.compile(r"(?:nvidia|card|gpu|amdgpu|cuda)?[\s:_-]*\d{1,4}", re.IGNORECASE)
OF_GPU = re.compile(r"dcgm|gpu|nvidia|amd|rocm|cuda", re.IGNORECASE)
NOT_SHOWN = re.compile(
    r"(?:pci_bus_id|device|modelname|dcgm_.*|err_.*|job|instance|prometheus.*|cluster|namespace|exported_.*|pod|container"
    r"|endpoint|service|app.*|driver_version|uuid|gpu_uuid|gpu_i_.*|serial.*|productname|card_.*)"
)
"""Labels that describe a device or a scrape; others distinguish counters, and become part of their names."""


def gauge_of(name: str, labels: Mapping[str, str]) -> Gauge:
    """The gauge of a series, by its labels."""
    lower = {key.lower(): value.strip() for key, value in labels.items()}
    name = name[:LONGEST_NAME] or "metric"
    uuid = next((lower[key] for key in UUID_LABELS if lower.get(key)), "")
    index = next((lower[key] for key in INDEX_LABELS if _is_device(key, lower.get(key, ""), name)), "")
    host = next((lower[key] for key in HOST_LABELS if lower.get(key)), "")
    pid, rank = (
        int(text) if (text := lower.get(key, "")).isdecimal() and len(text) < 10 else None
        for key in ("pid", "rank")
    )
    used = {*INDEX_LABELS[:-1], *UUID_LABELS, *HOST_LABELS, "pid", "rank", "__name__"}
    others = [
        f"{key}={value}"
        for key, value in sorted(labels.items())
        if (key.lower() not in used and not NOT_SHOWN.fullmatch(key.lower()))
        or (key.lower() == "device" and not index)
    ]
    shown = f"{name} {' '.join(others)}".strip()[:LONGEST_NAME]
    return Gauge(
        shown,
        schema.unit_of_name(name),
        _host(host),
        schema.index_of_device(index),
        uuid[:LONGEST_NAME],
        pid,
        rank,
    )


def _is_device(key: str, text: str, name: str) -> bool:
    """True if a label is the number of a GPU: `device` can be a disk."""
    return bool(OF_DEVICE.fullmatch(text)) and (key != "device" or bool(OF_GPU.search(f"{name} {text}")))


def _host(text: str) -> str:
    """A host without its port."""
    host, colon, port = text.rpartition(":")
    return (host if colon and port.isdecimal() else text).strip("[]")[:LONGEST_NAME]


# Text.


def read_text(blocks: Iterable[list[str]], samples: Samples) -> None:
    """Adds each scrape; the second value of a series starts the next one, unless samples have times."""
    numbers: dict[str, int] = {}
    gauges: list[Gauge] = []
    rounds: list[int] = []
    which, times, values, timed = array("q"), array("q"), array("d"), array("b")
    for lines in blocks:
        for line in lines:
            if not line or line[0] == "#" or line.isspace():
                continue
            match = SAMPLE.fullmatch(line)
            value = _value(match[2]) if match else None
            if match is None or value is None:
                samples.skipped["noise"] += 1
                continue
            number = numbers.setdefault(match[1], len(gauges))
            if number == len(gauges):
                gauges.append(_series(match[1]))
                rounds.append(0)
            which.append(number)
            times.append(_milliseconds(match[3]) if match[3] else rounds[number])
            values.append(value)
            timed.append(match[3] is not None)
            rounds[number] += 1
    _add_text(gauges, (which, times, values, timed), samples)


def _milliseconds(text: str) -> int:
    return int(text) * 10**6 if len(text) < 14 else NO_TIME


def _add_text(
    gauges: Sequence[Gauge],
    columns: tuple[array[int], array[int], array[float], array[int]],
    samples: Samples,
) -> None:
    """Adds all samples; those without a time are left out if others have one."""
    which, times, values, timed = (np.array(column) for column in columns)
    has_times = bool(timed.any())
    samples.basis = Basis.EPOCH if has_times else Basis.ROUND
    samples.rows = len(which)
    if has_times:
        times = np.where(timed, times, NO_TIME)
        samples.skipped["no_time"] += int(np.count_nonzero(times == NO_TIME))
    of_dcgm = np.array([gauge.name.startswith(schema.DCGM) for gauge in gauges], np.bool_)
    for dcgm in (False, True):
        some = np.flatnonzero(of_dcgm[which] == dcgm) if len(which) else which.astype(np.int64)
        samples.add_mixed(gauges, which[some], times[some], values[some], of_dcgm=dcgm)


def _value(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _series(text: str) -> Gauge:
    name, _, rest = text.partition("{")
    labels: dict[str, str] = {}
    position = 0
    while len(labels) < MOST_LABELS and (match := LABEL.match(rest, position)):
        labels[match[1]] = match[2].replace('\\"', '"').replace("\\\\", "\\")
        position = match.end()
    return gauge_of(name, labels)


# query_range.

FLUSHED = 1 << 16
"""Samples of a series that are collected before they become columns."""
CHUNK = 1 << 18
Events = Iterator[tuple[str, Any]]
LATEST_SECONDS = 4e9


def read_query_range(stream: Opened, samples: Samples, advanced: Callable[[int], None]) -> None:
    """Adds all series of an answer, one pair of time and value at a time; what is before a damage is used."""
    import ijson

    events: Events = ijson.basic_parse(_Counting(stream, advanced), use_float=True, buf_size=CHUNK)
    samples.basis = Basis.EPOCH
    path: list[str] = []
    problem = ""
    try:
        for event, value in events:
            if event == "map_key":
                path[-1] = value
            elif event == "start_map":
                path.append("")
            elif event == "end_map":
                path.pop()
            elif event == "start_array":
                if path == ["data", "result"]:
                    _read_series(events, samples)
                else:
                    _skip(events)
            elif path == ["error"]:
                problem = str(value)[:LONGEST_NAME]
    except (ijson.JSONError, ValueError, OverflowError, StopIteration) as error:
        samples.cut = " ".join(str(error).split())[:80] or type(error).__name__
    if problem:
        raise UnreadableError(f"the query failed: {problem}", advice="Repeat the query.")


class _Counting:
    """A stream that reports the bytes that are read from it."""

    def __init__(self, stream: Opened, advanced: Callable[[int], None]) -> None:
        self._stream, self._advanced = stream, advanced

    def read(self, size: int) -> bytes:
        """The next bytes."""
        data = self._stream.read(size) if size else b""
        self._advanced(len(data))
        return data


def _skip(events: Events) -> None:
    """Skips the rest of an array or an object that has begun."""
    depth = 1
    for event, _ in events:
        if event in ("start_array", "start_map"):
            depth += 1
        elif event in ("end_array", "end_map"):
            depth -= 1
            if not depth:
                return


def _read_series(events: Events, samples: Samples) -> None:
    """All series of `result`, whose array has begun."""
    for event, _ in events:
        if event == "start_map":
            _read_one(events, samples)
        elif event == "end_array":
            return
        elif event == "start_array":
            _skip(events)


def _read_one(events: Events, samples: Samples) -> None:
    """One series: its labels come before its values in all known servers; else values wait for them."""
    gauge: Gauge | None = None
    waiting: list[tuple[list[float], list[str]]] = []

    def flush(seconds: list[float], texts: list[str]) -> None:
        if gauge is None:
            waiting.append((seconds, texts))
        else:
            _add(gauge, seconds, texts, samples)

    key = ""
    for event, value in events:
        if event == "map_key":
            key = value
        elif event == "end_map":
            break
        elif event == "start_map" and key == "metric":
            labels = _labels(events)
            gauge = gauge_of(labels.get("__name__", ""), labels)
        elif event == "start_array" and key == "values":
            _read_pairs(events, flush, samples)
        elif event == "start_array" and key == "value":
            for time, text in _read_pair(events, samples):
                flush([time], [text])
        elif event in ("start_map", "start_array"):
            _skip(events)
    gauge = gauge or gauge_of("", {})
    for seconds, texts in waiting:
        _add(gauge, seconds, texts, samples)


def _labels(events: Events) -> dict[str, str]:
    labels: dict[str, str] = {}
    key = ""
    for event, value in events:
        if event == "map_key":
            key = value
        elif event == "end_map":
            break
        elif event in ("start_map", "start_array"):
            _skip(events)
        elif len(labels) < MOST_LABELS:
            labels[key] = str(value)[:LONGEST_NAME]
    return labels


Flush = Callable[[list[float], list[str]], None]


def _read_pairs(events: Events, flush: Flush, samples: Samples) -> None:
    """The pairs of `values`, whose array has begun; those before a damage are used."""
    seconds: list[float] = []
    texts: list[str] = []
    try:
        for event, _ in events:
            if event == "start_array":
                for time, text in _read_pair(events, samples):
                    seconds.append(time)
                    texts.append(text)
                if len(texts) >= FLUSHED:
                    flush(seconds, texts)
                    seconds, texts = [], []
            elif event == "end_array":
                break
            elif event == "start_map":
                _skip(events)
    finally:
        flush(seconds, texts)


def _unwind(events: Events, seen: Iterable[str]) -> None:
    """Skips the rest of a pair that is none: `seen` are its first events."""
    depth = 1
    for event in seen:
        depth += (event in ("start_array", "start_map")) - (event in ("end_array", "end_map"))
        if not depth:
            return
    for _ in range(depth):
        _skip(events)


def _read_pair(events: Events, samples: Samples) -> list[tuple[float, str]]:
    """The pair of time and value whose array has begun; none if it is damaged."""
    (kind, time), (what, text), (end, _) = next(events), next(events), next(events)
    if kind == "number" and what in ("string", "number") and end == "end_array":
        return [(time, text)]
    samples.skipped["damaged_objects"] += 1
    _unwind(events, (kind, what, end))
    return []


def _add(gauge: Gauge, seconds: list[float], texts: list[str], samples: Samples) -> None:
    """Times have at most microseconds, which a float holds exactly."""
    try:
        values = np.fromiter(map(float, texts), np.float64, len(texts))
    except (ValueError, OverflowError):
        known = [_float(text) for text in texts]
        wrong = sum(
            1 for text, value in zip(texts, known, strict=True) if math.isnan(value) and text != "NaN"
        )
        samples.skipped["not_numbers"] += wrong
        samples.skipped["no_value"] -= wrong
        values = np.array(known, np.float64)
    found = np.array(seconds, np.float64)
    usable = (found >= 0) & (found < LATEST_SECONDS)
    times = np.where(usable, np.where(usable, found * 1e6, 0).round().astype(np.int64) * 1000, NO_TIME)
    samples.rows += len(times)
    samples.skipped["no_time"] += int(np.count_nonzero(~usable))
    samples.add(gauge, times, values, of_dcgm=gauge.name.startswith(schema.DCGM))


def _float(text: Any) -> float:
    try:
        return float(text)
    except (ValueError, OverflowError):
        return math.nan
