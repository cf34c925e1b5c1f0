"""Writes generated jobs, and records real ones.

PYTHONPATH=tests python -m generators KIND TARGET [options]

`--help` after a kind lists its options.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

KINDS = {
    "gpu_pair": ("jobs:gpu_pair", "job:Job"),
    "many_hosts": ("jobs:many_hosts", "job:Cluster"),
    "two_runs": ("jobs:two_runs",),
    "hung_job": ("jobs:hung_job",),
    "gpu_metrics": ("jobs:gpu_metrics",),
    "nsys_export": ("nsys_export:write_export",),
    "cpu_job": ("record_cpu_job:record",),
    "compile_job": ("record_compile_job:record",),
    "compile_faults": ("record_compile_faults:record",),
    "compiling_hang": ("record_compiling_hang:record",),
}
"""What writes or records each kind, and the class of its further parameters; some need torch."""


def named(name: str) -> Callable[..., Any]:
    """A function or class of a generator; others are not imported, as they may need torch."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(f"generators.{module}"), attribute)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = parser.add_subparsers(dest="kind", required=True)
    for kind in KINDS:
        options = kinds.add_parser(kind)
        if kind in sys.argv[1:2]:
            makers = [named(name) for name in KINDS[kind]]
            options.description = makers[0].__doc__
            options.add_argument("target", type=Path)
            for parameter in (each for maker in makers for each in signature(maker).parameters.values()):
                add_option(options, parameter)
    chosen = vars(parser.parse_args())
    del chosen["kind"]
    makers[0](chosen.pop("target"), **chosen)


def add_option(options: argparse.ArgumentParser, parameter: Parameter) -> None:
    """An option for a parameter that has a number, a text or a truth value as its default."""
    default, name = parameter.default, f"--{parameter.name.replace('_', '-')}"
    if isinstance(default, bool):
        options.add_argument(name, action="store_true")
    elif isinstance(default, int | float | str):
        options.add_argument(name, type=type(default), default=default)


if __name__ == "__main__":
    main()
