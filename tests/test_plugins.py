"""A format from somebody else's distribution: found, read, written and listed, with no change to the core."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import tracelink as tracelink_package
from builders.kineto import cpu_op, trace, write
from builders.plugin import installed, notes_installed, page_modules
from tracelink import plugins
from tracelink._api.plugin_check import METHODS
from tracelink._model.errors import UsageError

ROOT = Path(tracelink_package.__file__).parent.parent
FIRST, SECOND = "#notes 0\n1000 50 wake\n5000 70 think", "#notes 1\n1500 50 wake"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with the plugin of docs/plugins.md."""
    return notes_installed(tmp_path / "site")


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Notes of two ranks and a profile of a third."""
    write(tmp_path / "job" / "a.txt", FIRST.encode())
    write(tmp_path / "job" / "b.txt.gz", SECOND.encode())
    write(tmp_path / "job" / "c.json", trace(cpu_op("aten::add", 2), rank=2))
    return tmp_path / "job"


def run(site: Path, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Python with what is installed in `site`."""
    environment = {**os.environ, "PYTHONPATH": str(site)}
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environment,
        cwd=cwd,
    )


def python(site: Path, text: str) -> str:
    result = run(site, "-c", text)
    assert result.returncode == 0, result.stderr
    return result.stdout


def tracelink(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(site, "-c", "from tracelink.cli import main; main(prog_name='tracelink')", *arguments)


def test_a_file_of_the_new_format_is_recognised_and_read(site: Path, job: Path) -> None:
    text = f"""
import json, tracelink
graph = tracelink.load({str(job)!r})
print(json.dumps({{
    "names": [graph.name(row) for row in range(len(graph))],
    "ranks": graph.rank_of_events().tolist(),
    "formats": [source.format for source in graph.sources],
    "arguments": graph.arguments(1),
}}))
"""
    assert json.loads(python(site, text)) == {
        "names": ["wake", "think", "wake", "aten::add"],
        "ranks": [0, 0, 1, 2],
        "formats": ["notes", "notes", "kineto"],
        "arguments": {"line": 3},
    }


@pytest.mark.parametrize("how", ["suffix", "name"])
def test_a_graph_is_written_in_the_new_format(site: Path, job: Path, tmp_path: Path, how: str) -> None:
    said = ", to='notes'" if how == "name" else ""
    output = tmp_path / ("out.notes" if how == "suffix" else "out")
    python(site, f"import tracelink; tracelink.merge({str(job / 'a.txt')!r}, output={str(output)!r}{said})")
    assert output.read_text() == FIRST


def test_many_ranks_become_a_folder_of_files(site: Path, job: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.notes"
    python(
        site,
        f"import tracelink; tracelink.merge(tracelink.load({str(job)!r}), {str(output)!r}, to='notes')",
    )
    assert {path.name: path.read_text() for path in output.iterdir()} == {
        "rank0.notes": FIRST,
        "rank1.notes": SECOND,
        "rank2.notes": "#notes 2\n2000 1000 aten::add",
    }


def test_the_command_converts_from_and_to_the_new_format(site: Path, job: Path, tmp_path: Path) -> None:
    there, back = tmp_path / "a.json", tmp_path / "a.notes"
    assert tracelink(site, "merge", str(job / "a.txt"), "-o", str(there)).returncode == 0
    assert {event["name"] for event in json.loads(there.read_text())["traceEvents"]} >= {"wake", "think"}
    assert tracelink(site, "merge", str(job / "a.txt"), "-o", str(back)).returncode == 0
    assert back.read_text() == FIRST


def test_the_command_lists_the_new_format_with_where_it_is_from(site: Path) -> None:
    result = tracelink(site, "formats", "--json")
    assert result.returncode == 0
    assert "somebody-notes 1.2" in result.stdout
    listed = tracelink(site, "formats").stdout
    assert "notes" in listed
    assert "kineto" in listed


def test_an_error_of_the_new_format_is_told_like_any_other(site: Path, job: Path) -> None:
    empty = write(job / "empty.txt", b"#notes zero")
    result = tracelink(site, "merge", str(empty))
    assert result.returncode != 0
    assert "the first line has no rank" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("value", ["missing_module:FORMAT", "notes:MISSING", "notes:NOTES", "raising:FORMAT"])
def test_a_broken_plugin_costs_only_itself(site: Path, job: Path, tmp_path: Path, value: str) -> None:
    installed(site, "broken", {"raising": "1 / 0"}, {"aaa": value})
    output = tmp_path / "merged.json"
    result = tracelink(site, "merge", str(job), "-o", str(output))
    assert (result.returncode, "Traceback" in result.stderr) == (0, False), result.stderr
    assert output.exists()
    unknown = tracelink(site, "inspect", str(write(job / "unknown.bin", b"?")))
    assert "Not aaa, which cannot be imported; see: tracelink formats." in unknown.stderr.replace("\n", " ")
    asked = tracelink(site, "merge", str(job), "-o", str(output), "--to", "aaa")
    assert asked.returncode != 0
    assert "the plugin 'aaa'" in asked.stderr.replace("\n", " ")
    listed = tracelink(site, "formats")
    assert all(name in listed.stdout for name in ("kineto", "notes"))
    assert "the plugin 'aaa'" in listed.stderr.replace("\n", " ")
    assert "Traceback" not in listed.stderr


def test_a_reader_that_cannot_be_imported_costs_only_the_files_of_its_format(site: Path, job: Path) -> None:
    text = page_modules()["notes"].replace("notes:NotesReader", "notes_code:NotesReader")
    (site / "notes.py").write_text(text)
    output = job.parent / "merged.json"
    result = tracelink(site, "merge", str(job), "-o", str(output), "--json")
    assert (result.returncode, "Traceback" in result.stderr) == (1, False), result.stderr
    assert "aten::add" in output.read_text()
    messages = [finding["message"] for finding in json.loads(result.stdout)["findings"]]
    broken = "the plugin 'notes' (notes_code:NotesReader) cannot be imported: No module named 'notes_code'"
    assert len([message for message in messages if broken in message]) == 2


def test_a_format_is_declared_without_what_reads_and_writes_it(site: Path, job: Path) -> None:
    text = f"""
import sys, tracelink
from tracelink import plugins
print(plugins.writers()["notes"].suffixes, "notes_writer" in sys.modules)
tracelink.merge({str(job / "a.txt")!r}, output={str(job / "b.notes")!r})
print("notes_writer" in sys.modules)
"""
    assert python(site, text).split() == ["('.notes',)", "False", "True"]


# The page for authors: the other examples on it.


def test_the_reader_of_the_page_is_short() -> None:
    lines = [line for line in page_modules()["notes"].splitlines() if line and not line.startswith("#")]
    assert len(lines) <= 40


def test_the_test_of_the_page_passes(site: Path, tmp_path: Path) -> None:
    result = run(site, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n0", str(site / "test_notes.py"))
    assert result.returncode == 0, result.stdout


def test_the_question_of_the_page_is_answered(site: Path, job: Path) -> None:
    result = run(site, str(site / "notes_question.py"), str(job), cwd=job)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [
        "aten::add takes longest",
        "",
        "name       count  total (µs)",
        "aten::add      1         1.0",
        "wake           2         0.1",
        "think          1         0.1",
    ]
    assert "aten::add takes longest" in (job / "longest.html").read_text()


@pytest.mark.parametrize("name", ["threads", "threads://"])
def test_the_engine_of_the_page_gives_the_bytes_of_processes(site: Path, job: Path, name: str) -> None:
    for engine in ([], ["--engine", name]):
        result = tracelink(site, "merge", str(job), "-o", str(job.parent / f"{len(engine)}.json"), *engine)
        assert result.returncode == (0 if name == "threads" or not engine else 2), result.stderr
    if name == "threads":
        assert (job.parent / "0.json").read_bytes() == (job.parent / "2.json").read_bytes()


def test_an_engine_that_cannot_be_imported_says_why(site: Path, job: Path) -> None:
    installed(site, "broken", {"raising": "1 / 0"}, {}, {"slow": "raising:SLOW"})
    result = tracelink(site, "summary", str(job), "--engine", "slow")
    assert (result.returncode, "Traceback" in result.stderr) == (2, False)
    assert "the plugin 'slow' (raising:SLOW) cannot be imported: ZeroDivisionError" in result.stderr.replace(
        "\n", " "
    )
    assert tracelink(site, "merge", str(job), "-o", str(job.parent / "out.json")).returncode == 0


# Bugs of plugins cost their files, and name the plugin.


READS = "        trace, skipped = TraceBuilder"
"""The line of the page's reader before which a test puts a bug."""

BUGS = {
    "exception": (
        "        if b: 1 / 0\n",
        "failed: ZeroDivisionError: division by zero (line {line} of {place}, in read)",
    ),
    "no trace": (
        "        if b: return 3\n",
        "returned an invalid trace: it returned 3: return `TraceBuilder.build()`",
    ),
    "invalid": (
        "        if b:\n            trace = TraceBuilder(source, self.name)\n"
        "            trace.events('a', [1], 1, track=7)\n            return trace.build()\n",
        "returned an invalid trace: tracks of events: 7 is none of the 0 tracks",
    ),
}


@pytest.mark.parametrize("jobs", ["1", "3"])
@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_of_a_reader_costs_the_file(site: Path, job: Path, bug: str, jobs: str) -> None:
    code, message = BUGS[bug]
    text = page_modules()["notes"].replace(READS, code.replace("if b", "if rank == '1'", 1) + READS)
    (site / "notes.py").write_text(text)
    output = job.parent / "merged.json"
    result = tracelink(site, "merge", str(job), "-o", str(output), "--json", "-j", jobs)
    assert (result.returncode, "Traceback" in result.stderr) == (1, False), result.stderr
    names = {event["name"] for event in json.loads(output.read_text())["traceEvents"]}
    assert {"wake", "think", "aten::add"} <= names
    (found,) = [one for one in json.loads(result.stdout)["findings"] if one["severity"] == "error"]
    place = "/".join((site / "notes.py").parts[-3:])
    line = next((at for at, line in enumerate(text.splitlines(), 1) if "1 / 0" in line), 0)
    assert (found["reason"], found["source"]) == ("unreadable", str(job / "b.txt.gz"))
    assert found["message"] == (
        f"{job / 'b.txt.gz'}: the reader of 'notes' (somebody-notes 1.2) {message.format(line=line, place=place)}. "
        "This is a bug of somebody-notes: report it with this message."
    )


def test_an_only_file_with_a_bug_of_its_reader_is_unreadable(site: Path, job: Path) -> None:
    (site / "notes.py").write_text(page_modules()["notes"].replace(READS, f"        1 / 0\n{READS}"))
    for command in (["merge"], ["inspect"], ["summary"]):
        result = tracelink(site, *command, str(job / "a.txt"))
        assert (result.returncode, "Traceback" in result.stderr) == (3, False), (command, result.stderr)
        assert "somebody-notes 1.2" in result.stderr.replace("\n", " ")


def test_a_bug_of_a_recognition_is_one_warning(site: Path, job: Path) -> None:
    text = page_modules()["notes"].replace(
        'return head.startswith(b"#notes ")', "return head[5:][0] and 1 / 0"
    )
    (site / "notes.py").write_text(text)
    output = job.parent / "merged.json"
    result = tracelink(site, "merge", str(job), "-o", str(output), "--json")
    assert "aten::add" in output.read_text()
    (found,) = [one for one in json.loads(result.stdout)["findings"] if one["reason"] == "plugin"]
    assert (found["severity"], found["count"]) == ("warning", 2)
    assert "the recognition of 'notes' (somebody-notes 1.2) failed: ZeroDivisionError" in found["message"]


@pytest.mark.parametrize(
    ("module", "bug", "output", "role"),
    [
        ("notes_writer", "        outputs = []", "x.notes", "writer"),
        ("notes_list", "        with source", "x.md", "conversion"),
    ],
)
def test_a_bug_of_a_writer_is_an_error(
    site: Path, job: Path, module: str, bug: str, output: str, role: str
) -> None:
    code = (site / f"{module}.py").read_text()
    (site / f"{module}.py").write_text(code.replace(bug, f"        [][1]\n{bug}"))
    result = tracelink(site, "merge", str(job / "a.txt"), "-o", str(job.parent / output))
    assert (result.returncode, "Traceback" in result.stderr) == (1, False), result.stderr
    assert f"the {role} of 'notes" in result.stderr
    assert "failed: IndexError" in result.stderr
    assert not (job.parent / output).exists()
    verbose = tracelink(site, "merge", str(job / "a.txt"), "-o", str(job.parent / output), "-v")
    assert "Traceback" in verbose.stderr


def test_a_bug_of_our_own_reader_costs_its_file(site: Path, job: Path) -> None:
    text = f"""
import tracelink
from tracelink.converters.kineto import reader
def fails(*_): raise KeyError("ph")
reader.KinetoReader.read = fails
graph = tracelink.load({str(job)!r})
print([str(finding.message) for finding in graph.findings if finding.severity == "error"])
"""
    assert "c.json: the reader of 'kineto' (torch-tracelink 0.1.0) failed: KeyError: 'ph'" in python(
        site, text
    )


# The contract of readers.


CONTRACT = {
    'return head.startswith(b"#notes ")': (
        "return True",
        "an empty file is recognised, and is of another format",
    ),
    "int(start), int(duration)": (
        "float(start), int(duration)",
        "it cannot be read: TypeError: 'float' object",
    ),
    "trace.truncated(stream.damage)": ("", "events are lost without a finding"),
    "except ValueError": ("except KeyError", "it raises ValueError"),
    'args={"line": number}': ('args={"line": id(line), "x": object.__hash__(object())}', "arguments differ"),
    "return trace.build()": (
        "trace.stated['header'] = {'made': lambda: 0}; return trace.build()",
        "cannot be pickled",
    ),
    'name = "notes"': ('name = "nodes"', "the `name` of the reader is 'nodes', not 'notes'"),
    "    def read(": (
        "    def unpacked(self): ...\n    def read(",
        "which its `ReaderSpec` does not declare",
    ),
}
"""Mistakes in the reader of the page, and what the check says."""


@pytest.mark.parametrize("right", CONTRACT)
def test_the_check_finds_mistakes(tmp_path: Path, site: Path, right: str) -> None:
    wrong, message = CONTRACT[right]
    text = page_modules()["notes"]
    assert right in text
    (site / "notes.py").write_text(text.replace(right, wrong, 1))
    file = write(tmp_path / "x.notes", FIRST.encode() + b"\n7000 1 x" * 50)
    found = json.loads(
        python(
            site,
            "import json; from notes import NOTES; from tracelink import plugins; "
            f"print(json.dumps(plugins.check(NOTES, {str(file)!r})))",
        )
    )
    assert any(message in problem for problem in found), found


def test_the_own_formats_come_the_same_way() -> None:
    assert {"kineto", "execution-trace", "flight-recorder"} <= set(plugins.readers())
    assert {"perfetto-json"} <= set(plugins.writers())
    assert {"chakra", "perfetto-json", "svg"} <= set(plugins.conversions())
    for name, plugin in plugins.installed().items():
        assert plugin.format().name == name
        assert plugin.origin.startswith("torch-tracelink ")


def test_what_is_imported_is_what_is_declared() -> None:
    for name, reader in plugins.readers().items():
        assert reader.summary
        assert plugins.reader(name).name == name
        assert plugins.reader(name) is plugins.reader(name)
        assert callable(plugins.reader(name).read)
        assert hasattr(plugins.reader(name), "unpacked") == reader.unpacks
        assert hasattr(plugins.reader(name), "inspect") == reader.inspects
        for content, method in METHODS.items():
            assert hasattr(plugins.reader(name), method) == (reader.content is content)
    for name, writer in plugins.writers().items():
        assert writer.summary
        assert plugins.writer(name).name == name
        assert callable(plugins.writer(name).write)
        assert hasattr(plugins.writer(name), "configured") == bool(writer.options)
        assert hasattr(plugins.writer(name), "forecast") == bool(writer.timeline)
        assert hasattr(plugins.writer(name), "of_files") == writer.copies
    for name, conversion in plugins.conversions().items():
        assert conversion.summary
        assert plugins.conversion(name).name == name
        assert callable(plugins.conversion(name).convert)
        assert hasattr(plugins.conversion(name), "draw") == conversion.draws
        assert set(conversion.reads) <= set(plugins.readers())


@pytest.mark.skipif(not (ROOT / "pyproject.toml").exists(), reason="tracelink is not used from a checkout")
def test_a_checkout_has_its_formats_without_being_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    formats = plugins.installed.__wrapped__()
    assert formats.keys() == plugins.installed().keys()
    assert plugins.installed.__wrapped__(plugins.ENGINES).keys() == plugins.engines().keys() == {"dask"}
    assert {name: plugin.format() for name, plugin in formats.items()} == {
        known.name: known for known in plugins.formats()
    }
    assert str(ROOT) in tracelink_package.__path__


@pytest.mark.parametrize(("find", "what"), [(plugins.reader, "reader"), (plugins.writer, "writer")])
def test_a_format_that_is_not_installed(find: object, what: str) -> None:
    with pytest.raises(UsageError, match=f"there is no {what} 'telepathy'") as caught:
        find("telepathy")  # type: ignore[operator]
    assert caught.value.advice.startswith("Installed: ")


CONFIGURABLE = ("chakra", "perfetto", "perfetto-json")


class TestOptions:
    """Ways in which a writer can write, by the words that it has for them."""

    def test_without_any_the_writer_is_as_it_was(self) -> None:
        for name in plugins.writers():
            assert plugins.writer(name, {}) is plugins.writer(name)

    @pytest.mark.parametrize("name", CONFIGURABLE)
    def test_the_usual_word_changes_nothing(self, name: str) -> None:
        usual = {option: words[0] for option, words in plugins.writer_spec(name).options.items()}
        assert plugins.writer(name, usual) == plugins.writer(name)

    @pytest.mark.parametrize("name", CONFIGURABLE)
    def test_every_word_is_taken(self, name: str) -> None:
        for option, words in plugins.writer_spec(name).options.items():
            for word in words[1:]:
                assert plugins.writer(name, {option: word}) != plugins.writer(name)

    @pytest.mark.parametrize(
        ("name", "options", "says", "advice"),
        [
            ("chakra", {"colour": "red"}, "chakra has no option 'colour'", "It has variant, deps, gaps."),
            ("chakra", {"variant": "some"}, "variant can be full, astra-sim, not 'some'", ""),
            (
                "chakra",
                {"gaps": "yes", "variant": "astra-sim"},
                "astra-sim has no threads",
                "Leave out --gaps",
            ),
            (
                "chakra-json",
                {"variant": "full"},
                "chakra-json has no option 'variant'",
                "It has no options. variant is an option of chakra.",
            ),
            ("chakra", {"variant": "astra"}, "variant can be full, astra-sim", "Did you mean astra-sim?"),
        ],
    )
    def test_what_a_writer_does_not_have(
        self, name: str, options: Mapping[str, str], says: str, advice: str
    ) -> None:
        with pytest.raises(UsageError, match=says) as caught:
            plugins.writer(name, options)
        assert advice in (caught.value.advice or "")
