"""Errors, help, start-up time, and the small commands."""

from __future__ import annotations

import importlib
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import jsonschema
import pytest

from builders.command_line import Job, Run
from tracelink import __version__, plugins, samples, schemas
from tracelink._model.errors import RankConflictError, TraceError, UnreadableError, UsageError
from tracelink.cli.main import COMMANDS
from tracelink.plugins import Plugin

# What a user sees when something goes wrong: words, never a traceback, and an exit code.


CUT_OFF = UnreadableError("cut\noff", source="k.json", position="byte 12", advice="Copy it again.")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("x"), 2),
        (RankConflictError("x"), 2),
        (UnreadableError("x"), 3),
        (TraceError("x"), 1),
        (RuntimeError("x"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
@pytest.mark.parametrize("how", [(), ("--json",), ("--quiet",)])
def test_exit_codes_of_errors(
    tracelink: Run, job: Job, error: BaseException, code: int, how: tuple[str, ...]
) -> None:
    job.error = error
    assert tracelink("inspect", "traces/", *how).exit_code == code


class TestTraceError:
    def test_is_one_paragraph_with_source_problem_and_advice(self, tracelink: Run, job: Job) -> None:
        job.error = CUT_OFF
        result = tracelink("inspect", "k.json")
        assert result.stderr == "tracelink: k.json, byte 12: cut off. Copy it again.\n"
        assert result.stdout == ""

    def test_is_printed_with_quiet(self, tracelink: Run, job: Job) -> None:
        job.error = CUT_OFF
        assert "cut off" in tracelink("inspect", "k.json", "-q").stderr

    def test_is_json_on_standard_output_and_text_on_standard_error(self, tracelink: Run, job: Job) -> None:
        job.error = CUT_OFF
        result = tracelink("inspect", "k.json", "--json")
        assert json.loads(result.stdout) == {
            "error": {
                "message": "cut\noff",
                "source": "k.json",
                "position": "byte 12",
                "advice": "Copy it again.",
            }
        }
        assert result.stderr.startswith("tracelink: ")


def test_an_error_that_the_user_can_put_right_has_no_traceback(tracelink: Run, job: Job) -> None:
    job.error = CUT_OFF
    assert "Traceback" not in tracelink("inspect", "k.json", "-v").stderr


class TestUnexpectedError:
    def test_is_one_line_that_names_the_option_for_more(self, tracelink: Run, job: Job) -> None:
        job.error = RuntimeError("the impossible\nhappened")
        output = tracelink("inspect", "k.json").stderr
        assert output.count("\n") == 1
        assert "RuntimeError: the impossible happened" in output
        assert "(-v shows the traceback)" in output

    def test_has_a_traceback_with_verbose(self, tracelink: Run, job: Job) -> None:
        job.error = RuntimeError("the impossible")
        output = tracelink("inspect", "k.json", "-v").stderr
        assert "Traceback" in output
        assert output.splitlines()[-1].startswith("tracelink: ")

    def test_is_json_on_standard_output(self, tracelink: Run, job: Job) -> None:
        job.error = RuntimeError("the impossible")
        document = json.loads(tracelink("inspect", "k.json", "--json").stdout)
        assert "the impossible" in document["error"]["message"]


def test_an_empty_folder_is_named(tracelink: Run, tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    for command in ("inspect", "merge", "collectives"):
        result = tracelink(command, "nothing")
        assert (result.exit_code, result.stderr) == (
            3,
            "tracelink: nothing: there are no files in it. Name a folder that contains traces.\n",
        )


@pytest.mark.parametrize(
    ("arguments", "question"),
    [
        (("colectives", "x"), "No such command 'colectives'. Did you mean collectives?"),
        (("telepathy",), "No such command 'telepathy'. See: tracelink --help"),
        (
            ("a folder",),
            "No such command 'a folder'. To see what is in a folder: tracelink inspect 'a folder'",
        ),
        (("merge", "x", "--setps", "1"), "--steps"),
        (
            ("merge", "a folder", "--to", "perfeto"),
            "there is no writer 'perfeto'. Did you mean perfetto? Installed: ",
        ),
        (
            ("merge", "a folder", "-o", "x.pftrce"),
            "no format has names that end in .pftrce. Did you mean x.pftrace? ",
        ),
        (
            ("merge", "a folder", "--to", "pftrace"),
            "there is no writer 'pftrace'. Did you mean perfetto? Installed",
        ),
        (
            ("merge", "a folder", "--to", "json"),
            "there is no writer 'json'. Did you mean perfetto-json? Installed: ",
        ),
        (("merge", "a folder", "--to", ".et"), "there is no writer '.et'. Did you mean chakra? Installed: "),
        (("merge", "a folder", "--variant", "astra"), "'astra-sim'. Did you mean astra-sim?"),
        (
            ("merge", "a folder", "--only", "kernel"),
            "no kind of events 'kernel'. Did you mean kernels?",
        ),
        (("merge", "a foldr"), "a foldr: there is no such file or directory. Did you mean a folder?"),
        (
            ("merge", "a folder", "--rank", "f.jsn=1"),
            "which is not among the inputs. Did you mean f.json?",
        ),
        (("collectives", "x", "--sort", "skw"), "'verdict'. Did you mean skew?"),
        (("completion", "fsh"), "'fish'. Did you mean fish?"),
    ],
)
def test_an_unknown_word_is_met_with_the_similar_one(
    tracelink: Run, tmp_path: Path, arguments: tuple[str, ...], question: str
) -> None:
    (tmp_path / "a folder").mkdir()
    (tmp_path / "a folder" / "f.json").write_bytes(b"{}")
    result = tracelink(*arguments)
    assert result.exit_code == 2
    assert question in result.stderr


def test_an_interrupt_is_one_line(tracelink: Run, job: Job) -> None:
    job.error = KeyboardInterrupt()
    assert tracelink("inspect", "traces/").stderr == "tracelink: interrupted.\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("inspect",),
        ("diff", "one"),
        ("completion", "powershell"),
        ("inspect", "x", "--no-such-option"),
        ("inspect", "x", "--jobs", "0"),
        ("inspect", "x", "--verbose", "--quiet"),
    ],
)
def test_wrong_arguments_are_exit_code_2_as_text_and_json(
    tracelink: Run, job: Job, arguments: tuple[str, ...]
) -> None:
    result = tracelink(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Error: " in result.stderr
    result = tracelink(*arguments, "--json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"]["message"]


def test_an_unknown_command_is_exit_code_2(tracelink: Run) -> None:
    result = tracelink("mergee")
    assert result.exit_code == 2
    assert "mergee" in result.stderr


def test_a_missing_path_is_exit_code_2(tracelink: Run) -> None:
    result = tracelink("merge", "nowhere.json")
    assert result.exit_code == 2
    assert "nowhere.json" in result.stderr


def test_a_rank_of_an_unknown_file_is_exit_code_2(tracelink: Run) -> None:
    result = tracelink("inspect", str(samples.path("cpu_job")), "--rank", "other.json=3")
    assert result.exit_code == 2
    assert "other.json" in result.stderr


@pytest.fixture
def of_two_ranks(tmp_path: Path) -> str:
    """A profile of rank 0 whose name says rank 7."""
    path = tmp_path / "rank_7.json.gz"
    shutil.copy(samples.path("cpu_job") / "kineto_0.json.gz", path)
    return str(path)


def test_two_ranks_of_one_file_are_exit_code_2(tracelink: Run, of_two_ranks: str) -> None:
    result = tracelink("merge", of_two_ranks)
    assert result.exit_code == 2
    assert "the content says 0, the name says 7" in result.stderr
    assert f"--rank {of_two_ranks}=N" in result.stderr


def test_inspect_reports_two_ranks_of_one_file(tracelink: Run, of_two_ranks: str) -> None:
    result = tracelink("inspect", of_two_ranks)
    assert result.exit_code == 1
    assert "the content says 0, the name says 7" in " ".join(result.stdout.split())


def test_the_rank_of_the_user_overrules_content_and_name(tracelink: Run, of_two_ranks: str) -> None:
    result = tracelink("inspect", of_two_ranks, "--rank", "rank_7.json.gz=5")
    assert result.exit_code == 0
    assert "read as rank 5, as requested; its content says rank 0." in " ".join(result.stdout.split())


def test_without_readable_input_the_exit_code_is_3(tracelink: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing to see")
    result = tracelink("merge", "notes.txt")
    assert result.exit_code == 3
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_names_in_errors_cannot_control_the_terminal(tracelink: Run, job: Job) -> None:
    job.error = UnreadableError("cut off", source="all.zip:\x1b[2J.json")
    assert "all.zip:\\x1b[2J.json: cut off." in tracelink("inspect", "all.zip").stderr


# Help: every command explains itself and shows an example.


ROOT = Path(__file__).parents[2]
COMMENT = re.compile(r" {3,}")
"""What separates an example from its explanation."""

SEPARATOR = re.compile(r" \|\|? | && ")


def test_help_lists_the_commands_and_what_to_try(tracelink: Run) -> None:
    result = tracelink("--help")
    assert result.exit_code == 0
    assert all(f"  {name} " in result.stdout for name in COMMANDS)
    assert "tracelink demo" in result.stdout


def test_without_arguments_the_help_is_printed(tracelink: Run) -> None:
    result = tracelink()
    assert (result.exit_code, result.stdout, result.stderr) == (0, tracelink("--help").stdout, "")


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("asking", ["-h", "--help"])
def test_the_help_of_a_command_has_examples(tracelink: Run, name: str, asking: str) -> None:
    result = tracelink(name, asking)
    assert result.exit_code == 0
    _, examples = result.stdout.split("Examples:\n")
    assert f"tracelink {name}" in examples
    for option in ("-v, --verbose", "-q, --quiet", "--json", "-h, --help"):
        assert option in result.stdout


def examples() -> list[str]:
    """The commands in the examples of all commands."""
    lines = [line for name in COMMANDS for line in (command_named(name).epilog or "").splitlines()]
    commands = [COMMENT.split(line)[0] for line in lines]
    return [part.strip() for line in commands for part in SEPARATOR.split(line) if "tracelink" in part]


def command_named(name: str) -> click.Command:
    command: click.Command = getattr(importlib.import_module(f"tracelink.cli.{COMMANDS[name][0]}"), name)
    return command


@pytest.mark.parametrize("example", examples())
def test_examples_have_known_options_and_existing_paths(example: str) -> None:
    _, name, *arguments = shlex.split(example)
    command_named(name).make_context(
        name, arguments[: arguments.index(">")] if ">" in arguments else arguments
    )
    paths = [argument for argument in arguments if argument.startswith("samples/")]
    assert all(list(ROOT.glob(path)) for path in paths)


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"formats", "completion", "demo", "run"}))
def test_every_command_has_an_example_on_a_sample(name: str) -> None:
    assert "samples/" in (command_named(name).epilog or "")


