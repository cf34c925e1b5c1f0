"""`tracelink diagnose --entries`."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from builders.command_line import Run
from builders.data import traces
from builders.dumps import dumps, hang, healthy, stack, steps
from builders.recorder import CREATED, collective, process_group
from tracelink import schemas
from tracelink._hang.examine import examine
from tracelink._hang.report.diagnosis import tensors_in_words
from tracelink._hang.report.entries import Column, Shown, fold_columns, show_side_by_side
from tracelink._hang.report.matrix import matrix_of
from tracelink._model.records import Entry
from tracelink._show import terminal
from tracelink.cli.main import FINE, NO, USAGE

HANG = """\
Rank 2 never joined all_reduce #3 of group 0 (default_pg); 3 ranks wait.

group           #  call        tensors      rank 0   rank 1   rank 2   rank 3
0 (default_pg)  1  all_reduce  Float 64x16  done     done     done     done
0 (default_pg)  2  all_reduce  Float 64x16  done     done     done     done
0 (default_pg)  3  all_reduce  Float 64x16  retired  retired  missing  retired
done: completed; retired: completed or aborted (the backend does not record which); missing: member of the group \
without an entry
"""


def entries(tracelink: Run, *options: str, folder: str = "dumps") -> str:
    return tracelink("diagnose", folder, "--entries", *options).stdout


def document(tracelink: Run, *options: str, folder: str = "dumps") -> Any:
    made = json.loads(entries(tracelink, "--json", *options, folder=folder))
    jsonschema.validate(made, schemas.load("entries"))
    return made


def table(tracelink: Run, *options: str) -> list[dict[str, str]]:
    tracelink("diagnose", "dumps", "--entries", "-o", "out.csv", *options)
    written = Path("out.entries.csv")
    return list(csv.DictReader(io.StringIO((written if written.exists() else Path("out.csv")).read_text())))


class TestTable:
    def test_a_hang(self, tracelink: Run) -> None:
        dumps(Path("dumps"), hang(4, culprit=2))
        result = tracelink("diagnose", "dumps", "--entries")
        assert (result.exit_code, result.stdout, result.stderr) == (NO, HANG, "")

    def test_a_healthy_job(self, tracelink: Run) -> None:
        dumps(Path("dumps"), healthy(2))
        result = tracelink("diagnose", "dumps", "--entries")
        assert (result.exit_code, "missing" in result.stdout) == (FINE, False)

    def test_a_deviating_call_is_in_its_cell(self, tracelink: Run) -> None:
        made = healthy(3)
        made[1][1] |= {"profiling_name": "nccl:broadcast", "input_sizes": [[256]], "output_sizes": [[256]]}
        dumps(Path("dumps"), made)
        (row,) = (line for line in entries(tracelink).splitlines()[2:] if "broadcast" in line)
        assert row == "0 (default_pg)  2  all_reduce  Float 64x16  done    broadcast Float 256 done  done"

    def test_only_the_last_rows(self, tracelink: Run) -> None:
        dumps(Path("dumps"), hang(4, culprit=2))
        output = entries(tracelink, "-n", "1").splitlines()
        assert output[3].startswith("0 (default_pg)  3")
        assert output[4:6] == [
            "Last 1 row; 8 earlier entries (--limit 0 shows all).",
            "No entry in these rows: rank 2.",
        ]

    def test_20_rows_by_default(self, tracelink: Run) -> None:
        dumps(Path("dumps"), {rank: steps(rank, 30) for rank in range(2)})
        assert "Last 20 rows; 20 earlier entries (--limit 0 shows all)." in entries(tracelink)
        assert len(entries(tracelink, "-n", "0").splitlines()) == 2 + 1 + 30 + 1

    def test_only_some_ranks(self, tracelink: Run) -> None:
        dumps(Path("dumps"), hang(4, culprit=2))
        header = entries(tracelink, "--ranks", "0-1,3").splitlines()[2]
        assert header.split()[-6:] == ["rank", "0", "rank", "1", "rank", "3"]

    def test_only_some_groups(self, tracelink: Run) -> None:
        config = process_group("0", [0, 1], "default_pg") | process_group("1", [0, 1], "tp")
        made = {rank: [*steps(rank, 1), *steps(rank, 2, group=("1", "tp"))] for rank in range(2)}
        dumps(Path("dumps"), made, pg_config=config)
        groups = {line.split("  ")[0] for line in entries(tracelink, "-g", "tp").splitlines()[3:5]}
        both = {line.split("  ")[0] for line in entries(tracelink, "-g", "tp", "-g", "0").splitlines()[3:6]}
        assert (groups, both) == ({"1 (tp)"}, {"1 (tp)", "0 (default_pg)"})

    def test_messages_by_the_ranks_of_the_job(self, tracelink: Run) -> None:
        config = process_group("7", [1, 3], "pp")
        told = {"group": ("7", "pp"), "is_p2p": True, "p2p_seq_id": 1, "created": CREATED}
        sent = [collective("nccl:send 0->1", completed=CREATED + 9, **told)]
        dumps(Path("dumps"), {1: sent, 3: [collective("nccl:recv 1<-0", **told)]}, pg_config=config)
        assert entries(tracelink).splitlines()[2:4] == [
            "group   #  call            tensors      rank 1  rank 3",
            "7 (pp)  1  message 1 -> 3  Float 64x16  done    queued",
        ]

    def test_missing_and_damaged_dumps_are_reported(self, tracelink: Run) -> None:
        folder = dumps(Path("dumps"), healthy(3), world=4)
        whole = (folder / "comm_lib_trace_rank_1").read_bytes()
        (folder / "comm_lib_trace_rank_1").write_bytes(whole[: len(whole) - 60])
        output = entries(tracelink)
        assert "No dump of rank 3.\n" in output
        assert "comm_lib_trace_rank_1" in output

    def test_no_selected_entries(self, tracelink: Run) -> None:
        dumps(Path("dumps"), {0: steps(0, 1), 1: []})
        assert "No entries: the dumps contain none, or none of the selected ranks and groups." in entries(
            tracelink, "--ranks", "1"
        )

    def test_quiet_prints_only_the_verdict(self, tracelink: Run) -> None:
        dumps(Path("dumps"), hang(4, culprit=2))
        assert entries(tracelink, "-q") == tracelink("diagnose", "dumps", "-q").stdout != ""


class TestStacks:
    def test_each_stack_once(self, tracelink: Run) -> None:
        dumps(Path("dumps"), hang(3, culprit=2))
        output = entries(tracelink, "--stacks", "-n", "1")
        assert output.splitlines()[3].split() == [
            *("0", "(default_pg)", "3", "all_reduce", "Float", "64x16", "1", "retired", "retired", "missing")
        ]
        stack = "Stack 1:\n  /home/me/train.py:30   step\n  /home/me/train.py:200  main\n"
        assert output.endswith(f"{stack}1 more frame (-v shows it).\n")

    def test_a_deviating_stack_is_in_its_cell(self, tracelink: Run) -> None:
        made = healthy(3)
        made[1][1] |= {"frames": stack("other", 77)}
        dumps(Path("dumps"), made)
        output = entries(tracelink, "--stacks", "-n", "1")
        assert output.splitlines()[3].split("  ")[-2:] == ["stack 2 done", "done"]
        assert "Stack 2:\n  /home/me/train.py:77   other\n" in output


class TestCsvAndJson:
    def test_a_row_of_csv_for_each_entry(self, tracelink: Run) -> None:
        dumps(Path("dumps"), hang(4, culprit=2))
        rows = table(tracelink, "--stacks")
        assert [(row["row"], row["rank"]) for row in rows] == [
            *((str(row), str(rank)) for row in range(2) for rank in range(4)),
            *(("2", rank) for rank in "013"),
        ]
        assert rows[-1] == {
            "row": "2",
            "rank": "3",
            "group": "0",
            "description": "default_pg",
            "sequence": "3",
            "operation": "nccl:all_reduce",
            "source": "",
            "target": "",
            "input_type": "Float",
            "output_type": "Float",
            "input_sizes": "[64, 16]",
            "output_sizes": "[64, 16]",
            "state": "scheduled",
            "retired": "True",
            "created_ns": "1794983362603438457",
            "started_ns": "",
            "completed_ns": "",
            "timeout_ms": "600000",
            "called_at": "train.py:30",
        }

    def test_json(self, tracelink: Run) -> None:
        dumps(Path("dumps"), hang(4, culprit=2), world=5)
        made = document(tracelink, "-n", "1", "--stacks")
        assert made["verdict"] == "problem"
        assert made["ranks"] == {"present": [0, 1, 2, 3], "missing": [4], "unreadable": [], "reasons": []}
        assert (made["rows"], made["earlier_entries"]) == (1, 8)
        assert made["holes"] == [{"row": 0, "missing": [2], "lost": []}]
        assert [entry["rank"] for entry in made["entries"]] == [0, 1, 3]
        assert made["entries"][0]["frames"][0] == {
            "name": "step",
            "filename": "/home/me/train.py",
            "line": 30,
        }

    def test_closing_entries_are_included(self, tracelink: Run) -> None:
        member = [collective("nccl:_all_gather_base", 1) for _ in range(2)]
        closing = collective("nccl:coalesced", 1, completed=CREATED + 9, input_sizes=[], output_sizes=[])
        dumps(Path("dumps"), {rank: [*member, closing] for rank in range(2)})
        made = document(tracelink)["entries"]
        assert [(entry["row"], entry["operation"].partition(":")[2]) for entry in made] == [
            (0, "_all_gather_base"),
            (0, "_all_gather_base"),
            *((1, name) for _ in range(2) for name in ("_all_gather_base", "coalesced")),
        ]
        assert entries(tracelink).splitlines()[3].endswith("done    done")

    def test_all_rows_by_default(self, tracelink: Run) -> None:
        dumps(Path("dumps"), {rank: steps(rank, 30) for rank in range(2)})
        assert len(table(tracelink)) == 60
        assert len(table(tracelink, "-n", "2")) == 4

    def test_without_the_dump_only_sizes_are_missing(
        self, tracelink: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from tracelink._hang.report import entries as entries_output

        dumps(Path("dumps"), healthy(2))
        real = entries_output.Shown.of

        def of(*arguments: Any, **options: Any) -> Any:
            shutil.rmtree("dumps")
            return real(*arguments, **options)

        monkeypatch.setattr(entries_output.Shown, "of", of)
        made = document(tracelink)
        assert [entry["input_sizes"] for entry in made["entries"]] == [None] * 4
        assert [finding["reason"] for finding in made["findings"]] == ["entries_unreadable"]


class TestInvalidArguments:
    @pytest.mark.parametrize("option", ["--stacks", "--ranks=0", "--group=tp"])
    def test_without_entries(self, tracelink: Run, option: str) -> None:
        result = tracelink("diagnose", "dumps", option)
        assert (result.exit_code, "needs --entries" in result.stderr) == (USAGE, True)

    def test_ranks_without_a_dump(self, tracelink: Run) -> None:
        dumps(Path("dumps"), healthy(2))
        result = tracelink("diagnose", "dumps", "--entries", "--ranks", "7-9")
        assert (result.exit_code, result.stderr) == (
            USAGE,
            "tracelink: --ranks: no dump of ranks 7-9. Dumps were read of ranks 0-1.\n",
        )

    def test_an_unknown_group(self, tracelink: Run) -> None:
        dumps(Path("dumps"), healthy(2))
        result = tracelink("diagnose", "dumps", "--entries", "-g", "tp")
        assert (result.exit_code, "unknown group 'tp'. Known groups: 0 (default_pg)." in result.stderr) == (
            USAGE,
            True,
        )


class TestSelectionOfDumps:
    def test_one_of_two_jobs_in_a_folder(self, tracelink: Run) -> None:
        dumps(Path("dumps"), healthy(2))
        for file in dumps(Path("other"), hang(2, culprit=1)).iterdir():
            file.rename(Path("dumps") / file.name.replace("comm_lib_trace_rank_", "job7."))
        assert tracelink("diagnose", "dumps", "--prefix", "comm_lib").exit_code == FINE
        result = tracelink("diagnose", "dumps", "--prefix", "job7.")
        assert (result.exit_code, result.stdout.partition(";")[0]) == (
            NO,
            "Rank 1 never joined all_reduce #3 of group 0 (default_pg)",
        )

    def test_replicas_with_their_own_rank_numbers(self, tracelink: Run) -> None:
        folder = dumps(Path("dumps"), healthy(2))
        for rank, made in hang(2, culprit=1).items():
            (there,) = (
                file
                for file in dumps(Path("other"), {rank: made}, world=2).iterdir()
                if file.name[-1] == str(rank)
            )
            there.rename(folder / f"comm_lib_trace_rank_{rank + 2}")
        result = tracelink("diagnose", "dumps", "--replica-size", "2")
        assert result.stdout.startswith(
            "Rank 3 never joined all_reduce #3 of group 0 (default_pg); rank 2 waits"
        )

    def test_a_wrong_replica_size_is_reported(self, tracelink: Run) -> None:
        dumps(Path("dumps"), healthy(4))
        output = tracelink("diagnose", "dumps", "--replica-size", "2").stdout
        assert "--replica-size is 2, but the group of all ranks of a replica has 4 ranks in 4 dumps" in output


class TestColumns:
    """Which columns there are, and which fit so many letters."""

    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path) -> None:
        self.path = dumps(tmp_path / "dumps", hang(4, culprit=2))

    def test_ranks_with_equal_cells_share_a_column(self) -> None:
        even, odd = ("done", "done"), ("done", "missing")
        single = [Column((0,), even, 0), Column((1,), odd, 1), Column((2,), even, 0)]
        assert fold_columns(single) == [Column((0, 2), even, 0), Column((1,), odd, 1)]

    def drawn(self, width: int) -> list[str]:
        """The table at this width, and what is left out."""
        examined = examine(self.path, jobs=1)
        journal = examined.journal
        chosen = np.ones(len(journal), np.bool_)
        shown = Shown.of(journal, matrix_of(journal, chosen, journal.ranks, None))
        lines = terminal.draw(show_side_by_side(shown, examined.diagnosis), width=width).splitlines()
        start = next(index for index, line in enumerate(lines) if line.startswith("group "))
        return [line for line in lines[start:] if not line.startswith("done:")]

    def test_one_for_each_rank_where_they_fit(self) -> None:
        assert self.drawn(90)[0].split()[-8:] == ["rank", "0", "rank", "1", "rank", "2", "rank", "3"]

    def test_one_for_equal_ranks_in_a_narrow_terminal(self) -> None:
        assert self.drawn(66)[:4] == [
            "group           #  call        tensors      ranks 0-1, 3  rank 2",
            "0 (default_pg)  1  all_reduce  Float 64x16  done          done",
            "0 (default_pg)  2  all_reduce  Float 64x16  done          done",
            "0 (default_pg)  3  all_reduce  Float 64x16  retired       missing",
        ]

    def test_deviating_ranks_in_a_very_narrow_terminal(self) -> None:
        assert self.drawn(45)[:5] == [
            "group           #  call        rank 2",
            "0 (default_pg)  1  all_reduce  done",
            "0 (default_pg)  2  all_reduce  done",
            "0 (default_pg)  3  all_reduce  missing",
            "Left out at this width: tensors, ranks 0-1,",
        ]


@pytest.mark.parametrize(
    ("given", "got", "message", "words"),
    [
        ([[64, 16]], [[64, 16]], False, "Float 64x16"),
        ([[64, 16]], [[8, 64, 16]], False, "Float 64x16 -> 8x64x16"),
        ([[64, 16]], [], True, "Float 64x16"),
        ([[]], [[]], False, "Float scalar"),
        ([[1], [2], [3], [4]], [[1], [2], [3], [4]], False, "Float 1, 2 + 2 more"),
        ([], [], False, "Float"),
    ],
)
def test_tensors_in_words(given: list[list[int]], got: list[list[int]], message: bool, words: str) -> None:
    entry = Entry("", "", 1, "", given, got, ["Float"], [], "", None, None, None, ())
    assert tensors_in_words([entry], message=message) == words


def test_a_deadlock_of_groups(tracelink: Run) -> None:
    folder = str(traces("gloo/deadlock/settled"))
    assert entries(tracelink, "-n", "2", "-g", "0", "-g", "4", folder=folder).splitlines()[3:5] == [
        "4 (mesh_tp)     10  all_reduce  BFloat16 4" + 6 * "  -     " + "  missing  queued",
        "0 (default_pg)   5  all_reduce  BFloat16 2  " + 7 * "queued  " + " missing",
    ]
