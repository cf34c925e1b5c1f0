"""JSON Schemas that outputs are checked against: of the files written and of what `--json` prints."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

__all__ = ["load", "names"]

_SUFFIX = ".schema.json"


def names() -> tuple[str, ...]:
    """The schemas there are."""
    found = (entry.name for entry in files(__name__).iterdir() if entry.name.endswith(_SUFFIX))
    return tuple(sorted(name.removesuffix(_SUFFIX) for name in found))


def load(name: str) -> dict[str, Any]:
    """A schema by its name, such as `perfetto-json` or `merge`."""
    if name not in names():
        raise KeyError(f"there is no schema {name!r}; there are {', '.join(names())}")
    schema: dict[str, Any] = json.loads(files(__name__).joinpath(name + _SUFFIX).read_text("utf-8"))
    return schema