@pytest.mark.parametrize(("name", "module", "summary"), [(name, *rest) for name, rest in COMMANDS.items()])
def test_summaries_equal_the_help_of_the_commands(name: str, module: str, summary: str) -> None:
    command = getattr(importlib.import_module(f"tracelink.cli.{module}"), name)
    assert command.help.splitlines()[0] == summary


@pytest.mark.parametrize("asking", ["-V", "--version"])
def test_the_version(tracelink: Run, asking: str) -> None:
    assert tracelink(asking).stdout == f"tracelink {__version__}\n"


# Starting costs little: help needs none of the libraries that the work needs.


HEAVY = {"isal", "msgspec", "networkx", "numpy", "orjson", "rich"}


@pytest.mark.parametrize(
    "statement",
    [
        "import tracelink",
        "import tracelink.cli",
        "from tracelink.cli import main; main(['--help'], standalone_mode=False)",
    ],
)
def test_no_heavy_library_is_imported(statement: str) -> None:
    code = f"import sys; {statement}; print(*sys.modules, file=sys.stderr)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert HEAVY.isdisjoint(result.stderr.split())


# `tracelink formats`, `demo` and `completion`.


class TestFormats:
    def test_each_format_is_listed(self, tracelink: Run) -> None:
        result = tracelink("formats")
        assert result.exit_code == 0
        assert "torch-tracelink" not in result.stdout
        for name in ("kineto", "execution-trace", "flight-recorder", "perfetto-json"):
            assert [line for line in result.stdout.splitlines() if line.startswith(f"{name} ")]

    def test_formats_of_other_packages_have_their_package(
        self, tracelink: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Plugin, "origin", property(lambda plugin: f"of-{plugin.name} 1.0"))
        shown = tracelink("formats").stdout.splitlines()
        assert shown[2].split() == ["reads", "description", "package"]
        assert [line.split()[-2:] for line in shown if line.startswith("kineto ")] == [["of-kineto", "1.0"]]

    def test_formats_that_are_read_and_written_are_listed_twice(self, tracelink: Run) -> None:
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
        gone = Plugin("mine", "gone:FORMAT")
        installed = {**plugins.installed(), "mine": gone}
        monkeypatch.setattr(plugins, "installed", lambda: installed)
        result = tracelink("formats")
        assert result.exit_code == 1
        assert "kineto" in result.stdout
        assert "No module named 'gone'" in result.stderr


