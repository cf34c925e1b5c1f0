"""Columns as pandas frames and Arrow tables, where those are installed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

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
    return pandas.DataFrame(dict(columns))


def arrow_table(columns: Mapping[str, Any]) -> pyarrow.Table:
    """An Arrow table of these columns."""
    try:
        import pyarrow
    except ImportError:
        raise _not_installed("pyarrow", "arrow") from None
    return pyarrow.table(dict(columns))


def _not_installed(package: str, extra: str) -> UsageError:
    return UsageError(f"{package} is not installed", advice=f"Run: pip install 'torch-tracelink[{extra}]'")
