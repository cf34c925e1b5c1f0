"""Records of compile logs: prefix, envelope and payload, whatever is between them and wherever blocks end."""

from __future__ import annotations

import io
import os
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracelink.converters.torch_trace.schema as records
from builders.compile_log import PID, artifact, begin, end, local_time, log, record
from builders.recorder import as_source
from tracelink._io.sources import Source, discover_inputs
from tracelink._model.columns import SECOND
from tracelink._model.errors import UnreadableError
from tracelink._model.witnesses import CompileLog
from tracelink.converters.torch_trace.log import decoded
from tracelink.converters.torch_trace.schema import Damage, LogClock, Record, records_in

# Times of compile logs: zones, years, and what changes within a log.


HOUR = 3600


def read_log(*records: str) -> CompileLog:
    return decoded(as_source("".join(records).encode(), "log_rank_0.log"), lambda _: None).log


def seconds(found: CompileLog, since: datetime) -> list[float]:
    """The times of all artifacts."""
    start = round(since.timestamp()) * SECOND
    return [(one.time_ns - start) / SECOND for one in found.artifacts]


def logged(since: datetime, at: float, zone: float) -> list[str]:
    """An artifact and a short phase, `at` seconds after `since`, in the local time of a zone in hours."""
    with local_time(since, zone):
        return [begin("dynamo", at=at), artifact("x", "y", at=at), end("dynamo", at=at)]


@pytest.mark.parametrize("zone", [-10, -7, 0, 5.75, 14])
@pytest.mark.parametrize("year", [2026, 2028])
def test_zone_of_local_times(zone: float, year: int) -> None:
    since = datetime(year, 7, 1, 12, tzinfo=UTC)
    found = read_log(*logged(since, 0, zone), *logged(since, 5, zone))
    assert seconds(found, since) == [0, 5]
    assert found.source.local_time_ns == round((since.timestamp() + zone * HOUR) * SECOND)
    assert found.last_ns == round((since.timestamp() + 5) * SECOND)


@pytest.mark.parametrize("year", [2025, 2028])
def test_year_ends_within_a_log(year: int) -> None:
    since = datetime(year, 12, 31, 23, 59, 58, tzinfo=UTC)
    with local_time(since, 0):
        after = artifact("x", "y", at=4)
    found = read_log(*logged(since, 0, 0), *logged(since, 3, 0), after)
    assert seconds(found, since) == [0, 3, 4]
    assert found.last_ns == round((since.timestamp() + 4) * SECOND)


def test_year_ends_in_the_local_time_only() -> None:
    since = datetime(2026, 12, 31, 15, tzinfo=UTC) - timedelta(seconds=2)
    assert seconds(read_log(*logged(since, 0, 9), *logged(since, 3, 9)), since) == [0, 3]


def test_year_ends_within_a_log_without_events(tmp_path: Path) -> None:
    since = datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC)
    path = tmp_path / "dedicated_log_torch_trace_x.log"
    with local_time(since, 0):
        path.write_text(artifact("x", "y") + artifact("x", "y", at=2))
    os.utime(path, (since.timestamp() + 3,) * 2)
    (source,) = discover_inputs(path).sources
    found = decoded(source, lambda _: None).log
    assert seconds(found, since) == [0, 2]
    assert [one.reason for one in found.findings] == ["no_time_zone"]


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)], ids=["back", "forward"])
def test_summer_time_ends_or_begins_within_a_log(before: int, after: int) -> None:
    since = datetime(2026, 10, 25, 0, 59, 50, tzinfo=UTC)
    with local_time(since, after):
        first_after = artifact("x", "y", at=11)
    found = read_log(
        *logged(since, 0, before), *logged(since, 5, before), first_after, *logged(since, 15, after)
    )
    assert seconds(found, since) == [0, 5, 11, 15]
    assert found.last_ns == round((since.timestamp() + 15) * SECOND)


def test_the_leap_day_ends_within_a_log() -> None:
    since = datetime(2028, 2, 29, 23, 59, 58, tzinfo=UTC)
    assert seconds(read_log(*logged(since, 0, 0), *logged(since, 3, 0)), since) == [0, 3]


def test_an_event_that_is_logged_late_changes_no_zone() -> None:
    since = datetime(2026, 7, 1, tzinfo=UTC)
    with local_time(since, 1):
        late = begin("other", at=600).replace("00:10:00", "00:50:00")
    found = read_log(*logged(since, 0, 0), late, *logged(since, 3000, 0), *logged(since, 3001, 0))
    assert seconds(found, since) == [0, 3000, 3001]


INSTANTS = st.lists(st.integers(0, 400 * 86400), min_size=1, max_size=8)


@given(INSTANTS, st.integers(-48, 56), st.integers(2020, 2035))
def test_any_times_of_one_zone(steps: list[int], quarters: int, year: int) -> None:
    """Records with an event each, in order, at most a day apart."""
    times, now = [], datetime(year, 1, 1, tzinfo=UTC)
    for step in steps:
        now += timedelta(seconds=step % 86400)
        times.append(now)
    clock, ticks = LogClock(), []
    for position, time in enumerate(times):
        local = time + timedelta(minutes=15 * quarters)
        day = (
            local.replace(year=2025) if (local.month, local.day) != (2, 29) else datetime(2025, 3, 1)
        ).timetuple()
        seconds = day.tm_yday * 86400 + local.hour * 3600 + local.minute * 60 + local.second
        tick = clock.continued(seconds * SECOND)
        for _ in range(2):
            clock.add_event(tick, round(time.timestamp()) * SECOND, position)
        ticks.append(tick)
    assert clock.settle(as_source(b""))
    found = [clock.since_1970(tick, position) for position, tick in enumerate(ticks)]
    assert found == [round(time.timestamp()) * SECOND for time in times]


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
"""Payloads can contain any character; only \\n separates lines."""


