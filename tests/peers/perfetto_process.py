"""Perfetto's engine as a process that has a trace loaded and answers SQL."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

DRIVER = Path(__file__).parent / "perfetto_engine" / "query.mjs"
LOST_FLOWS = ("flow_end_without_start", "flow_step_without_start")


class EngineError(Exception):
    """The engine refused a trace or a query."""


class Loaded:
    """A trace in the engine; `took` is what it cost to load it."""

    def __init__(self, node: str, engine: Path, trace: Path) -> None:
        self._process = subprocess.Popen(
            [node, "--max-old-space-size=8192", str(DRIVER), str(engine), str(trace)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        try:
            self.took: dict[str, float] = self._answer()["took"]
        except EngineError:
            self.close()
            raise

    def query(self, sql: str) -> list[dict[str, Any]]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(sql) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        return [dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]]

    def value(self, sql: str) -> Any:
        ((value,),) = (tuple(row.values()) for row in self.query(sql))
        return value

    def problems(self) -> list[dict[str, Any]]:
        """What the importer had to say, and the arrows that it lost without saying much."""
        lost = ", ".join(f"'{name}'" for name in LOST_FLOWS)
        return self.query(
            "select name, severity, sum(value) as value from stats"
            f" where value > 0 and (severity != 'info' or name in ({lost})) group by 1, 2 order by 1"
        )

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._process.stdout.close()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise EngineError(f"the engine ended with exit code {self._process.wait(timeout=60)}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise EngineError(answer["error"])
        return answer

    def __enter__(self) -> Loaded:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class PerfettoEngine:
    """One version of the engine."""

    version: str
    folder: Path
    node: str

    def load(self, trace: Path) -> Loaded:
        return Loaded(self.node, self.folder, trace)
