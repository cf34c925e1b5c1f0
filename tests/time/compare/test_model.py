"""`tracelink._time.compare.model`: comparisons as tables, in an interpreter and in a notebook."""

from __future__ import annotations

import pickle

import pytest

import tracelink
from tracelink import samples
from tracelink._model.errors import UsageError
from tracelink._time.compare.model import CauseChange, Comparison


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return tracelink.diff(samples.path("run_before"), samples.path("run_after"), gates=["step_time > +5%"])


def test_every_table_is_a_frame_and_can_be_pickled(comparison: Comparison) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    tables = comparison.tables()
    assert list(tables) == ["parts", "causes", "gates", "findings", "kernels"]
    for name, table in tables.items():
        assert pickle.loads(pickle.dumps(table)) == table
        assert len(comparison.to_pandas(name)) == comparison.to_arrow(name).num_rows == len(table)


def test_rows_of_causes_add_up_to_the_change(comparison: Comparison) -> None:
    table = comparison.table("causes")
    assert table["delta_ns"].sum() == comparison.table("parts")["delta_ns"].sum() == comparison.step.delta_ns
    assert list(table) == list(comparison.causes)
    assert [type(row) for row in table[:1]] == [CauseChange]
    kernels = comparison.table("kernels")
    assert len(kernels) == sum(len(cause.kernels) for cause in comparison.causes)
    assert kernels["delta_ns"].tolist() == (kernels["after_ns"] - kernels["before_ns"]).tolist()
    assert table.plot().title == "Causes: delta"


def test_there_is_no_other_table(comparison: Comparison) -> None:
    with pytest.raises(UsageError, match=r"there is no table 'cause'\. Did you mean causes\?"):
        comparison.table("cause")


def test_a_comparison_in_an_interpreter_is_a_few_lines(comparison: Comparison) -> None:
    headline, tables = repr(comparison).splitlines()
    assert headline.startswith("<Comparison: A step takes 1.401 ms")
    assert tables.startswith("  tables: parts 4, causes 24, gates 1, ")
    assert "<th" in comparison._repr_html_()
    assert pickle.loads(pickle.dumps(comparison)) == comparison
