"""`tracelink._io.spool`."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracelink._io.spool import InMemory, LocalStore, Spool
from tracelink._model.errors import TraceError
from tracelink._run.processes import Processes

THINGS = st.lists(st.tuples(st.text(), st.integers(0, 3000)))


@given(THINGS)
def test_things_come_back_as_they_were(things: list[tuple[str, int]]) -> None:
    spool = Spool()
    tickets = [spool.put((text, np.arange(count))) for text, count in things]
    for (text, count), ticket in reversed(list(zip(things, tickets, strict=True))):
        same, array = spool.get(ticket)
        assert (same, array.tolist()) == (text, list(range(count)))


def test_processes_put_side_by_side() -> None:
    spool = Spool()

    def work(number: int) -> object:
        return spool.put(np.full(100_000 + number, number))

    tickets = Processes(4).map(work, range(12))
    assert [spool.get(ticket).sum() for ticket in tickets] == [n * (100_000 + n) for n in range(12)]


def test_what_all_processes_have_is_not_written() -> None:
    class Opener:
        """Cannot be pickled: its class has no name of its own."""

    opener = Opener()
    spool = Spool(shared=[opener])
    assert spool.get(spool.put({"source": opener}))["source"] is opener


def test_the_file_has_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    spool = Spool()
    spool.put(np.arange(1000))
    assert os.listdir(tmp_path) == []


def test_a_full_disk_is_said_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(
        TraceError, match=r"cannot write temporary files in .*: No space left on device\. Free .* TMPDIR"
    ):
        Spool().put(np.arange(10))


def test_a_keeper_in_memory_gives_the_very_thing_back() -> None:
    keeper, thing = LocalStore([], in_memory=True), object()
    place = keeper.put(thing)
    assert isinstance(place, InMemory)
    assert keeper.get(place) is thing
