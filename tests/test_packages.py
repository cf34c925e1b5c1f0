"""Packages: what they export."""

from __future__ import annotations

from importlib import import_module
from pkgutil import walk_packages

import tracelink


def modules() -> list[str]:
    """The importable modules of the package, without those that run when imported."""
    found = walk_packages(tracelink.__path__, "tracelink.")
    return [module.name for module in found if not module.name.endswith("__main__")]


def test_no_module_takes_the_name_of_a_public_object() -> None:
    public = {name: getattr(tracelink, name) for name in tracelink.__all__}
    for name in modules():
        import_module(name)
    assert {name: getattr(tracelink, name) for name in public} == public
