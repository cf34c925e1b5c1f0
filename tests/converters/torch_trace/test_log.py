"""Compile logs decoded: phases, compilations, artifacts, time zones, damage."""

from __future__ import annotations

from collections import Counter

import pytest

from builders.compile_log import START_US, artifact, begin, end, instant, log, metrics, record
from builders.data import foreign, traces
from builders.recorder import as_source
from tracelink._io.sources import discover_inputs
from tracelink._model.columns import SECOND
from tracelink._model.errors import UnreadableError
from tracelink._model.records import Frame
from tracelink._model.witnesses import CompileLog, Phase
from tracelink.converters.torch_trace.log import decoded

START = START_US * 1000


def read(*records: str) -> CompileLog:
    return decoded(as_source(log(*records), "log_rank_0.log"), lambda _: None).log


def phases(found: CompileLog) -> list[tuple[str, float, float | None]]:
    """Name, start and end of each phase, in seconds."""
    return [
        (
            one.name,
            (one.start_ns - START) / SECOND,
            None if one.end_ns is None else (one.end_ns - START) / SECOND,
        )
        for one in found.phases
    ]


def test_phases_nest() -> None:
    found = read(
        begin("dynamo", "0/0", at=1),
        begin("backend", "0/0", at=1.25, fn_name="call"),
        end("backend", "0/0", at=1.5),
        end("dynamo", "0/0", at=2),
    )
    assert phases(found) == [("dynamo", 1, 2), ("backend", 1.25, 1.5)]
    assert [(one.compile_id, one.function) for one in found.phases] == [("0/0", ""), ("0/0", "call")]


def test_end_belongs_to_the_newest_begin_of_its_name() -> None:
    found = read(
        begin("compile_file", at=1),
        begin("compile_file", at=2),
        end("compile_file", at=3),
        end("compile_file", at=5),
    )
    assert phases(found) == [("compile_file", 1, 5), ("compile_file", 2, 3)]


def test_work_that_is_open_at_the_end() -> None:
    found = read(
        begin("dynamo", "3/2", at=1), begin("async_compile.wait", "3/2", at=2), instant("tick", at=9)
    )
    assert phases(found) == [("dynamo", 1, None), ("async_compile.wait", 2, None), ("tick", 9, 9)]
    assert found.last_ns == START + 9 * SECOND


def test_an_instant_shows_the_zone_if_no_phase_does() -> None:
    found = read(instant("x", at=1), artifact("a", "b", "0/0", at=8))
    assert (found.findings, found.last_ns) == ([], START + 8 * SECOND)


def test_instants_are_in_the_order_of_time() -> None:
    found = read(instant("late", at=5), instant("early", at=1))
    assert [(one.name, one.instant) for one in found.phases] == [("early", True), ("late", True)]


def test_compilation() -> None:
    found = read(
        record("str", ["/home/me/train.py", 7]),
        record(
            "dynamo_start", {"stack": [{"line": 58, "name": "main", "filename": 7}]}, compile_id="1/5", at=1
        ),
        metrics(
            "1/5",
            start=1,
            seconds=2,
            co_name="step",
            graph_op_count=3,
            recompile_reason="1/4: x",
            restart_reasons='["a break"]',
            inductor_cumulative_compile_time_us=1_500_000,
        ),
        metrics("1/5", start=4, seconds=1, backward=True),
    )
    forward, backward = found.compilations
    assert (forward.compile_id, forward.function, forward.operations) == ("1/5", "step", 3)
    assert (forward.start_ns, forward.duration_ns) == (START + SECOND, 2 * SECOND)
    assert (forward.recompile_reason, list(forward.restarts)) == ("1/4: x", ["a break"])
    assert (forward.stages, forward.backward) == ({"inductor": 1_500_000_000}, False)
    assert (backward.compile_id, backward.backward, backward.duration_ns) == ("1/5", True, SECOND)
    assert found.called_at == {"1/5": [Frame("main", "/home/me/train.py", 58)]}


def test_artifacts() -> None:
    found = read(
        artifact("recompile_reasons", "1/0: s.i == 0", "1/1"),
        artifact("anything", "not kept", "1/1"),
        artifact("torch_version", '{"pytorch_version": "2.13.0"}'),
    )
    assert [(one.name, one.compile_id, one.text) for one in found.artifacts] == [
        ("recompile_reasons", "1/1", "1/0: s.i == 0"),
        ("anything", "1/1", ""),
        ("torch_version", "", '{"pytorch_version": "2.13.0"}'),
    ]
    assert (found.torch, found.source.records) == ("2.13.0", 3)


def test_kinds_of_records_that_are_unknown_are_counted() -> None:
    found = read(record("brand_new", {"x": 1}), record("brand_new", {}), begin("dynamo", at=1))
    assert found.kinds == {"brand_new": 2, "chromium_event": 1}


def test_compile_ids_of_compiled_autograd() -> None:
    found = read(artifact("x", "", "!0/1/0"), artifact("y", "", "!2"))
    assert [one.compile_id for one in found.artifacts] == ["!0/1/0", "!2"]


# Damage.


def reasons(found: CompileLog) -> Counter[str]:
    return Counter({finding.reason: finding.count for finding in found.findings})


def test_damaged_records_cost_only_themselves() -> None:
    broken = begin("lost", at=1).replace('{"chromium_event"', '{"chromium_event')
    changed = artifact("code", "abc").replace("\tabc", "\tabd")
    no_json = record("chromium_event", {}, "{", at=1)
    found = read(
        broken, changed, no_json, end("never_begun", at=2), begin("dynamo", at=3), end("dynamo", at=4)
    )
    assert phases(found) == [("dynamo", 3, 4)]
    assert reasons(found) == Counter(
        damaged_record=1, damaged_payload=1, damaged_event=1, end_without_begin=1
    )


def test_truncated_log() -> None:
    data = log(begin("dynamo", at=1), artifact("code", "x" * 100))[:-20]
    found = decoded(as_source(data), lambda _: None).log
    assert reasons(found) == Counter(truncated=1, damaged_payload=1)


def test_log_without_events_has_no_time_zone() -> None:
    assert reasons(read(artifact("code", "x"))) == Counter(no_time_zone=1)


def test_no_log() -> None:
    with pytest.raises(UnreadableError, match="no record of a compile log"):
        decoded(as_source(b"hello"), lambda _: None)


# Real logs.


@pytest.mark.parametrize(
    ("path", "counts"),
    [
        ("compile_faults/dedicated_log_torch_trace_sample.log.gz", (199, 4, 691)),
        *foreign(("torch_trace/single", (1184, 57, 3258))),
    ],
)
def test_recorded_log(path: str, counts: tuple[int, int, int]) -> None:
    (source,) = discover_inputs(traces(path)).sources
    found = decoded(source, lambda _: None).log
    spans = [one for one in found.phases if not one.instant]
    assert (len(spans), len(found.phases) - len(spans), found.source.records) == counts
    assert all(one.end_ns is not None for one in spans)
    assert (found.torch, list(found.findings)) == ("2.13.0+cpu", [])
    assert phase_of(found, "entire_frame_compile").compile_id == "0/0"


def phase_of(found: CompileLog, name: str) -> Phase:
    return next(one for one in found.phases if one.name == name)
