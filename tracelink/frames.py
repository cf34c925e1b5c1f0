"""Columns as pandas frames and Arrow tables, where those are installed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tracelink.errors import UsageError

if TYPE_CHECKING:
    import pandas
    import pyarrow


def frame(columns: Mapping[str, Any]) -> pandas.DataFrame:
    """A pandas frame of these columns."""
    try:
        import pandas
    except ImportError:
        raise _not_installed("pandas", "pandas") from None

    def nullable(column: Any) -> Any:
        masked = isinstance(column, np.ma.MaskedArray)
        return pandas.arrays.IntegerArray(column.data, np.ma.getmaskarray(column)) if masked else column

    return pandas.DataFrame({name: nullable(column) for name, column in columns.items()})


def arrow_table(columns: Mapping[str, Any]) -> pyarrow.Table:
    """An Arrow table of these columns."""
    try:
        import pyarrow
    except ImportError:
        raise _not_installed("pyarrow", "arrow") from None

    def nullable(column: Any) -> Any:
        masked = isinstance(column, np.ma.MaskedArray)
        return pyarrow.array(column.data, mask=np.ma.getmaskarray(column)) if masked else column

    return pyarrow.table({name: nullable(column) for name, column in columns.items()})


def _not_installed(package: str, extra: str) -> UsageError:
    return UsageError(f"{package} is not installed", advice=f"Run: pip install 'torch-tracelink[{extra}]'")
