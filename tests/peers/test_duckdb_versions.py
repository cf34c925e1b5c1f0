"""Tables with other versions of DuckDB: written and read by each, and files of this one read by each.

    TRACELINK_DUCKDB_14_PYTHON=VENV/bin/python TRACELINK_DUCKDB_15_PYTHON=VENV/bin/python \
    TRACELINK_DUCKDB_20_PYTHON=VENV/bin/python pytest -m peer tests/peers/test_duckdb_versions.py

Each interpreter needs duckdb, pyarrow and what tracelink needs.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

import tracelink
from tracelink import samples
from tracelink._sql.shipped import shipped_queries

pytestmark = pytest.mark.peer

ROOT = Path(__file__).parents[2]
VERSIONS = {"14": "1.4.", "15": "1.5.", "20": "2."}

WORK = """
import json, sys
import duckdb
import tracelink
from tracelink import samples
from tracelink._sql.shipped import shipped_queries

folder = sys.argv[1]
for name in ("own.parquet", "own.duckdb"):
    tracelink.merge(samples.path("gpu_pair"), output=f"{folder}/{name}", options={"args": "all"}, jobs=1)
answers = {}
for source in ("own.parquet", "own.duckdb", "job.parquet", "job.duckdb"):
    graph = tracelink.load(f"{folder}/{source}", jobs=1)
    assert len(graph) == 1410, source
    assert len(graph.arguments(range(1410))) == 1410
    for name in shipped_queries():
        answers[f"{source} {name}"] = repr(tracelink.query(f"{folder}/{source}", name=name).rows())
for sql in ("SELECT * FROM read_text('/etc/passwd')", "COPY events TO 'x.csv'", "SELECT nothing FROM events"):
    try:
        tracelink.query(f"{folder}/job.duckdb", sql)
    except tracelink.UsageError:
        continue
    raise SystemExit(f"not refused: {sql}")
print(json.dumps({"version": duckdb.__version__, "answers": answers}))
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_a_version_of_duckdb(tmp_path: Path, version: str) -> None:
    variable = f"TRACELINK_DUCKDB_{version}_PYTHON"
    if variable not in os.environ:
        pytest.skip(f"name an interpreter with duckdb {VERSIONS[version]} in {variable}")
    if subprocess.run([os.environ[variable], "-c", "import duckdb, pyarrow"], capture_output=True).returncode:
        pytest.skip(f"{os.environ[variable]} cannot import duckdb and pyarrow")
    for name in ("job.parquet", "job.duckdb"):
        tracelink.merge(samples.path("gpu_pair"), output=tmp_path / name, options={"args": "all"})
    process = subprocess.run(
        [os.environ[variable], "-c", WORK, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert process.returncode == 0, process.stderr
    found = json.loads(process.stdout)
    assert found["version"].startswith(VERSIONS[version])
    sources = ("own.parquet", "own.duckdb", "job.parquet", "job.duckdb")
    assert found["answers"] == {
        f"{source} {name}": repr(tracelink.query(tmp_path / "job.duckdb", name=name).rows())
        for source in sources
        for name in shipped_queries()
    }
    with_this = tracelink.load(tmp_path / "own.duckdb")
    assert len(with_this) == 1410
