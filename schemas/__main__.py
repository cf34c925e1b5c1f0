"""Writes the JSON Schemas of what `--json` prints: python -m tracelink.schemas [FOLDER]."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from tracelink._api.inspection import Inspection
from tracelink._api.outputs import Merged
from tracelink._compile.model import CompileReport
from tracelink._hang.facts.model import Diagnosis
from tracelink._hang.report.entries import Entries
from tracelink._model.clock import Clocks
from tracelink._sql.results import Queries, Query
from tracelink._time.collectives.listing import Listing
from tracelink._time.compare.model import Comparison
from tracelink._time.model.results import Summary
from tracelink.cli.answer import Failed
from tracelink.cli.formats import Completion, Formats
from tracelink.cli.open import Opened
from tracelink.cli.run import Run
from tracelink.converters.capture import schema as capture
from tracelink.converters.chakra.validation.rules import Validation

DRAFT = "https://json-schema.org/draft/2020-12/schema"

DOCUMENTS: dict[str, type[msgspec.Struct]] = {
    "capture": capture.Capture,
    "clocks": Clocks,
    "collectives": Listing,
    "compile": CompileReport,
    "completion": Completion,
    "diagnose": Diagnosis,
    "entries": Entries,
    "error": Failed,
    "formats": Formats,
    "inspect": Inspection,
    "merge": Merged,
    "open": Opened,
    "queries": Queries,
    "query": Query,
    "run": Run,
    "diff": Comparison,
    "summary": Summary,
    "validate": Validation,
}


def generated() -> dict[str, str]:
    """The text of each file, by its name."""
    return {f"{name}.schema.json": _text(schema_of(name)) for name in DOCUMENTS}


def schema_of(name: str) -> dict[str, Any]:
    """The JSON Schema of one document."""
    struct = DOCUMENTS[name]
    _, parts = msgspec.json.schema_components([struct], ref_template="#/$defs/{name}")
    for class_name, present in _present_keys(struct).items():
        parts[class_name]["required"] = present
    document = parts.pop(struct.__name__)
    title = document.pop("description").rstrip(".")
    for part in parts.values():
        if "enum" in part:  # its docstring is for developers
            del part["description"]
    definitions = {part: parts[part] for part in sorted(parts)}
    return {
        "$schema": DRAFT,
        "$id": f"urn:tracelink:schema:{name}",
        **document,
        "title": title,
        **({"$defs": definitions} if definitions else {}),
    }


def _present_keys(struct: type[msgspec.Struct]) -> dict[str, list[str]]:
    """By the class of each object, the keys that it always has: all but those left out where they have no value."""
    found: dict[str, list[str]] = {}
    waiting: list[Any] = [msgspec.inspect.type_info(struct)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, msgspec.inspect.StructType):
            if node.cls.__name__ in found:
                continue
            shows_defaults = not node.cls.__struct_config__.omit_defaults
            found[node.cls.__name__] = [
                one.encode_name
                for one in node.fields
                if one.required or (shows_defaults and _has_default(one))
            ]
        values = node if isinstance(node, tuple) else (getattr(node, name) for name in node.__struct_fields__)
        kinds = (msgspec.inspect.Type, msgspec.inspect.Field, tuple)
        waiting += [value for value in values if isinstance(value, kinds)]
    return found


def _has_default(field: msgspec.inspect.Field) -> bool:
    """False for UNSET, which leaves the key out."""
    return not (field.default is field.default_factory is msgspec.NODEFAULT)


def _text(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent)
    for file, text in generated().items():
        (folder / file).write_text(text, encoding="utf-8")
