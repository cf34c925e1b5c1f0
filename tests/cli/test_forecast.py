"""The estimated size of an output, before it is written."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
from click.testing import Result

from builders.command_line import Run
from builders.kineto import cpu_op, trace, write
from tracelink import schemas
from tracelink._api import outputs
from tracelink._join import forecast


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A profile that is worth a word before it is written."""
    monkeypatch.setattr(outputs, "WORTH_FORECASTING", 1)
    monkeypatch.setattr(forecast, "LARGE_JOB", 1)
    operators = (cpu_op("aten::add", 2 * number, External_id=number) for number in range(1000))
    return str(write(tmp_path / "k_0.json", trace(*operators, rank=0)))


@pytest.fixture
def small_browsers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Browsers that take native traces and no JSON."""
    monkeypatch.setattr(forecast, "MAX_MEMORY_32_BIT", 150_000)


def messages(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return [line for line in result.stdout.splitlines() if line.startswith(("Writing", "warning", "Wrote"))]


class TestEstimatedSize:
    def test_is_printed_before_the_output_is_written(self, tracelink: Run, profile: str) -> None:
        before, after = messages(tracelink("merge", profile, "-o", "job.json"))
        assert re.fullmatch(r"Writing job.json: about \d+ kB", before)
        assert after.startswith("Wrote job.json (")

    def test_of_compressed_outputs_includes_the_uncompressed_size(self, tracelink: Run, profile: str) -> None:
        for output in ("job.json.gz", "job.pftrace"):
            before, _ = messages(tracelink("merge", profile, "-o", output))
            assert re.fullmatch(rf"Writing {output}: about [\d.]+ kB \(\d+ kB uncompressed\)", before)

    def test_goes_to_standard_error_if_the_output_is_standard_output(
        self, tracelink: Run, profile: str
    ) -> None:
        result = tracelink("merge", profile, "-o", "-")
        assert result.stderr.startswith("Writing standard output: about ")
        assert result.stdout.startswith("{")

    @pytest.mark.parametrize("option", ["-q", "--json"])
    def test_is_not_printed_with_quiet_or_json(self, tracelink: Run, profile: str, option: str) -> None:
        result = tracelink("merge", profile, "-o", "job.json", option)
        assert "Writing" not in result.output

    def test_is_not_printed_for_small_jobs(
        self, tracelink: Run, profile: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(outputs, "WORTH_FORECASTING", 100_000)
        (after,) = messages(tracelink("merge", profile, "-o", "job.json"))
        assert after.startswith("Wrote job.json (")


@pytest.mark.usefixtures("small_browsers")
class TestTooLarge:
    def test_is_a_warning_with_what_fits_and_the_output_is_written(
        self, tracelink: Run, profile: str, tmp_path: Path
    ) -> None:
        size, warning, written = messages(tracelink("merge", profile, "-o", "job.json"))
        assert size.startswith("Writing job.json: about ")
        assert warning.startswith("warning: job.json: Perfetto's UI needs about ")
        assert "These fit, with `tracelink merge`: -o job.pftrace (about " in warning
        assert written.startswith("Wrote job.json (")
        assert (tmp_path / "job.json").exists()

    def test_is_a_finding_in_json(self, tracelink: Run, profile: str) -> None:
        document = json.loads(tracelink("merge", profile, "-o", "job.json", "--json").stdout)
        jsonschema.validate(document, schemas.load("merge"))
        (finding,) = [item for item in document["findings"] if item["severity"] == "warning"]
        assert (finding["reason"], finding["source"]) == ("larger_than_a_browser_takes", "job.json")

    def test_options_in_use_are_not_offered(self, tracelink: Run, profile: str) -> None:
        _, warning, _ = messages(tracelink("merge", profile, "-o", "job.json", "--no-python"))
        assert "--no-python" not in warning
