"""Files that are rewritten as they are, without a graph: when that happens, and when not."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from builders.kineto import cpu_op, trace, write
from builders.plugin import NOTES, installed
from tracelink import api, plugins
from tracelink.api import Converted, Merged
from tracelink.errors import UnreadableError, UsageError

WOKEN = b"#notes 0\n1000 wake\n5000 think"
LISTED = b"- 1000 wake\n- 5000 think\n"


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of somebody's format, from which a conversion leads to lists."""
    site = installed(
        tmp_path / "site",
        "somebody-notes",
        {"converted_notes": NOTES},
        {"notes": "converted_notes:NotesReader"},
        {"notes": "converted_notes:NotesWriter"},
        {"notes-markdown": "converted_notes:NotesAsMarkdown"},
    )
    monkeypatch.syspath_prepend(str(site))
    for discovered in (plugins.readers, plugins.writers, plugins.conversions):
        discovered.cache_clear()
        monkeypatch.setattr(plugins, discovered.__name__, discovered.__wrapped__)
    return write(tmp_path / "a.notes", WOKEN)


@pytest.mark.parametrize("name", ["a.md", "a.list.json"])
def test_the_name_of_the_output_says_it(notes: Path, tmp_path: Path, name: str) -> None:
    result = api.convert(notes, tmp_path / name)
    assert isinstance(result, Converted)
    assert [(output.path, output.format) for output in result.outputs] == [
        (str(tmp_path / name), "notes-markdown")
    ]
    assert (tmp_path / name).read_bytes() == LISTED


def test_the_format_that_is_asked_for_says_it(notes: Path, tmp_path: Path) -> None:
    api.convert(notes, tmp_path / "out", to="notes-markdown")
    assert (tmp_path / "out").read_bytes() == LISTED


def test_a_writer_that_is_asked_for_gets_a_graph(notes: Path, tmp_path: Path) -> None:
    result = api.convert(notes, tmp_path / "a.list.json", to="perfetto-json")
    assert isinstance(result, Merged)
    assert json.loads((tmp_path / "a.list.json").read_bytes())["traceEvents"]


def test_inputs_of_other_formats_become_graphs(notes: Path, tmp_path: Path) -> None:
    profile = write(tmp_path / "k.json", trace(cpu_op("aten::add", 2), rank=0))
    result = api.convert(profile, tmp_path / "out.list.json")
    assert isinstance(result, Merged)


def test_a_conversion_from_another_format_is_refused_in_words(notes: Path, tmp_path: Path) -> None:
    profile = write(tmp_path / "k.json", trace(cpu_op("aten::add", 2), rank=0))
    with pytest.raises(UsageError, match=r"notes-markdown is made of notes, and .*k\.json is kineto"):
        api.convert(profile, tmp_path / "out", to="notes-markdown")


def test_an_unknown_format_is_refused_in_words(notes: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no writer 'telepathy'"):
        api.convert(notes, tmp_path / "out", to="telepathy")


def test_what_no_reader_recognises_cannot_be_rewritten(notes: Path, tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="no reader recognises it"):
        api.convert(write(tmp_path / "odd", b"odd"), tmp_path / "out.md")


def test_several_files_become_one_graph(notes: Path, tmp_path: Path) -> None:
    folder = tmp_path / "both"
    write(folder / "0", WOKEN)
    write(folder / "1", WOKEN.replace(b"#notes 0", b"#notes 1"))
    result = api.convert(folder, tmp_path / "out.list.json")
    assert isinstance(result, Merged)
    assert result.job.events == 4


def test_standard_input_is_read_once(notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for to in ("notes-markdown", "notes"):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(WOKEN)))
        api.convert("-", tmp_path / to, to=to)
    assert (tmp_path / "notes-markdown").read_bytes() == LISTED
    assert (tmp_path / "notes").read_bytes() == WOKEN
