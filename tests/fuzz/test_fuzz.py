"""The harness: cases depend on their number only, and every kind of fault is recognised."""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path
from random import Random
from typing import Any, NoReturn

import numpy as np
import pytest

import tracelink._api.functions as api
from fuzz import runs
from fuzz.__main__ import main
from fuzz.mutations import mutated
from fuzz.properties import Search
from fuzz.seeds import Seed, all_seeds
from tracelink import plugins, samples
from tracelink._model.errors import UsageError
from tracelink.converters.kineto.reader import KinetoReader
from tracelink.plugins.registry import crash

pytest_plugins = ["pytester"]


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> list[Seed]:
    return all_seeds(tmp_path_factory.mktemp("seeds"))


def test_every_reader_has_seeds(seeds: list[Seed]) -> None:
    assert {seed.format for seed in seeds} == set(plugins.readers())


READ_ELSEWHERE = {"watchdog-log", "nccl-ras", "parquet", "duckdb", "capture"}
"""Formats whose files are no events of a rank: only `diagnose` reads them, or they are whole jobs."""


@pytest.mark.parametrize("name", sorted(plugins.readers().keys() - READ_ELSEWHERE))
def test_our_own_readers_keep_the_contract_of_plugins(seeds: list[Seed], tmp_path: Path, name: str) -> None:
    seed = next(seed for seed in seeds if seed.format == name and 500 < len(seed.data) < 500_000)
    file = tmp_path / seed.name
    file.write_bytes(seed.data)
    assert plugins.check(plugins.installed()[name].format(), file) == []


def test_mutations_depend_on_the_number_only_and_change_the_input(seeds: list[Seed]) -> None:
    made = [mutated(seed, Random(f"1/{number}")) for seed in seeds[:20] for number in range(3)]
    again = [mutated(seed, Random(f"1/{number}")) for seed in seeds[:20] for number in range(3)]
    assert made == again
    originals = {seed.data for seed in seeds}
    assert sum(data not in originals for _, data in made) > 0.8 * len(made)


def fails(*_: Any, **__: Any) -> NoReturn:
    raise RuntimeError("x")


def never_ends(*_: Any, **__: Any) -> None:
    time.sleep(60)


def allocates(*_: Any, **__: Any) -> None:
    np.ones(1 << 40)


def warns(*_: Any, **__: Any) -> NoReturn:
    warnings.warn("overflow", RuntimeWarning, stacklevel=1)
    raise UsageError("no")


@pytest.mark.parametrize(
    ("inspect", "outcome", "fault"),
    [
        (fails, "unexpected", "RuntimeError at "),
        (never_ends, "slow", "slow at "),
        (allocates, "memory", "memory at "),
        (warns, "warning", "RuntimeWarning: overflow"),
    ],
)
def test_faults_are_recognised(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, inspect: Any, outcome: str, fault: str
) -> None:
    monkeypatch.setattr(api, "inspect", inspect)
    monkeypatch.setattr(runs, "SECONDS", 0.3)
    end = runs.run(["inspect", str(tmp_path), "-v"], 100)
    assert (end.outcome, end.fault.startswith(fault)) == (outcome, True)


def test_a_bug_of_a_reader_is_a_fault_although_it_costs_one_file_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tracelink.plugins.registry.crash", crash)
    monkeypatch.setattr(KinetoReader, "read", fails)
    end = runs.run(["inspect", str(samples.path("gpu_pair")), "-v"], 100_000)
    assert (end.outcome, end.fault[:21]) == ("unexpected", "RuntimeError at line "), end


def test_a_few_inputs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", ["fuzz", "--inputs", "20", "--save", str(tmp_path)])
    assert main() == 0
    assert "20 inputs of" in capsys.readouterr().out


@pytest.mark.parametrize(("seconds", "passed"), [(60, 2), (0, 0)])
def test_a_search_runs_property_tests_until_the_time_is_over(
    pytester: pytest.Pytester, seconds: float, passed: int
) -> None:
    pytester.makepyfile(
        """
        from hypothesis import given, strategies as st
        test_one = test_two = given(st.none())(lambda _: None)
        def test_other(): assert False
        """
    )
    pytester.inline_run("-p", "no:cacheprovider", plugins=[Search(1, seconds)]).assertoutcome(passed=passed)
