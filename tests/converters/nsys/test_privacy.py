"""Environment variables and the output of processes never leave an export."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import tracelink
from builders.nsys import NEWEST, OLDEST, Export, example, global_thread
from tracelink.cli import main

MARKER = "hunter2-secret"


def confidential(schema: str) -> Export:
    export = example(schema)
    export.environment(f"AWS_SECRET_ACCESS_KEY={MARKER}")
    export.environment(f"RANK=0 {MARKER}")
    export.environment("RANK=0")
    for name in ("DeviceEnvironment", "TargetInstallDir"):
        export.add("TARGET_INFO_SYSTEM_ENV", globalVid=1, devStateName=MARKER, name=name, value=f"A={MARKER}")
    output, file = export.text(f"password: {MARKER}"), export.text(f"/home/{MARKER}/stdout.log")
    export.add("ProcessStreams", globalPid=global_thread(100), filenameId=file, contentId=output)
    return export


COMMANDS = (
    ["inspect", "{in}", "-v"],
    ["inspect", "{in}", "--json"],
    ["merge", "{in}", "-o", "{out}/x.json", "-v"],
    ["merge", "{in}", "-o", "{out}/x.pftrace", "--json"],
    ["merge", "{in}", "-o", "{out}/et/x", "-t", "chakra"],
    ["collectives", "{in}", "--json"],
    ["clocks", "{in}", "--json"],
)


@pytest.mark.parametrize("schema", [OLDEST, NEWEST])
@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: " ".join(arguments[::3]))
def test_no_command_writes_the_environment(schema: str, arguments: list[str], tmp_path: Path) -> None:
    path, out = confidential(schema).write(tmp_path / "report.sqlite"), tmp_path / "out"
    out.mkdir()
    words = [word.replace("{in}", str(path)).replace("{out}", str(out)) for word in arguments]
    result = CliRunner().invoke(main, words, prog_name="tracelink")
    assert result.exit_code in (0, 1), result.output
    for native in out.glob("*.pftrace"):  # its packets are deflated: only its text shows what is in it
        tracelink.merge(native, output=str(native.with_suffix(".json")))
    written = [file.read_bytes() for file in out.rglob("*") if file.is_file()]
    assert len(written) > 0 or "-o" not in words
    assert not [
        text for text in (result.stdout.encode(), result.stderr.encode(), *written) if MARKER.encode() in text
    ]


@pytest.mark.parametrize("schema", [OLDEST, NEWEST])
def test_no_table_and_no_argument_has_the_environment(schema: str, tmp_path: Path) -> None:
    graph = tracelink.load(confidential(schema).write(tmp_path / "report.sqlite"), jobs=1)
    tables = (
        "events",
        "edges",
        "tracks",
        "ranks",
        "groups",
        "collectives",
        "counters",
        "sources",
        "findings",
    )
    texts = [
        str({name: list(column) for name, column in graph.table(table).columns.items()}) for table in tables
    ]
    texts += [str(graph.arguments(row)) for row in range(len(graph))]
    texts += [repr(source) for source in graph.sources] + [*graph.strings]
    assert not [text for text in texts if MARKER in text]


def test_the_rank_of_the_only_process_comes_from_its_environment(tmp_path: Path) -> None:
    export = Export()
    export.range("step", 5, 10)
    for variable in ("RANK=5", "WORLD_SIZE=8", f"RANKING={MARKER}"):
        export.environment(variable)
    graph = tracelink.load(export.write(tmp_path / "report.sqlite"), jobs=1)
    assert [(rank.rank, rank.world_size) for rank in graph.ranks] == [(5, 8)]
