"""A fresh clone works from its root and from elsewhere, however it is installed and started."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import tracelink
from tracelink import plugins, samples

ROOT = Path(__file__).parents[1]
LOAD = (
    "import sys, tracelink; graph = tracelink.load(sys.argv[1]); print(len(graph)); print(tracelink.__file__)"
)
pytestmark = pytest.mark.slow
DEPENDENCIES = ("click", "isal", "msgspec", "networkx", "numpy", "orjson", "rich", "google.protobuf")


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone of this repository: what is committed, and nothing else."""
    if not shutil.which("git"):
        pytest.skip("git is not installed")
    if not (ROOT / ".git").exists():
        pytest.skip(f"{ROOT} is not a git repository")
    folder = tmp_path_factory.mktemp("fresh") / "clone"
    done = subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], capture_output=True, text=True)
    if "dubious ownership" in done.stderr:
        pytest.skip(f"git refuses to clone {ROOT}, which belongs to another user")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with the dependencies of tracelink, and without tracelink."""
    venv = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    (packages,) = venv.glob("lib/python*/site-packages")
    for name in DEPENDENCIES:
        file = import_module(name).__file__
        assert file
        for path in Path(file).parents[name.count(".") + 1].iterdir():
            if not re.search("tracelink|__editable__|[.]pth$|^pip|^setuptools", path.name):
                link = packages / path.name
                if not link.exists():
                    link.symlink_to(path)
    return venv


def output(venv: Path, *arguments: str | Path, cwd: Path, **variables: str) -> list[str]:
    """What the interpreter prints, started in `cwd`."""
    command = [str(venv / "bin" / "python"), *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def works(venv: Path, cwd: Path, sample: str | Path, package: Path, **variables: str) -> None:
    """The library reads a sample with the code in `package`, and `python -m tracelink` knows every format."""
    events = len(tracelink.load(samples.path("gpu_pair")))
    printed = output(venv, "-c", LOAD, sample, cwd=cwd, **variables)
    assert printed == [str(events), str(package / "__init__.py")]
    listed = output(venv, "-m", "tracelink", "formats", cwd=cwd, **variables)
    names = {line.split()[0] for line in listed if line}
    assert names >= plugins.installed().keys()
    assert output(venv, "-m", "tracelink", "inspect", sample, cwd=cwd, **variables)


def pip(venv: Path, clone: Path, *options: str) -> None:
    """Installs a clone, without dependencies."""
    command = [sys.executable, "-m", "pip", "--python", str(venv / "bin" / "python"), "install", "--no-deps"]
    done = subprocess.run([*command, *options, str(clone)], capture_output=True, text=True, timeout=300)
    if "No module named pip" in done.stderr:
        pytest.skip("pip is not installed")
    if "No matching distribution found for setuptools" in done.stderr:
        pytest.skip("pip cannot fetch setuptools, which builds the package")
    assert done.returncode == 0, done.stderr


def test_a_clone_that_is_not_installed_works_from_its_root(clone: Path, environment: Path) -> None:
    works(environment, clone, "samples/gpu_pair", clone / "tracelink")


def test_a_clone_on_the_module_path_works_from_everywhere(
    clone: Path, environment: Path, tmp_path: Path
) -> None:
    sample = clone / "samples" / "gpu_pair"
    works(environment, tmp_path, sample, clone / "tracelink", PYTHONPATH=str(clone))
    works(environment, clone, sample, clone / "tracelink", PYTHONPATH=str(clone))


def test_metadata_next_to_a_clone_may_be_older_than_its_formats(clone: Path, environment: Path) -> None:
    metadata = clone / "torch_tracelink.egg-info"
    metadata.mkdir()
    (metadata / "entry_points.txt").write_text(
        "[tracelink.formats]\nkineto = tracelink.converters.long_ago:KINETO\n"
    )
    try:
        works(environment, clone, "samples/gpu_pair", clone / "tracelink")
    finally:
        shutil.rmtree(metadata)


@pytest.mark.peer
@pytest.mark.parametrize("options", [(), ("-e",)], ids=["pip install .", "pip install -e ."])
def test_an_installed_clone_works_from_its_root_and_elsewhere(
    clone: Path, environment: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    pip(environment, clone, *options)
    (packages,) = environment.glob("lib/python*/site-packages")
    elsewhere = clone if options else packages
    sample = clone / "samples" / "gpu_pair"
    works(environment, clone, "samples/gpu_pair", clone / "tracelink")
    works(environment, tmp_path, sample, elsewhere / "tracelink")
    works(environment, clone, sample, clone / "tracelink", PYTHONPATH=str(clone))
    script = environment / "bin" / "tracelink"
    for cwd in (clone, tmp_path):
        assert output(environment, script, "inspect", sample, cwd=cwd)
    output(environment, script, "demo", "-o", tmp_path / "demo.json", cwd=clone)
