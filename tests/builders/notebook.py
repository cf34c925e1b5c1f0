"""Notebooks run without Jupyter: the code cells in one namespace, and what a notebook would show of each.

PYTHONPATH=tests python -m builders.notebook docs/notebook.ipynb
"""

from __future__ import annotations

import ast
import io
import json
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

from builders.documentation import workspace
from tracelink.show import frames

WIDTH = 160

SHOWN_AS = {"text/html": "_repr_html_", "image/svg+xml": "_repr_svg_"}
"""Types of what is shown, and the methods that make it."""


def read(path: Path) -> dict[str, Any]:
    """The document of a notebook."""
    return json.loads(path.read_text("utf-8"))


def rewritten(path: Path) -> str:
    """The text of a notebook with the present output of its cells."""
    notebook = read(path)
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    namespace: dict[str, Any] = {"__name__": "__main__"}
    wide = os.terminal_size((WIDTH, 50))
    with workspace(), mock.patch.object(frames, "get_terminal_size", return_value=wide):
        for number, cell in enumerate(cells, 1):
            cell["execution_count"] = number
            cell["outputs"] = _run("".join(cell["source"]), namespace, f"{path.name}, cell {number}", number)
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def _run(source: str, namespace: dict[str, Any], name: str, number: int) -> list[dict[str, Any]]:
    tree = ast.parse(source, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(tree, name, "exec"), namespace)
        value = eval(compile(ast.Expression(last.value), name, "eval"), namespace) if last else None
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": _lines(printed.getvalue())})
    if value is not None:
        shown = {
            kind: _lines(getattr(value, method)())
            for kind, method in SHOWN_AS.items()
            if hasattr(value, method)
        }
        data = {**shown, "text/plain": _lines(repr(value))}
        outputs.append(
            {"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"}
        )
    return outputs


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        notebook = Path(argument).resolve()
        notebook.write_text(rewritten(notebook), "utf-8")
