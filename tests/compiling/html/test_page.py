"""The page of compile logs: what it contains, and what hostile logs do to it."""

from __future__ import annotations

import base64
import gzip
import re
from pathlib import Path

from builders.compile_log import artifact, begin, instant, log, metrics, record
from builders.data import shared
from tracelink.compiling.html import embedding
from tracelink.compiling.html.embedding import embedding_of
from tracelink.compiling.html.page import html_page
from tracelink.compiling.report import Read, read

HOSTILE = '</title></script></style><script>alert(1)</script><img src="//host/x" onerror="alert(2)">'
PAYLOAD = re.compile(r'<script type="text/plain" id="p(\d+)">([A-Za-z0-9+/=]*)</script>')


def logs(folder: Path, *ranks: bytes) -> Read:
    """The logs of these ranks."""
    for rank, content in enumerate(ranks):
        (folder / f"dedicated_log_torch_trace_rank_{rank}_x.log").write_bytes(content)
    return read([folder])


def page(read_logs: Read) -> str:
    return "".join(html_page(read_logs))


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
    assert len(re.findall("<button", text)) == 4


def test_payloads_of_a_compressed_log_are_read_in_one_pass() -> None:
    found = read([shared("torch_trace/multirank_matched")])
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


def test_schedules_of_ranks(tmp_path: Path) -> None:
    def rank(*operations: str) -> bytes:
        return log(artifact("inductor_collective_schedule", str(list(operations)).replace("'", '"'), "0/0"))

    text = page(logs(tmp_path, rank("a", "b"), rank("a", "b"), rank("a")))
    table = text[text.index('id="schedules"') :].partition("</table>")[0]
    cells = re.findall(r"<td>([^<]*)</td>", table)
    assert cells == ["1", "0-1", "a, b", "1", "2", "a"]


def test_links_lead_to_anchors() -> None:
    """Also where only some ranks have a compile id."""
    text = page(read([shared("torch_trace/multirank_matched")]))
    anchors = set(re.findall(r' id="([^"]*)"', text))
    assert set(re.findall(r'href="#([^"]*)"', text)) <= anchors
