"""A command imports what it needs: no format that it does not touch, and few modules in all."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tracelink import samples

DECLARATION = ("recognition",)
"""The modules of a format that are imported whatever the files are."""


@cache
def imported(*arguments: str) -> frozenset[str]:
    """All modules that a command has imported when it ends."""
    code = (
        "import sys\n"
        "from tracelink.cli import main\n"
        f"main({[*arguments]!r}, standalone_mode=False)\n"
        "print(*sys.modules, sep='\\n', file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    return frozenset(result.stderr.splitlines())


def own(modules: frozenset[str]) -> set[str]:
    return {name for name in modules if name.partition(".")[0] == "tracelink"}


def formats_in(modules: frozenset[str]) -> dict[str, set[str]]:
    """For each format the modules that do more than declare it."""
    found: dict[str, set[str]] = {}
    for name in own(modules):
        package, _, module = name.removeprefix("tracelink.converters.").partition(".")
        if name.startswith("tracelink.converters.") and module and module not in DECLARATION:
            found.setdefault(package, set()).add(module)
    return found


def merge(tmp_path: Path, *files: str) -> frozenset[str]:
    inputs = [str(samples.path("gpu_pair") / file) for file in files]
    return imported("merge", *inputs, "-q", "-o", str(tmp_path / "merged.json"))


@pytest.fixture(scope="module")
def verdict() -> frozenset[str]:
    """What a diagnosis imports: it ends with exit code 1, because the job hangs."""
    code = (
        "import sys\n"
        "from tracelink.cli import main\n"
        f"try: main(['diagnose', {str(samples.path('hung_job') / 'dumps')!r}])\n"
        "except SystemExit as end: assert end.code == 1\n"
        "print(*sys.modules, sep='\\n', file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    return frozenset(result.stderr.splitlines())


def test_a_merge_imports_few_modules(tmp_path: Path) -> None:
    modules = own(merge(tmp_path, "."))
    assert len(modules) <= 141, sorted(modules)


def test_a_diagnosis_imports_few_modules(verdict: frozenset[str]) -> None:
    modules = own(verdict)
    assert len(modules) <= 110, sorted(modules)  # a family of verdicts is a module


def test_a_merge_makes_few_dataclasses(tmp_path: Path) -> None:
    """Decorating one takes as long as making thirty structs."""
    arguments = ["merge", str(samples.path("gpu_pair")), "-q", "-o", str(tmp_path / "merged.json")]
    code = (
        "import dataclasses\n"
        "made, make = [], dataclasses._process_class\n"
        "def counted(cls, *options): made.append(cls.__qualname__); return make(cls, *options)\n"
        "dataclasses._process_class = counted\n"
        "from tracelink.cli import main\n"
        f"main({arguments!r}, standalone_mode=False)\n"
        "print(*made)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert len(result.stdout.split()) <= 16, result.stdout


def test_programs_that_a_command_starts_get_its_environment() -> None:
    code = (
        "import os\n"
        "os.environ.pop('OPENBLAS_NUM_THREADS', None)\n"
        "from tracelink.cli import main\n"
        "main(['merge', '--help'], standalone_mode=False)\n"
        "print(os.environ.get('OPENBLAS_NUM_THREADS'))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stdout.splitlines()[-1] == "None"


@pytest.mark.parametrize(
    ("file", "formats"),
    [
        ("kineto_0.json.gz", {"kineto"}),
        ("et_0.json.gz", {"execution_trace"}),
        ("dumps", {"flight_recorder"}),
    ],
)
def test_a_merge_imports_no_format_that_it_does_not_touch(
    tmp_path: Path, file: str, formats: set[str]
) -> None:
    found = formats_in(merge(tmp_path, file))
    assert found.keys() - {"pytorch"} == {"perfetto", *formats}, found
    assert not any(module.startswith(("native", "reading", "bundle")) for module in found["perfetto"])


def test_a_diagnosis_imports_only_the_format_of_dumps(verdict: frozenset[str]) -> None:
    assert formats_in(verdict).keys() == {"flight_recorder"}


@pytest.mark.parametrize("command", ["merge", "diagnose", "inspect", "formats"])
def test_the_help_of_a_command_imports_no_format(command: str) -> None:
    assert formats_in(imported(command, "--help")) == {}


def test_declarations_need_the_standard_library_only() -> None:
    code = (
        "import sys; from tracelink import plugins; plugins.readers(); plugins.writers(); plugins.conversions();"
        "list(plugins.recognised(b'{}', 'x.json')); print(*sys.modules, sep='\\n')"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    modules = frozenset(result.stdout.splitlines())
    assert formats_in(modules) == {}
    assert {"numpy", "msgspec", "orjson", "google", "networkx", "importlib.metadata"}.isdisjoint(modules)