class TestDemo:
    def test_prints_the_summary_and_what_to_open(
        self, tracelink: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        result = tracelink("demo")
        assert result.exit_code == 0
        assert "ET = Kineto" in result.stdout
        assert "stream 20 · communication" in result.stdout
        commands = [line.strip() for line in result.stdout.splitlines() if line.startswith("  tracelink ")]
        merging, diagnosing, opening = map(shlex.split, commands)
        assert merging == ["tracelink", "merge", str(samples.path("gpu_pair")), "-o", "tracelink-demo.json"]
        assert tracelink(*diagnosing[1:]).exit_code == 1
        assert opening == ["tracelink", "open", "tracelink-demo.json"]
        assert result.stdout.splitlines()[-1].strip() == shlex.join(opening)
        assert json.loads((tmp_path / "tracelink-demo.json").read_bytes())["traceEvents"]

    def test_json_is_the_document_of_merge(self, tracelink: Run, job: Job) -> None:
        jsonschema.validate(json.loads(tracelink("demo", "--json").stdout), schemas.load("merge"))


class TestCompletion:
    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_prints_the_script(self, tracelink: Run, shell: str) -> None:
        result = tracelink("completion", shell)
        assert result.exit_code == 0
        assert "_TRACELINK_COMPLETE" in result.stdout

    def test_uses_the_shell_of_the_user(self, tracelink: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SHELL", "/usr/bin/fish")
        assert json.loads(tracelink("completion", "--json").stdout)["shell"] == "fish"

    def test_an_unknown_shell_is_an_error(self, tracelink: Run, monkeypatch: pytest.MonkeyPatch) -> None:
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
