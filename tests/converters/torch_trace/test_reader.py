"""Compile logs as rank traces: tracks, times, arguments."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

import tracelink
from builders.compile_log import PID, artifact, begin, end, instant, log, record
from builders.recorder import as_source
from tracelink import samples
from tracelink._model.columns import SECOND
from tracelink._model.events import EventKind, Key
from tracelink._model.records import Frame
from tracelink._model.trace import RankTrace
from tracelink._model.witnesses import UNKNOWN_FILE
from tracelink._run.processes import Processes
from tracelink.converters.torch_trace import is_compile_log
from tracelink.converters.torch_trace.reader import TorchTraceReader


def read(*records: str) -> RankTrace:
    return TorchTraceReader().read(as_source(log(*records), "log"), Processes(1))


def slices(trace: RankTrace) -> list[tuple[str, str, float]]:
    """Name, track and duration in seconds of each event."""
    names, events = trace.strings.texts(), trace.events
    return [
        (names[name], trace.tracks[track].label, duration / SECOND)
        for name, track, duration in zip(
            events.name.tolist(), events.track.tolist(), events.duration.tolist(), strict=True
        )
    ]


def test_work_that_overlaps_is_on_a_track_of_its_own() -> None:
    trace = read(
        begin("dynamo", at=1),
        begin("compile_file", at=2),
        begin("wait", at=2.5),
        end("wait", at=3.5),
        end("compile_file", at=3),
        end("dynamo", at=5),
    )
    assert slices(trace) == [
        ("dynamo", "compiler", 4),
        ("compile_file", "compiler", 1),
        ("wait", "compiler workers", 1),
    ]


def test_open_work_lasts_until_the_end_of_the_log() -> None:
    trace = read(begin("dynamo", at=1), instant("tick", at=3))
    assert slices(trace)[0] == ("dynamo", "compiler", 2)
    assert [EventKind(kind).name for kind in trace.events.kind.tolist()] == ["COMPILATION", "INSTANT"]


FRAMES = '  File "/home/me/train.py", line 3, in step\n    model(x)\n  File "/me/model.py", line 15, in forward\n    x'


CODE = """
cpp_fused_gelu_0 = async_compile.cpp_pybinding(['float*'], r'''
''')

# kernel path: /tmp/torchinductor_me/xy/cxy.py
# Topologically Sorted Source Nodes: [add], Original ATen: [aten.add]
triton_poi_fused_add_1 = async_compile.triton('triton_poi_fused_add_1', '''
import triton
''', device_str='cuda')

