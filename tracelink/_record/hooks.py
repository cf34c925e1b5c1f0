"""Waits until the program imports torch, and begins a capture without a line in it.

Imports the standard library only: every Python process that `tracelink run` starts imports it, also those that do not
use torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

OPTIMIZERS = "torch.optim.optimizer"
PROCESS_GROUPS = "torch.distributed.distributed_c10d"
HOOKED = (OPTIMIZERS, PROCESS_GROUPS)


def install() -> None:
    """Begins a capture as soon as the program creates a process group or an optimizer ends a step."""
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    for name in HOOKED:
        if name in sys.modules:
            _imported(sys.modules[name])
    if not all(name in sys.modules for name in HOOKED):
        sys.meta_path.insert(0, _Finder())


def _imported(module: ModuleType) -> None:
    from tracelink._record import automatic

    automatic.attach(module)


class _Finder(MetaPathFinder):
    """Finds what the other finders find, and calls a function after a hooked module was executed."""

    def __init__(self) -> None:
        self._within = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a hooked module, with a loader that reports its execution; None for all other modules."""
        if fullname not in HOOKED or self._within:
            return None
        self._within = True
        try:
            for finder in sys.meta_path:
                find = getattr(finder, "find_spec", None)
                spec = find(fullname, path, target) if find and finder is not self else None
                if spec is not None:
                    if spec.loader is not None:
                        spec.loader = _Loader(spec.loader, _imported)
                    return spec
        finally:
            self._within = False
        return None


class _Loader(Loader):
    """Another loader, and what to do after it."""

    def __init__(self, loader: Loader, then: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._then = then

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As the other loader."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """As the other loader; then reports the module."""
        self._loader.exec_module(module)
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._then(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
