"""Put in front of PYTHONPATH by `tracelink run`: Python imports it as it starts, before the program.

Imports little of tracelink before the program imports torch, and at the end the next sitecustomize of the path.
"""

import os
import sys


def _import_the_next() -> None:
    """Imports the sitecustomize that this one hides."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    own = os.path.dirname(os.path.abspath(__file__))
    spec = PathFinder.find_spec("sitecustomize", [path for path in sys.path if os.path.abspath(path) != own])
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(module_from_spec(spec))


def _begin() -> None:
    if not os.environ.get("TRACELINK_CAPTURE"):
        return
    try:
        from tracelink._record.hooks import install
    except ImportError as error:
        sys.stderr.write(
            f"tracelink: {sys.executable} cannot import tracelink ({error}); nothing is recorded. Install "
            "torch-tracelink for this Python.\n"
        )
    else:
        install()


_begin()
_import_the_next()