# kernel path: C:\\me\\zz\\czz.py
triton_red_fused_sum_2 = async_compile.triton('triton_red_fused_sum_2', '''''')
other_3 = async_compile.triton('no path', '''''')
"""


def test_link_keys() -> None:
    trace = read(
        begin("dynamo", "0/0", at=1),
        begin("inductor_compile", "0/0", at=2, fn_name="compile_fx_inner"),
        begin("code_gen", "0/0", at=2.5),
        record("inductor_output_code", {"filename": "/tmp/cab.py"}, CODE, compile_id="0/0", at=3),
        record("inductor_output_code", {"filename": "/tmp/other.py"}, "code", compile_id="1/0", at=3),
        artifact(
            "inductor_provenance_tracking_kernel_stack_traces",
            json.dumps({"cpp_fused_0:1": [FRAMES, FRAMES], "triton_poi_1:2": ["nothing"]}),
            "0/0",
            at=3,
        ),
        artifact("inductor_provenance_tracking_kernel_stack_traces", "damaged", "0/0", at=3),
        end("code_gen", "0/0", at=3),
        end("inductor_compile", "0/0", at=4, key="f5gi"),
        end("dynamo", "0/0", at=5),
        begin("compile_file", at=6),
        end("compile_file", at=7),
    )
    texts = trace.strings.texts()
    assert {
        key: [(texts[trace.events.name[row]], texts[value]) for row, value in zip(*column, strict=True)]
        for key, column in (
            (key, (column.rows.tolist(), column.values.tolist())) for key, column in trace.keys.items()
        )
    } == {
        Key.COMPILE_ID: [("dynamo", "0/0"), ("inductor_compile", "0/0"), ("code_gen", "0/0")],
        Key.COMPILED_FUNCTION: [("inductor_compile", "compile_fx_inner")],
        Key.CACHE_KEY: [("inductor_compile", "f5gi")],
        Key.KERNEL_SOURCES: [("inductor_compile", "cpp_fused_0: model.py:15 (forward)")],
        Key.KERNEL_FILES: [
            ("inductor_compile", "triton_poi_fused_add_1: cxy.py"),
            ("inductor_compile", "triton_red_fused_sum_2: czz.py"),
        ],
        Key.OUTPUT_CODE: [("inductor_compile", "/tmp/cab.py")],
    }


def test_arguments_are_those_of_the_end() -> None:
    trace = read(
        begin("dynamo", "0/0", at=1),
        end("dynamo", "0/0", at=2, cache_state="hit"),
        instant("tick", at=3, n=[1, 2]),
    )
    ((first, texts),) = trace.payloads[0].batches()
    assert (first, [bytes(text) for text in texts]) == (
        0,
        [b'{"compile_id": "0/0","cache_state": "hit"}', b'{"compile_id": "None","n": [1,2]}'],
    )


def test_recognised_by_content_and_by_name() -> None:
    data = log(artifact("x", "y"))
    assert is_compile_log(data, "anything.txt")
    assert is_compile_log(b"noise\n" + data, "anything.txt")
    assert not is_compile_log(b"V1118 06:08:23.000000 1 a.py:1] hello\n", "glog.txt")
    assert not is_compile_log(b'{"traceEvents": []}', "dedicated_log_torch_trace_x.log")


# Layouts of folders.


def of_process(pid: int, *records: str) -> str:
    return "".join(records).replace(f" {PID} ", f" {pid} ")


def phases_of(folder: Path) -> list[tuple[str, int | None, str]]:
    """Name, rank and process of each phase."""
    graph = tracelink.load(folder)
    return sorted(
        (graph.name(row), graph.tracks[track].rank, graph.tracks[track].process)
        for row, track in enumerate(graph.events.track.tolist())
    )


def test_all_logs_of_a_rank_are_read(tmp_path: Path) -> None:
    """A rank that forked a process, and was restarted."""
    for name, pid, at in (("a", 100, 0), ("b", 101, 1), ("c", 200, 60)):
        text = of_process(pid, begin(f"phase_{name}", at=at), end(f"phase_{name}", at=at + 5))
        (tmp_path / f"dedicated_log_torch_trace_rank_3_{name}.log").write_text(text)
    assert phases_of(tmp_path) == [("phase_a", 3, "100"), ("phase_b", 3, "101"), ("phase_c", 3, "200")]


def test_rank_of_a_log_that_began_before_the_rank_was_known(tmp_path: Path) -> None:
    later = artifact("x", "y", at=3).replace('"artifact"', '"rank": 5, "artifact"')
    (tmp_path / "dedicated_log_torch_trace_abc.log").write_text(
        begin("dynamo", at=1) + later + end("dynamo", at=4)
    )
    assert phases_of(tmp_path) == [("dynamo", 5, str(PID))]


def test_arguments_in_a_compressed_log(tmp_path: Path) -> None:
    path = tmp_path / "dedicated_log_torch_trace_rank_0_a.log.gz"
    path.write_bytes(
        gzip.compress(log(begin("a", at=1), end("a", at=2, n=1), begin("b", at=3), end("b", at=4, n=2)))
    )
    graph = tracelink.load(path)
    assert [graph.arguments(row)["n"] for row in range(len(graph))] == [1, 2]


def test_stack_of_a_forked_process_without_the_names_of_its_parent() -> None:
    frames = [{"line": 1, "name": "main", "filename": 0}, {"line": 2, "name": "step", "filename": 7}]
    text = record("str", ["train.py", 0]) + record("dynamo_start", {"stack": frames}, compile_id="0/0", at=1)
    found = TorchTraceReader().read_log(as_source(text.encode(), "log"), Processes(1))
    assert found.called_at == {"0/0": [Frame("main", "train.py", 1), Frame("step", UNKNOWN_FILE, 2)]}
    assert found.unnamed_files == {"0/0": [0, 7]}


def test_log_of_tracing_without_events(tmp_path: Path) -> None:
    """TORCH_DTRACE alone, or an export."""
    path = tmp_path / "dedicated_log_torch_trace_rank_0_a.log"
    path.write_text(record("expression_created", {"result": "s0"}) + artifact("exported_program", "graph"))
    graph = tracelink.load(path)
    assert (len(graph), [finding.reason for finding in graph.findings]) == (0, ["no_time_zone"])


def test_graph_of_a_job_with_all_sources() -> None:
    graph = tracelink.load(samples.path("compile_job"))
    formats = {source.format for source in graph.sources}
    assert formats == {"torch-trace", "kineto", "flight-recorder"}
    log = next(place for place, source in enumerate(graph.sources) if source.format == "torch-trace")
    rows = graph.rows_of_source(log)
    row = next(row for row in range(rows.start, rows.stop) if graph.name(row) == "entire_frame_compile")
    assert graph.arguments(row)["compile_id"] == "0/0"


@pytest.mark.parametrize(("rank", "events"), [(0, 238), (1, 293)])
def test_recorded_ranks(rank: int, events: int) -> None:
    (path,) = samples.path("compile_job").glob(f"*_torch_trace_rank_{rank}_*")
    graph = tracelink.load(path)
    assert [source.rank for source in graph.sources] == [rank]
    assert len(graph) == events
