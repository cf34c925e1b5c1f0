"""A few payloads of a long file: found as in the whole, with little else decoded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from builders.kineto import cpu_op, trace, write
from tracelink.converters.kineto import KinetoReader
from tracelink.engine import Engine
from tracelink.io.json_array import RereadPayloads
from tracelink.io.sources import Request, discover
from tracelink.model.trace import Payload

EVENTS = 30_000
FAR_APART = [3, 4, 900, 15_000, EVENTS - 1]


@pytest.fixture(scope="module", params=["long.json", "long.json.gz"])
def long_file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RereadPayloads:
    """The payloads of a file of several megabytes."""
    data = trace(*(cpu_op("op", number, External_id=number, note="x" * 150) for number in range(EVENTS)))
    assert len(data) > 4 << 20
    path: Path = tmp_path_factory.mktemp("long") / request.param
    write(path, data)
    (source,) = discover(Request([(str(path), "")])).sources
    (payloads,) = KinetoReader().read(source, Engine()).payloads
    assert isinstance(payloads, RereadPayloads)
    return payloads


@pytest.mark.parametrize("wanted", [[], [0], [EVENTS - 1], FAR_APART, list(range(0, EVENTS, 1000))])
def test_those_that_are_asked_for_are_as_in_the_whole(long_file: RereadPayloads, wanted: list[int]) -> None:
    whole = [bytes(text) for _, texts in long_file.batches() for text in texts]
    near = {
        first + place: bytes(text)
        for first, texts in long_file.near(np.array(wanted, np.int64))
        for place, text in enumerate(texts)
    }
    assert {number: near[number] for number in wanted} == {number: whole[number] for number in wanted}
    assert near.items() <= dict(enumerate(whole)).items()


def test_pieces_between_them_are_not_decoded(long_file: RereadPayloads) -> None:
    decoded: list[int] = []

    def decode(text: memoryview) -> list[Payload]:
        decoded.append(len(text))
        return long_file.format.decode(text)

    watched = replace(long_file, format=replace(long_file.format, decode=decode))
    assert list(watched.near(np.array([10, EVENTS - 10])))
    assert len(decoded) <= 2 < len(long_file.counts)
