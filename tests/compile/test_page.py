"""The page of compile logs: what it contains, and what hostile logs do to it."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path

import tracelink._compile.payloads as embedding
from builders.compile_log import artifact, begin, instant, log, metrics, record
from builders.compile_reading import read
from builders.data import traces
from builders.html_page import read_html
from tracelink._compile.charts import stages_of
from tracelink._compile.payloads import embedding_of
from tracelink._compile.reading import Read
from tracelink._compile.report import report_of
from tracelink._show.charts import MOST_BARS
from tracelink._show.html import draw

HOSTILE = '</title></script></style><script>alert(1)</script><img src="//host/x" onerror="alert(2)">'
PAYLOAD = re.compile(r'<script type="text/plain" id="p(\d+)">([A-Za-z0-9+/=]*)</script>')


def logs(folder: Path, *ranks: bytes) -> Read:
    """The logs of these ranks."""
    for rank, content in enumerate(ranks):
        (folder / f"dedicated_log_torch_trace_rank_{rank}_x.log").write_bytes(content)
    return read([folder])


def page(read_logs: Read) -> str:
    return draw(report_of(read_logs.report, read_logs))


def payloads(text: str) -> dict[int, str]:
    """The payloads of a page by number."""
    return {
        int(number): gzip.decompress(base64.b64decode(content)).decode()
        for number, content in PAYLOAD.findall(text)
    }


def test_equal_payloads_of_ranks_are_in_the_page_once(tmp_path: Path) -> None:
    graph, code = artifact("after_joint_graph", "def f():\n\tpass\n", "0/0"), artifact("code", "x = 1", "0/0")
    text = page(logs(tmp_path, log(graph, code), log(graph), log(graph)))
    assert sorted(payloads(text).values()) == ["def f():\n\tpass\n", "x = 1"]
    assert len(re.findall("<button[^>]* data-payload=", text)) == 4


def test_payloads_of_a_compressed_log_are_read_in_one_pass() -> None:
    found = read([traces("compile_job")])
    chosen = embedding_of(found.logs)
    shown = payloads(page(found))
    assert sorted(shown) == sorted(chosen.numbers.values())
    assert (chosen.left_out, len(shown)) == (0, len(set(shown.values())))


def test_what_is_too_large_is_cut_or_left_out(tmp_path: Path) -> None:
    large = "x" * (embedding.MOST_OF_ONE + 10)
    found = logs(
        tmp_path, log(artifact("inductor_output_code", large, "0/0"), artifact("b", "y" * 99, "0/1"))
    )
    chosen = embedding_of(found.logs, most=embedding.MOST_OF_ONE + 50)
    assert (chosen.left_out, chosen.left_out_bytes) == (1, 100)
    (shown, other) = payloads(page(found)).values()
    assert (len(shown), other) == (embedding.MOST_OF_ONE - 1, "y" * 99)
    assert "--artifacts DIR writes all of it" in page(found)


def test_every_compile_id_has_an_anchor(tmp_path: Path) -> None:
    again = metrics("1/5", co_name="step", recompile_reason="1/0: x == 1  # x")
    text = page(logs(tmp_path, log(metrics("1/0", co_name="step"), again), log(metrics("!0/1/0"))))
    assert re.findall(r'<details id="([^"]*)"', text) == ["c-0-1/0", "c-0-1/5", "c-1-!0/1/0"]
    assert '<dt>recompile of</dt><dd><a href="#c-0-1/0">[1/0]</a></dd>' in text


def test_reasons_keep_their_lines(tmp_path: Path) -> None:
    text = page(logs(tmp_path, log(artifact("dynamo_error", "Unsupported\n\tat <x>\u202e", "0/0"))))
    assert "Unsupported\n    at &lt;x&gt;\\u202e</pre>" in text


def test_stacks_are_one_tree_without_frames_of_torch(tmp_path: Path) -> None:
    names = ["/me/train.py", "/lib/torch/_dynamo/eval_frame.py"]
    strings = [record("str", [name, number]) for number, name in enumerate(names)]

    def start(compile_id: str, last: int) -> str:
        lines = [(0, 9, "main"), (1, 5, "inner"), (0, last, "step")]
        stack = [{"line": line, "name": name, "filename": file} for file, line, name in lines]
        return record("dynamo_start", {"stack": stack}, compile_id=compile_id)

    text = page(logs(tmp_path, log(*strings, start("0/0", 20), start("1/0", 30))))
    tree = text[text.index('id="stacks"') : text.index('id="logs"')]
    assert re.findall(r"<code>([^<]*)</code>|\[(\d/\d)\]", tree) == [
        ("train.py:9 in main", ""),
        ("train.py:20 in step", ""),
        ("", "0/0"),
        ("train.py:30 in step", ""),
        ("", "1/0"),
    ]


def test_hostile_names_and_payloads_have_no_effect(tmp_path: Path) -> None:
    text = page(
        logs(
            tmp_path,
            log(
                metrics("0/0", co_name=HOSTILE, co_filename=HOSTILE, fail_type=HOSTILE, fail_reason=HOSTILE),
                metrics("0/1", recompile_reason=f"0/0: {HOSTILE}"),
                artifact(HOSTILE, HOSTILE, "0/0"),
                artifact("recompile_reasons", HOSTILE, "0/1"),
                artifact("inductor_collective_schedule", HOSTILE, "0/1"),
                artifact("dynamo_graph_break_reason", HOSTILE, "0/1"),
                begin(HOSTILE, "0/2", at=1, fn_name=HOSTILE),
                instant(HOSTILE, at=3),
                artifact("graph_execution", json.dumps({"graph_execution_order": [{"compile_id": HOSTILE}]})),
                artifact("dynamo_graph_break_reason", HOSTILE, "0/2"),
                record("missing_fake_kernel", {"op": HOSTILE}),
                record("mismatched_fake_kernel", {"op": HOSTILE, "reason": HOSTILE}),
            ),
        )
    )
    assert "alert(1)" in text
    assert not re.search(r"<script>alert|<img", text)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    allowed = re.findall(r"([\w-]+) (\S+?)(?:;|$)", policy[1].replace("&#x27;", ""))
    assert [(name, value.partition("-")[0]) for name, value in allowed] == [
        ("default-src", "none"),
        ("style-src", "sha256"),
        ("script-src", "sha256"),
        ("base-uri", "none"),
        ("form-action", "none"),
    ]


def section(text: str, name: str) -> str:
    """The HTML of a section."""
    return text[text.index(f'<h2 id="{name}">') :].partition("</section>")[0]


def words(markup: str) -> list[str]:
    """Its texts."""
    return [text.strip() for text in re.findall(r">([^<>]+)<", markup) if text.strip()]


def test_tables_have_a_header_for_each_column(tmp_path: Path) -> None:
    text = page(
        logs(
            tmp_path,
            *[
                log(
                    metrics("0/0", co_name="step"),
                    metrics("0/1", co_name="step", recompile_reason="0/0: x == 1  # x", fail_type="E"),
                    artifact("dynamo_graph_break_reason", "why", "0/1"),
                    artifact("inductor_collective_schedule", schedule, "0/0"),
                    artifact(f"fx_graph_cache_{state}", "{}", "0/0"),
                    artifact("graph_execution", '{"graph_execution_order": [{"compile_id": "0/0"}]}'),
                    record("missing_fake_kernel", {"op": "o"}),
                    begin("dynamo", "1/0", at=1),
                    instant("x", at=3),
                )
                for schedule, state in (('["a"]', "hit"), ('["b"]', "miss"))
            ],
        )
    )
    tables = read_html(text).all("table")
    assert len(tables) > 9
    for one in tables:
        assert len({len(row.all("th", "td")) for row in one.all("tr")}) == 1, one.text


def test_reasons_that_are_a_list_have_a_line_each(tmp_path: Path) -> None:
    reasons = json.dumps(["0/1: x == 1", "0/0: x == 0"], indent=0)
    text = page(logs(tmp_path, log(artifact("recompile_reasons", reasons, "0/2"))))
    assert text.count("0/1: x == 1\n0/0: x == 0</pre>") == 2


def test_schedules_of_ranks(tmp_path: Path) -> None:
    reduce = "torch.ops._c10d_functional.all_reduce_.default"

    def rank(*operations: str) -> bytes:
        return log(artifact("inductor_collective_schedule", json.dumps(operations), "0/0"))

    found = logs(tmp_path, rank(reduce, reduce, "b"), rank(reduce, reduce, "b"), rank(reduce))
    assert read_html(page(found)).rows("In the order of each graph") == [
        ["[0/0]", "1", "0-1", f"all_reduce_ x 2, b{reduce}\n{reduce}\nb"],
        ["[0/0]", "1", "2", f"all_reduce_{reduce}"],
    ]


def test_long_schedules_are_short_until_they_are_opened(tmp_path: Path) -> None:
    many = [f"torch.ops._c10d_functional.op{number}.default" for number in range(40)]
    content = log(artifact("inductor_collective_schedule", json.dumps(many), "0/0"))
    text = section(page(logs(tmp_path, content)), "schedules")
    (summary,) = re.findall(r"<summary>([^<]*)</summary>", text)
    assert summary == f"{', '.join(f'op{number}' for number in range(12))}, and 28 more"
    assert [name for name in words(text) if name.startswith("torch.")] == many


def test_plots_have_a_box_for_each_compilation_and_a_bar_for_each_stage(tmp_path: Path) -> None:
    stages = {
        "dynamo_cumulative_compile_time_us": 1_000_000,
        "inductor_cumulative_compile_time_us": 250_000,
    }
    first = metrics("0/0", co_name="step", **stages)
    text = section(
        page(logs(tmp_path, log(first, metrics("1/0", start=2, fail_type="E")), log(first))), "times"
    )
    titles = re.findall(r"<title>([^<]*)</title>", text)
    assert titles == [
        "When each rank compiled",
        *("[0/0] step ok 1.0 s", "[0/0] step ok 1.0 s", "[1/0]  error 1.0 s"),
        "Compile time of each function, by stage, all ranks together",
        *(
            "step [0]: tracing and guards 1,500 ms",
            "step [0]: inductor passes 500 ms",
            "[1]: unknown 1,000 ms",
        ),
        "Compile time of each rank, by stage",
        *("rank 0: tracing and guards 750 ms", "rank 0: inductor passes 250 ms", "rank 0: unknown 1,000 ms"),
        *("rank 1: tracing and guards 750 ms", "rank 1: inductor passes 250 ms"),
    ]


def test_what_is_open_is_drawn_until_the_end_of_the_log(tmp_path: Path) -> None:
    found = logs(tmp_path, log(metrics("0/0"), begin("dynamo", "1/0", at=1), instant("x", at=31)))
    assert "<title>[1/0]  open 30.0 s</title>" in section(page(found), "times")


def test_ranks_that_are_not_drawn_are_counted(tmp_path: Path) -> None:
    one = log(metrics("0/0"))
    text = section(page(logs(tmp_path, *[one] * (MOST_BARS + 2))), "times")
    assert "2 more rows not drawn." in text
    assert "2 more bars not drawn." in text


def test_stages_add_up_to_the_time(tmp_path: Path) -> None:
    found = read([traces("compile_faults")]).report
    for one in found.compiles:
        assert sum(stages_of(one).values()) >= (one.duration_ns or 0)


def test_graphs_and_code_side_by_side(tmp_path: Path) -> None:
    """The backward graph has no graph of its own before the passes."""
    names = "before_pre_grad_graph", "inductor_post_grad_graph", "inductor_output_code"
    mapping = "inductor_provenance_tracking_node_mappings"

    def graph(number: int, *some: str) -> list[str]:
        return [artifact(name, f"{name} {number}", "0/0") for name in some]

    records = [*graph(1, *names, mapping), *graph(2, *names[1:], mapping)]
    text = page(logs(tmp_path, log(*records, artifact(mapping, "{}", "1/0"))))
    shown = payloads(text)
    found = re.findall(r'data-provenance="([\d ]*)"', text)
    assert [[shown[int(number)] for number in numbers.split()] for numbers in found] == [
        [f"{mapping} 1", *(f"{name} 1" for name in names)],
        [f"{mapping} 2", f"{names[0]} 1", *(f"{name} 2" for name in names[1:])],
    ]


def test_graphs_and_code_of_older_versions_and_of_aotinductor(tmp_path: Path) -> None:
    mapping = "inductor_provenance_tracking_node_mappings"
    records = [
        artifact("before_pre_grad_graph", "before", "0/0"),
        artifact("after_post_grad_graph", "after", "0/0"),
        record("graph_dump", {"name": "wrapper"}, "calls of kernels", compile_id="0/0"),
        record("graph_dump", {"name": "kernel"}, "kernels", compile_id="0/0"),
        artifact(mapping, "{}", "0/0"),
    ]
    text = page(logs(tmp_path, log(*records)))
    shown = payloads(text)
    (numbers,) = re.findall(r'data-provenance="([\d ]*)"', text)
    assert [shown[int(number)] for number in numbers.split()] == ["{}", "before", "after", "calls of kernels"]


def test_messages_as_torch_logs_prints_them(tmp_path: Path) -> None:
    reasons = artifact("recompile_reasons", '["0/0: x == 1", "0/1: x == 2"]', "0/2")
    plain = artifact("recompile_reasons", "0/2: y", "0/3")
    guards = artifact("dynamo_cpp_guards_str", "TREE", "0/2")
    text = section(page(logs(tmp_path, log(reasons, plain, guards), log(reasons))), "messages")
    assert words(text)[1:] == [
        "recompiles: 2 messages",
        *("[0/2]", "rank 0-1", "0/0: x == 1\n0/1: x == 2"),
        *("[0/3]", "rank 0", "0/2: y"),
        "guards: 1 compilation",
        "[0/2]",
    ]


def test_estimates_and_orders(tmp_path: Path) -> None:
    def rank(time: int, *ids: str) -> bytes:
        operations = [{"name": "a", "type": "collective", "estimated_runtime_ns": time, "outputs": []}]
        order = [{"compile_id": one} for one in ids]
        return log(
            metrics("0/0", co_name="step"),
            artifact("inductor_runtime_and_tensor_meta", json.dumps({"ops": operations}), "0/0"),
            artifact("graph_execution", json.dumps({"graph_execution_order": order})),
        )

    text = page(logs(tmp_path, rank(1000, "0/0", "0/0"), rank(3000, "0/0", "0/0"), rank(3000, "9/9")))
    assert read_html(text).rows("One run of each graph") == [
        ["[0/0]", "1", "1", "3.0", "1.0", "2.0", "0-2", "1", "3.0"]
    ]
    assert read_html(text).rows("The order of most ranks first") == [
        ["0-1", "2", "[0/0] step x 2;"],
        ["2", "1", "[9/9] ;"],
    ]


def test_links_lead_to_anchors() -> None:
    """Also where only some ranks have a compile id."""
    text = page(read([traces("compile_job")]))
    anchors = set(re.findall(r' id="([^"]*)"', text))
    assert set(re.findall(r'href="#([^"]*)"', text)) <= anchors
