"""Records of compile logs: prefix, envelope and payload, whatever is between them and wherever blocks end."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracelink.converters.torch_trace.records as records
from builders.compile_log import PID, artifact, log, record
from builders.recorder import as_source
from tracelink.converters.torch_trace.records import Damage, Record, records_in
from tracelink.io.sources import Source

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