def read(data: bytes) -> tuple[list[Record], Damage]:
    damage = Damage()
    with as_source(data).open() as stream:
        return list(records_in(stream, damage, lambda _: None)), damage


def test_records_with_and_without_payload() -> None:
    text = record("str", ["a.py", 0], at=1.5) + artifact("code", "one\n\ntwo\n", "1/5", at=2)
    (first, second), damage = read(text.encode())
    assert (first.pid, first.envelope, first.payload) == (PID, b'{"str": ["a.py", 0]}', b"")
    assert (second.payload, second.time_ns - first.time_ns) == (b"one\n\ntwo\n", 500_000_000)
    assert text.encode()[second.payload_offset :][: second.payload_bytes] == b"\tone\n\t\n\ttwo\n\t"
    assert text.encode()[second.offset :].startswith(b"V1118 06:08:25.000000")
    assert damage == Damage()


@given(st.lists(TEXTS, min_size=1, max_size=5), st.integers(1, 300))
def test_any_payloads_and_any_blocks(payloads: list[str], block: int) -> None:
    data = log(*(artifact("text", payload) for payload in payloads))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "BLOCK", block)
        found, damage = read(data)
    assert [one.payload.decode() for one in found] == payloads
    assert [data[one.offset :][:1] for one in found] == [b"V"] * len(payloads)
    assert damage == Damage()


def test_lines_of_other_programs() -> None:
    one, two = artifact("text", "first"), artifact("text", "second")
    found, damage = read(f"warning: hello\n{one}\nTrace: x\n{two}".encode())
    assert [(record.payload, record.noise) for record in found] == [(b"first", 2), (b"second", 0)]
    assert damage == Damage(before=15)


def test_file_that_ends_within_a_record() -> None:
    whole = artifact("text", "first\nsecond").encode()
    ((found,), damage) = read(whole[:-4])
    assert (found.payload, damage.cut) == (b"first\nsec", True)


RECORDS = st.one_of(
    st.builds(lambda text: artifact("text", text, "1/5"), TEXTS), st.just(record("str", ["a.py", 0], at=1.5))
)


@given(st.lists(RECORDS, min_size=1, max_size=5), st.data())
def test_any_cut_keeps_the_records_before_it(texts: list[str], data: st.DataObject) -> None:
    whole = "".join(texts).encode()
    ends = list(accumulate(len(text.encode()) for text in texts))
    cut = data.draw(st.integers(1, len(whole)))
    found, damage = read(whole[:cut])
    complete, _ = read(whole)
    before = sum(end <= cut for end in ends)
    assert found[:before] == complete[:before]
    assert len(found) in (before, before + 1)
    assert not any(one.noise for one in found)
    assert damage.cut == (whole[cut - 1 : cut] != b"\n")
    for partial in found[before:]:
        assert complete[before].envelope.startswith(partial.envelope)
        assert complete[before].payload.startswith(partial.payload)


@given(st.lists(RECORDS, min_size=1, max_size=4), st.data())
def test_any_cut_within_a_record_is_a_finding(texts: list[str], data: st.DataObject) -> None:
    """What is left of a record is not taken for a whole one."""
    whole = "".join([*texts, begin("dynamo", "0/0", at=2)]).encode()
    ends = {0, *accumulate(len(text.encode()) for text in texts), len(whole)}
    cut = data.draw(st.integers(1, len(whole)).filter(lambda at: at not in ends))
    try:
        log_of_cut = decoded(as_source(whole[:cut]), lambda _: None).log
    except UnreadableError:
        assert cut <= len(texts[0].encode())
        return
    reasons = {finding.reason for finding in log_of_cut.findings}
    assert reasons & {"truncated", "damaged_payload", "damaged_record"}


def test_time_with_real_microseconds() -> None:
    """Python 3.12 and later."""
    with local_time(datetime(2026, 1, 2, tzinfo=UTC), 0):
        ((found,), _) = read(record("str", ["a.py", 0], at=3.123456).encode())
    assert found.time_ns == 2 * 86400 * SECOND + 3_123_456_000


def test_no_record() -> None:
    assert read(b"hello\nworld\n") == ([], Damage(before=12))


def test_record_that_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "LONGEST", 1000)
    monkeypatch.setattr(records, "BLOCK", 100)
    with pytest.raises(records.UnreadableError, match="longer than"):
        read(artifact("text", "x\n" * 1000).encode())


def test_compressed_file() -> None:
    import gzip

    data = gzip.compress(log(artifact("text", "one")))
    source = Source("log.gz", lambda: io.BytesIO(data), len(data))
    with source.open() as stream:
        (found,) = records_in(stream, Damage(), lambda _: None)
    assert found.payload == b"one"
