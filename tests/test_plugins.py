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
from builders.plugin import CODE, NOTES, installed
from tracelink import plugins
from tracelink._model.errors import UsageError
from tracelink.plugins import Content

ROOT = Path(tracelink_package.__file__).parent.parent
FIRST, SECOND = "#notes 0\n1000 wake\n5000 think", "#notes 1\n1500 wake"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with somebody's formats."""
    return installed(
        tmp_path / "site",
        "somebody-notes",
        {"somebody_notes": NOTES, "notes_code": CODE},
        {"notes": "somebody_notes:FORMAT", "notes-markdown": "somebody_notes:MARKDOWN"},
    )


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Notes of two ranks and a profile of a third."""
    write(tmp_path / "job" / "a.txt", FIRST.encode())
    write(tmp_path / "job" / "b.txt.gz", SECOND.encode())
    write(tmp_path / "job" / "c.json", trace(cpu_op("aten::add", 2), rank=2))
    return tmp_path / "job"


def run(site: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Python with what is installed in `site`."""
    environment = {**os.environ, "PYTHONPATH": str(site), **more}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=60, check=False, env=environment
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
        f"import tracelink; tracelink.write(tracelink.load({str(job)!r}), {str(output)!r}, to='notes')",
    )
    assert {path.name: path.read_text() for path in output.iterdir()} == {
        "rank0.notes": FIRST,
        "rank1.notes": SECOND,
        "rank2.notes": "#notes 2\n2000 aten::add",
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
    empty = write(job / "empty.txt", b"#notes 0")
    result = tracelink(site, "merge", str(empty))
    assert result.returncode != 0
    assert "no notes" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "value", ["missing_module:FORMAT", "somebody_notes:MISSING", "somebody_notes:FORMAT"]
)
def test_a_broken_plugin_costs_only_itself(site: Path, job: Path, tmp_path: Path, value: str) -> None:
    installed(site, "broken", {}, {"aaa": value})
    output = tmp_path / "merged.json"
    result = tracelink(site, "merge", str(job), "-o", str(output))
    assert (result.returncode, "Traceback" in result.stderr) == (0, False), result.stderr
    assert output.exists()
    asked = tracelink(site, "merge", str(job), "-o", str(output), "--to", "aaa")
    assert asked.returncode != 0
    assert "the plugin 'aaa'" in asked.stderr.replace("\n", " ")
    listed = tracelink(site, "formats")
    assert all(name in listed.stdout for name in ("kineto", "notes"))
    assert "the plugin 'aaa'" in listed.stderr.replace("\n", " ")
    assert "Traceback" not in listed.stderr


def test_a_reader_that_cannot_be_imported_costs_only_the_files_of_its_format(site: Path, job: Path) -> None:
    (site / "notes_code.py").unlink()
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
print(plugins.readers()["notes"].recognises(b"#notes 0", ""), "notes_code" in sys.modules)
tracelink.load({str(job / "a.txt")!r})
print("notes_code" in sys.modules)
"""
    assert python(site, text).split() == ["True", "False", "True"]


def test_the_own_formats_come_the_same_way() -> None:
    assert {"kineto", "execution-trace", "flight-recorder"} <= set(plugins.readers())
    assert {"perfetto-json"} <= set(plugins.writers())
    assert {"chakra", "perfetto-json", "svg"} <= set(plugins.conversions())
    for name, plugin in plugins.installed().items():
        assert plugin.format().name == name
        assert plugin.origin.startswith("torch-tracelink ")


METHODS = {
    Content.RECORDS: "read_records",
    Content.COMPILATIONS: "read_log",
    Content.METRICS: "read_metrics",
    Content.JOB: "read_job",
}
"""How the files of a content are read, besides `read`."""


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
        assert hasattr(plugins.writer(name), "forecast") == writer.forecasts
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
