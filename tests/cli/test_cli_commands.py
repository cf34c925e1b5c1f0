"""`tracelink convert`, `formats`, `demo` and `completion`."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from conftest import Job, Run

from tracelink import plugins, samples, schemas
from tracelink.errors import UsageError
from tracelink.plugins import Plugin


class TestConvert:
    def test_one_input_one_output(self, tracelink: Run, job: Job) -> None:
        result = tracelink("convert", "k_0.json.gz", "k_0.json", "--to", "perfetto-json")
        assert result.exit_code == 0
        assert job.asked["paths"] == "k_0.json.gz"
        assert (job.asked["output"], job.asked["to"]) == ("k_0.json", "perfetto-json")

    def test_json_fits_the_schema_of_merge(self, tracelink: Run, job: Job) -> None:
        document = json.loads(tracelink("convert", "a.json", "b.json", "--json").stdout)
        jsonschema.validate(document, schemas.load("merge"))

    def test_from_standard_input_to_standard_output(self, tracelink: Run) -> None:
        profile = samples.path("gpu_pair") / "kineto_0.json.gz"
        result = tracelink("convert", "-", "-", stdin=profile.read_bytes())
        assert result.exit_code == 0
        assert json.loads(result.stdout)["traceEvents"]

    def test_json_and_the_trace_cannot_both_go_to_standard_output(self, tracelink: Run, job: Job) -> None:
        assert tracelink("convert", "a.json", "-", "--json").exit_code == 2


class TestFormats:
    def test_each_with_where_it_comes_from(self, tracelink: Run) -> None:
        result = tracelink("formats")
        assert result.exit_code == 0
        for name in ("kineto", "execution-trace", "flight-recorder", "perfetto-json"):
            lines = [line for line in result.stdout.splitlines() if line.startswith(f"{name} ")]
            assert lines
            assert all("torch-tracelink" in line for line in lines)

    def test_what_is_both_read_and_written_stands_twice(self, tracelink: Run) -> None:
        lines = tracelink("formats").stdout.splitlines()
        assert len([line for line in lines if line.startswith("chakra-json ")]) == 2

    def test_json_fits_its_schema(self, tracelink: Run) -> None:
        document = json.loads(tracelink("formats", "--json").stdout)
        jsonschema.validate(document, schemas.load("formats"))
        (writer,) = [writer for writer in document["writers"] if writer["name"] == "perfetto-json"]
        assert ".json" in writer["suffixes"]

    def test_a_plugin_that_cannot_be_imported_does_not_hide_the_others(
        self, tracelink: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken() -> Any:
            raise UsageError("the plugin 'mine' cannot be imported: no module named 'gone'")

        installed = {**plugins.readers(), "mine": Plugin("mine", "mine 1.0", broken)}
        monkeypatch.setattr(plugins, "readers", lambda: installed)
        result = tracelink("formats")
        assert result.exit_code == 1
        assert "kineto" in result.stdout
        assert "no module named 'gone'" in result.stderr


class TestDemo:
    def test_says_what_was_linked_and_what_to_open(
        self, tracelink: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        result = tracelink("demo")
        assert result.exit_code == 0
        assert "same et kineto" in result.stdout
        assert "https://ui.perfetto.dev" in result.stdout
        assert "Open trace file, then tracelink-demo.json\n" in result.stdout
        name, *rest = shlex.split(result.stdout.splitlines()[-1])
        assert (name, tracelink(*rest).exit_code) == ("tracelink", 1)
        assert json.loads((tmp_path / "tracelink-demo.json").read_bytes())["traceEvents"]

    def test_json_is_that_of_merge(self, tracelink: Run, job: Job) -> None:
        jsonschema.validate(json.loads(tracelink("demo", "--json").stdout), schemas.load("merge"))


class TestCompletion:
    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_prints_the_script(self, tracelink: Run, shell: str) -> None:
        result = tracelink("completion", shell)
        assert result.exit_code == 0
        assert "_TRACELINK_COMPLETE" in result.stdout

    def test_for_the_shell_of_the_user(self, tracelink: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SHELL", "/usr/bin/fish")
        assert json.loads(tracelink("completion", "--json").stdout)["shell"] == "fish"

    def test_an_unknown_shell_is_asked_for(self, tracelink: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SHELL", "/bin/csh")
        result = tracelink("completion")
        assert result.exit_code == 2
        assert "tracelink completion bash|zsh|fish" in result.stderr

    @pytest.mark.parametrize(
        ("words", "expected"),
        [
            ("tracelink in", "inspect"),
            ("tracelink merge --ou", "--output"),
            ("tracelink merge -t perf", "perfetto-json"),
            ("tracelink merge --clock ho", "host"),
            ("tracelink merge --only gpu,kern", "gpu,kernels"),
            ("tracelink collectives --sort dur", "duration"),
        ],
    )
    def test_completes_commands_options_and_formats(
        self, tracelink: Run, monkeypatch: pytest.MonkeyPatch, words: str, expected: str
    ) -> None:
        monkeypatch.setenv("_TRACELINK_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
        assert expected in tracelink().stdout
