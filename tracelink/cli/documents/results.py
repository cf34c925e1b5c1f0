"""What `--json` prints of jobs: a struct for each command's document; their JSON Schemas are in `tracelink.schemas`.

A key that is left out where it has no value is `UNSET`. `compile`, `diagnose`, `inspect` and `validate` have modules of
their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from tracelink.model import findings
from tracelink.model.findings import Severity

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
RankNumber = Annotated[int, Meta(ge=0)]
Ranks = Annotated[Sequence[RankNumber], Meta(extra_json_schema={"uniqueItems": True})]
Nanoseconds = Annotated[int, Meta(ge=0)]
Text = Annotated[str, Meta(min_length=1)]


class Finding(Struct, frozen=True):
    """One kind of problem or note in one source."""

    severity: Severity
    reason: Text
    count: Positive
    source: Annotated[str | None, Meta(description="Path of the source; empty if it is about all of them.")]
    message: Text
    example: str | UnsetType = UNSET


def findings_of(findings: Sequence[findings.Finding]) -> list[Finding]:
    """Findings, as every document has them."""
    return [
        Finding(
            finding.severity,
            finding.reason,
            finding.count,
            finding.source,
            finding.message,
            finding.example or UNSET,
        )
        for finding in findings
    ]


class Failure(Struct, frozen=True):
    """Why a command failed."""

    message: str
    source: Annotated[str, Meta(description="Path of the file; empty if it is about none.")]
    position: Annotated[str, Meta(description="Where in the file: byte, line or event; empty if not known.")]
    advice: Annotated[str, Meta(description="What to do next.")]


class Failed(Struct, frozen=True):
    """What every command prints with --json if it fails."""

    error: Failure


# formats, completion


Origin = Annotated[str, Meta(description="The distribution that the plugin comes from, with its version.")]


class Reader(Struct, frozen=True):
    """A format that can be read."""

    name: Text
    origin: Origin
    summary: str


class Writer(Struct, frozen=True):
    """A format that can be written."""

    name: Text
    origin: Origin
    summary: str
    suffixes: Sequence[str]
    one_file_per_rank: bool


class Conversion(Struct, frozen=True):
    """A format that files of other formats can be rewritten as, with everything in them."""

    name: Annotated[Text, Meta(description="The format that it makes.")]
    origin: Origin
    summary: str
    reads: Annotated[
        Sequence[str], Meta(description="The formats that it takes, by the names of their readers.")
    ]
    suffixes: Sequence[str]


class Formats(Struct, frozen=True):
    """Result of `tracelink formats --json`."""

    readers: Sequence[Reader]
    writers: Sequence[Writer]
    conversions: Sequence[Conversion]


class Completion(Struct, frozen=True):
    """Result of `tracelink completion --json`."""

    shell: str
    script: str


# open


class RecordedRank(Struct, frozen=True):
    """What one rank recorded."""

    rank: RankNumber
    host: str
    outcome: Annotated[
        str,
        Meta(
            description="`finished`, `running` (killed), `terminated`, or the type of the exception that ended it."
        ),
    ]
    steps: Annotated[int, Meta(ge=0, description="Steps that ended.")]
    files: Annotated[Sequence[Text], Meta(description="Files of the rank, within the folder.")]
    problems: Annotated[Sequence[Text], Meta(description="What could not be recorded.")]


class Run(Struct, frozen=True):
    """What `tracelink run --json` prints when the program has ended."""

    output: Annotated[Text, Meta(description="The folder.")]
    exit_code: Annotated[int, Meta(description="The exit code of the program.")]
    ranks: Sequence[RecordedRank]
    command: (
        Annotated[Sequence[Text], Meta(description="With --dry-run: what would be started.")] | UnsetType
    ) = UNSET
    variables: (
        Annotated[Mapping[str, str], Meta(description="With --dry-run: the variables that would be set.")]
        | UnsetType
    ) = UNSET


class Open(Struct, frozen=True):
    """What `tracelink open --json` prints before it serves the file."""

    url: Annotated[
        str, Meta(description="The page to open: the UI, with the address of the file that it fetches.")
    ]
    file: str
    bytes: Positive
    origin: Annotated[str, Meta(description="The origin whose pages may fetch the file.")]
    listening: Annotated[
        str,
        Meta(
            description="Address and port. The UI requests 127.0.0.1:9001; forward another port to that address."
        ),
    ]
    findings: Sequence[Finding]


# query


class QueryColumn(Struct, frozen=True):
    """A column of the rows."""

    name: str
    type: Annotated[Text, Meta(description="The type in DuckDB.")]


class Query(Struct, frozen=True):
    """Result of `tracelink query --json`."""

    columns: Sequence[QueryColumn]
    count: Annotated[Count, Meta(description="Number of rows.")]
    rows: Annotated[
        Sequence[Sequence[Any]], Meta(description="The rows; empty if they were written to a file.")
    ]
    output: Annotated[str | None, Meta(description="The file; null if there is none.")]
    findings: Sequence[Finding]


class QueryParameter(Struct, frozen=True):
    """A parameter of a query."""

    name: Text
    default: int | float | str | None
    text: Annotated[str, Meta(description="What it means.")]


class NamedQuery(Struct, frozen=True):
    """A query that comes with tracelink."""

    name: Text
    title: Annotated[str, Meta(description="What it answers.")]
    text: Annotated[str, Meta(description="What its columns mean.")]
    sql: Text
    parameters: Sequence[QueryParameter]


class Queries(Struct, frozen=True):
    """Result of `tracelink query --list --json`."""

    queries: Sequence[NamedQuery]
