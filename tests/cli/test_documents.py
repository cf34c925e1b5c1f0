"""JSON Schemas: those of what `--json` prints are generated from the structs that are printed."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest

from builders.command_line import Run
from tracelink import samples, schemas
from tracelink.schemas.__main__ import DOCUMENTS, generated

BY_HAND = {"chakra-json", "perfetto-json"}
JOB = str(samples.path("cpu_job"))


def test_the_files_are_those_that_the_structs_generate() -> None:
    committed = {
        name: (files(schemas) / name).read_text("utf-8")
        for name in (f"{schema}.schema.json" for schema in set(schemas.names()) - BY_HAND)
    }
    assert committed == generated(), "run: python -m tracelink.schemas"


@pytest.mark.parametrize("name", schemas.names())
def test_every_schema_is_one(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schemas.load(name))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("clocks", ("clocks", JOB)),
        ("collectives", ("collectives", JOB)),
        ("completion", ("completion", "bash")),
        ("diagnose", ("diagnose", JOB)),
        ("diff", ("diff", JOB, JOB)),
        ("entries", ("diagnose", JOB, "--entries", "--stacks")),
        ("error", ("merge", "missing.json")),
        ("formats", ("formats",)),
        ("inspect", ("inspect", JOB)),
        ("merge", ("merge", JOB, "-o", "job.json")),
        ("summary", ("summary", JOB)),
        ("validate", ("validate", "et")),
    ],
)
def test_what_a_command_prints_fits_its_schema(
    tracelink: Run, tmp_path: Path, name: str, arguments: tuple[str, ...]
) -> None:
    if name == "validate":
        assert tracelink("merge", JOB, "--to", "chakra", "-o", "et/").exit_code == 0
    document = json.loads(tracelink(*arguments, "--json").stdout)
    jsonschema.validate(document, schemas.load(name))
    assert set(document) == set(DOCUMENTS[name].__struct_fields__)


def test_a_document_with_another_key_or_value_is_refused(tracelink: Run) -> None:
    document = json.loads(tracelink("diagnose", JOB, "--json").stdout)
    schema = schemas.load("diagnose")
    for broken in ({"verdict": "fine"}, {"more_problems": -1}, {"another": 1}, {"notes": None}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(document | broken, schema)
