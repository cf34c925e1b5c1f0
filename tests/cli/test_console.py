"""JSON on standard output."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracelink.cli.console import Console

TEXTS = st.text(st.characters())
VALUES = st.none() | st.integers(-(2**70), 2**70) | TEXTS | st.lists(TEXTS)


def printed(result: Any, capsys: pytest.CaptureFixture[str]) -> str:
    Console(json=True).document({"result": result})
    return capsys.readouterr().out


@given(st.dictionaries(TEXTS, VALUES))
def test_json_is_printable_ascii_with_the_same_content(result: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        output: list[str] = []
        patch.setattr("click.echo", output.append)
        Console(json=True).document(result)
    assert json.loads(output[0]) == result
    assert all(char == "\n" or (char.isascii() and char.isprintable()) for char in output[0])


def test_numbers_of_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(printed(np.int64(7), capsys)) == {"result": 7}


def test_nan_is_null(capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(printed(float("nan"), capsys)) == {"result": None}


def test_names_of_files_that_are_not_utf8(capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(printed("\udcff.json", capsys)) == {"result": "\udcff.json"}
