"""Records of compile logs: prefix, envelope and payload, whatever is between them and wherever blocks end."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracelink.converters.torch_trace.records as records
from builders.compile_log import PID, artifact, begin, local_time, log, record
from builders.recorder import as_source
from tracelink._io.sources import Source
from tracelink._model.columns import SECOND
from tracelink._model.errors import UnreadableError
from tracelink.converters.torch_trace.log import decoded
from tracelink.converters.torch_trace.records import Damage, Record, records_in

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
