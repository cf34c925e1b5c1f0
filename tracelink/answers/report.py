"""`tracelink.report`: the summary of a job as an HTML page, or as Markdown."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from tracelink.answers.html.page import Facts, write_page
from tracelink.answers.model.results import PARTS, Summary
from tracelink.answers.model.words import kernel_in_words, notes_in_markdown, percent
from tracelink.answers.path.questions import asked
from tracelink.answers.summarize import summary_of
from tracelink.clock.clock import clock_choice
from tracelink.engines import EngineChoice, Watch, engine_for
from tracelink.io.sources import Paths, discover_inputs
from tracelink.io.targets import check_folder, check_not_read
from tracelink.model.clock import ClockMode, Clocks
from tracelink.model.errors import UsageError
from tracelink.model.ranges import Numbers
from tracelink.model.selection import Selection
from tracelink.model.text import fine_span, name_in_words, number
from tracelink.pipeline.job_reader import read_job
from tracelink.show.markdown import markdown_escaped, markdown_table

if TYPE_CHECKING:
    from tracelink.model.metrics import Metrics

MOST_ROWS = 20
"""Rows of a table of Markdown."""


def report(
    paths: Paths = (),
    *,
    output: str | os.PathLike[str] | None = None,
    et: Paths = (),
    kineto: Paths = (),
    fr: Paths = (),
    rank_of: Mapping[str, int] | None = None,
    max_unpacked: int | None = None,
    metrics: Metrics | None = None,
    include: Sequence[str] = (),
    jobs: int | None = None,
    engine: EngineChoice = None,
    watch: Watch | None = None,
    clock: str | os.PathLike[str] | Clocks = ClockMode.HOST,
    ranks: Numbers | str | Iterable[int] | None = None,
    steps: Numbers | str | Iterable[int] | None = None,
    what_if: Sequence[str] = (),
) -> Summary:
    """Writes the summary of a job as one HTML file.

    Args:
        paths: Files, directories, globs and archives; `-` is standard input. Formats are found by looking inside.
        output: The HTML file, with .html at the end; by default none is written.
        et: Paths that contain execution traces.
        kineto: Paths that contain Kineto profiles.
        fr: Paths that contain flight-recorder dumps.
        rank_of: The rank of some files, by path or name; it overrules their content.
        max_unpacked: The most bytes of an input once it is uncompressed; by default 64 GB.
        metrics: Zone, start and interval of metrics that do not contain them, and ranks of devices; see `Metrics`.
        include: What readers leave out by default, such as `osrt`.
        jobs: The number of processes that work at once; by default one for each core.
        engine: Where the work runs: by default in processes of this machine; "dask", the address of a Dask scheduler
            such as "dask://host:8786", or a `distributed.Client`.
        watch: Is called with the total number of bytes processed so far, as work goes on.
        clock: How the clocks of ranks are corrected, as for `summarize`.
        ranks: Only these ranks, such as "0-7,64" or [0, 1].
        steps: Only these steps, such as "3-5,7" or range(3, 6).
        what_if: Questions that a replay answers, such as "communication free"; see `what_if`.

    Returns:
        The summary, as `summarize` returns it.

    Raises:
        UsageError: A path does not exist, an argument is invalid, or no rank has one of the steps.
        UnreadableError: No source can be read.
        RankConflictError: Two files are of the same rank, or sources disagree about the rank of a file.
        TraceError: The output cannot be written.

    Example:
        tracelink.report("traces/", output="report.html")
    """
    questions = asked(what_if)
    discovery = discover_inputs(
        paths,
        et=et,
        kineto=kineto,
        fr=fr,
        rank_of=rank_of,
        max_unpacked=max_unpacked,
        metrics=metrics,
        include=include,
    )
    if output is not None:
        _check_output(os.fspath(output), [source.path for source in discovery.sources])
    chosen = engine_for(jobs, watch, engine)
    selection = Selection(ranks=ranks, steps=steps)
    job = read_job(discovery, chosen, clock=clock_choice(clock), selection=Selection(ranks=selection.ranks))
    summary = summary_of(job, chosen, selection.steps, questions)
    if output is not None:
        write_page(summary, Facts.of(job, [str(path) for path in discovery.paths]), os.fspath(output))
    return summary


def _check_output(path: str, read: Sequence[str]) -> None:
    """Raises `UsageError` unless the page can be written there without overwriting an input."""
    if not path.endswith((".html", ".htm")):
        raise UsageError(f"{path}: the report is an HTML file", advice="Name it with .html at the end.")
    check_folder(path)
    check_not_read(path, read)


# As Markdown, for an issue or a chat.


def markdown_of(summary: Summary) -> str:
    """The verdict, the ranks, the kernels and the collectives; names in it have no effect."""
    lines = [
        f"**{markdown_escaped(summary.verdict[0])}**" if summary.verdict else "**No rank has a profile.**",
        "",
    ]
    lines += [f"- {markdown_escaped(sentence)}" for sentence in summary.verdict[1:]]
    for title, header, rows in (
        (
            "Ranks",
            ("rank", "steps", "a step", "compute", "exposed communication", "exposed copies", "idle"),
            _ranks(summary),
        ),
        ("Kernels", ("kernel", "count", "total", "share", "launched by"), _kernels(summary)),
        ("Collectives", ("collective", "group", "count", "in it", "waits", "mostly"), _collectives(summary)),
    ):
        if rows:
            lines += ["", f"### {title}", "", *markdown_table(header, rows[:MOST_ROWS])]
            hidden = len(rows) - MOST_ROWS
            lines += ["", f"{number(hidden)} more."] if hidden > 0 else []
    return "\n".join([*lines, *notes_in_markdown(summary.notes)])


def _ranks(summary: Summary) -> list[list[str]]:
    rows = []
    for rank in summary.ranks:
        if not rank.steps:
            continue
        total = sum(step.duration_ns for step in rank.steps)
        parts = [percent(sum(getattr(step, part) for step in rank.steps), total) for part in PARTS]
        rows.append([str(rank.rank), number(len(rank.steps)), fine_span(total // len(rank.steps)), *parts])
    return rows


def _kernels(summary: Summary) -> list[list[str]]:
    return [
        [
            markdown_escaped(kernel_in_words(row.name)),
            number(row.count),
            fine_span(row.total_ns),
            f"{row.share:.1%}",
            markdown_escaped(name_in_words(row.operator)),
        ]
        for row in summary.kernels
    ]


def _collectives(summary: Summary) -> list[list[str]]:
    return [
        [
            markdown_escaped(name_in_words(row.operation)),
            markdown_escaped(name_in_words(row.group_name)),
            number(row.count),
            fine_span(row.residence_ns),
            percent(row.wait_ns, row.residence_ns),
            row.cost.value,
        ]
        for row in summary.collectives
    ]
