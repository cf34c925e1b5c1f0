"""A torch that only writes down what it is asked to do, and one that can be imported from a folder."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from builders import recorder
from tracelink._record import environment

# A torch that only writes down what it is asked to do, so that recording is tested without one.


EXECUTION_TRACE = b'{"schema": "1.1.1-chakra.0.0.4", "nodes": []}'


class _Store:
    """A store to which no other connection can be made."""

    host, port = "localhost", 1

    def __init__(self, *address: object, **options: object) -> None:
        if address:
            raise RuntimeError("refused")


class CompileLogHandler(logging.Handler):
    """The handler of the structured log of torch.compile."""

    stream = None
    root_dir: str | None = None


@dataclass
class FakeTorch:
    """What the fake was asked to do, and where it fails."""

    calls: list[str] = field(default_factory=list)
    failing: set[str] = field(default_factory=set)
    rank: int | None = None
    """The rank in `torch.distributed`; None if no process group exists."""
    world_size: int = 2
    groups: list[dict[str, Any]] = field(default_factory=list)
    dump: bytes = b""
    version: str = "2.13.0"
    compile_log: CompileLogHandler = field(default_factory=lambda: CompileLogHandler())

    def does(self, what: str) -> None:
        """Writes down a call, which may fail."""
        self.calls.append(what)
        if what.split()[0] in self.failing:
            raise RuntimeError(f"no {what}")

    def module(self) -> ModuleType:
        torch = ModuleType("torch")
        distributed = SimpleNamespace(
            is_available=lambda: True,
            is_initialized=lambda: self.rank is not None,
            get_rank=lambda: self.rank,
            get_world_size=lambda: self.world_size,
            distributed_c10d=SimpleNamespace(
                _world=SimpleNamespace(pg_config_info=self.groups), _get_default_store=_Store
            ),
        )
        profiler = SimpleNamespace(
            profile=self._profile, ExecutionTraceObserver=self._observer, record_function=self._range
        )
        attributes = {
            "__version__": self.version,
            "version": SimpleNamespace(cuda=None),
            "distributed": distributed,
            "profiler": profiler,
            "_logging": SimpleNamespace(_internal=SimpleNamespace(LOG_TRACE_HANDLER=self.compile_log)),
            "_C": SimpleNamespace(_distributed_c10d=SimpleNamespace(_dump_fr_trace=self._dump)),
        }
        for name, value in attributes.items():
            setattr(torch, name, value)
        return torch

    def _dump(self) -> bytes:
        self.does("dump")
        return self.dump

    def _profile(self, **options: Any) -> SimpleNamespace:
        def export(path: str) -> None:
            self.does("export")
            Path(path).write_text(json.dumps({"traceEvents": [], "options": options}))

        calls = {"prepare_trace": "prepare", "start_trace": "start profile", "stop_trace": "stop profile"}
        methods = {name: partial(self.does, what) for name, what in calls.items()}
        return SimpleNamespace(export_chrome_trace=export, **methods)

    def _observer(self) -> SimpleNamespace:
        paths: list[Path] = []

        def register(path: str) -> None:
            self.does("register")
            paths.append(Path(path))

        def unregister() -> None:
            self.does("unregister")
            paths[-1].write_bytes(EXECUTION_TRACE)

        methods = {name: partial(self.does, f"{name} observer") for name in ("start", "stop")}
        return SimpleNamespace(register_callback=register, unregister_callback=unregister, **methods)

    @contextmanager
    def _range(self, name: str) -> Iterator[None]:
        self.does(f"begin {name}")
        try:
            yield
        finally:
            self.does(f"end {name}")


def installed(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> FakeTorch:
    """The fake as the module that `import torch` finds, in an environment without a launcher."""
    fake = FakeTorch(**settings)
    monkeypatch.setitem(sys.modules, "torch", fake.module())
    for name in (*environment.SETTINGS,):
        # what a capture sets is taken back after the test
        monkeypatch.setenv(name.name, "")
        monkeypatch.delenv(name.name)
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_PROCID", "TORCHELASTIC_RESTART_COUNT"):
        monkeypatch.delenv(name, raising=False)
    return fake


def dump_of_one() -> bytes:
    return recorder.pickled(recorder.dump(recorder.collective(sequence=1)))


# A torch that can be imported from a folder: a package of two modules, around the fake of `fake_torch`.


ROOT = Path(__file__).parents[2]
TORCH = {
    "torch/__init__.py": "from builders.fake_torch import FakeTorch\n"
    "FAKE = FakeTorch()\n"
    "globals().update({k: v for k, v in vars(FAKE.module()).items() if not k.startswith('__')})\n"
    "__version__ = '2.13.0'\n"
    "import torch.optim.optimizer\n"
    "import torch.distributed.distributed_c10d\n",
    "torch/optim/__init__.py": "",
    "torch/optim/optimizer.py": "class Optimizer:\n"
    "    def __init__(self): self.steps = 0\n"
    "class SGD(Optimizer):\n"
    "    def step(self): self.steps += 1\n",
    "torch/distributed/__init__.py": "is_available = lambda: True\nis_initialized = lambda: False\n",
    "torch/distributed/distributed_c10d.py": "def init_process_group(): return 'group'\n",
}
TRAINING = """
from torch.optim.optimizer import SGD
main, other = SGD(), SGD()
for _ in range(5):
    main.step()
    other.step()
assert main.steps == other.steps == 5
"""


def write(folder: Path) -> None:
    for name, text in TORCH.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def path(folder: Path) -> str:
    """The PYTHONPATH with which a process finds this package, and this tracelink."""
    return os.pathsep.join([str(folder), str(ROOT / "tests"), str(ROOT)])
