"""A job: its inputs are found and recognised at once, read when a question needs them, and read once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, Unpack

from msgspec import structs

from tracelink._io.engine import Engine
from tracelink._io.sources import Discovery, Paths
from tracelink._join.job_reader import Reading, Recorded, assemble, read_job, record
from tracelink._model.clock import ClockMode, Clocks
from tracelink._model.errors import RankConflictError, UsageError
from tracelink._model.findings import Finding
from tracelink._model.graph import EventGraph, Rank
from tracelink._model.job import LinkedJob
from tracelink._model.tables import Columns, JobTable
from tracelink._model.text import counted
from tracelink._model.trace import SourceInfo
from tracelink._run.reading import ReadOptions, SelectOptions, check_whole, engine_of, selection_of

if TYPE_CHECKING:
    from tracelink._api.inspection import Inspection
    from tracelink._api.outputs import Merged
    from tracelink._compile.model import CompileReport
    from tracelink._hang.facts.model import Diagnosis
    from tracelink._join.forecast import OnForecast
    from tracelink._sql.session import Cells, QueryResult, QueryRows, Tables
    from tracelink._sql.shipped import Value
    from tracelink._time.compare.compare import Run
    from tracelink._time.compare.model import Comparison
    from tracelink._time.model.results import Summary, WhatIf
    from tracelink.converters.chakra.validation.rules import Validation

WHOLE_SOURCES = "sources are looked at one by one, on their own clocks"


class Job:
    """The traces of a job: questions that need the same ranks read them once.

    What was read is kept in temporary files until the job is closed, or forgotten.

    Example:
        with tracelink.Job("traces/", clock="collectives") as job:
            job.summary().step_time.p50
            job.collectives.to_polars()
            job.select(ranks="0-7", steps="5-7").merge("part.pftrace")
    """

    def __init__(self, paths: Paths | EventGraph = (), **options: Unpack[ReadOptions]) -> None:
        """Finds and recognises the inputs; nothing is read.

        Args:
            paths: Files, directories, globs and archives, also in remote stores (`s3://bucket/run/`); `-` is standard
                input. Formats are found by looking inside. Or the graph of a job.
            **options: See `ReadOptions`.

        Raises:
            UsageError: A path does not exist, or an option is invalid.
        """
        self._given = paths
        self._options = options
        self._recorded: list[Recorded] = []
        if isinstance(paths, EventGraph):
            engine = engine_of(options)
            self._reading = Reading(Discovery(), engine, selection=selection_of(options))
            self._recorded.append(Recorded.of_graph(paths, engine))
        else:
            self._reading = Reading.of(paths, options)

    def select(self, **part: Unpack[SelectOptions]) -> Job:
        """Returns a part of the job, which shares what was read.

        Args:
            **part: `ranks`, `steps`, `window` and `only`, as in `ReadOptions`; what is not given stays as it is.

        Raises:
            UsageError: A value is malformed.
        """
        options: Any = {**self._options, **part}
        chosen = copy(self)
        for name in _READ:
            chosen.__dict__.pop(name, None)
        chosen._options = options
        chosen._reading = structs.replace(self._reading, selection=selection_of(options))
        return chosen

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Removes the temporary files; a question after that reads again."""
        if "_tables" in self.__dict__:
            self._tables.close()
        if not isinstance(self._given, EventGraph):
            self._recorded.clear()
        for name in _READ:
            self.__dict__.pop(name, None)

    # What was recorded

    @property
    def ranks(self) -> Sequence[Rank]:
        """The ranks in ascending order, with their clocks."""
        return self._linked.ranks

    @property
    def sources(self) -> Sequence[SourceInfo]:
        """The inputs that were read."""
        return self._linked.sources

    @property
    def findings(self) -> Sequence[Finding]:
        """Everything that was wrong or unexpected in the inputs."""
        return self._linked.findings

    @property
    def collectives(self) -> Columns:
        """The collectives, matched across ranks."""
        return self.table("collectives")

    @property
    def participations(self) -> Columns:
        """Each rank's part in each collective."""
        return self.table("participations")

    @property
    def messages(self) -> Columns:
        """The point-to-point messages, matched across ranks."""
        return self.table("messages")

    def table(self, name: JobTable) -> Columns:
        """Returns one table, which needs no events in memory.

        Args:
            name: "ranks", "sources", "groups", "collectives", "participations", "messages" or "findings".

        Raises:
            UsageError: There is no such table.
        """
        return self._linked.table(name)

    @cached_property
    def graph(self) -> EventGraph:
        """The event graph of all ranks, in memory: `job.graph.find("sgemm", kind="kernel")`."""
        if isinstance(self._given, EventGraph) and not self._reading.selection.cuts:
            return self._given
        return assemble(self._linked)

    @property
    def clocks(self) -> Clocks:
        """The clock of each rank with bounds of its offset; another job takes them as `clock`."""
        return clocks_of(self._linked, self._options)

    # Questions

    def summary(self, *, what_if: Sequence[str] = (), shapes: bool = False) -> Summary:
        """Returns where the time went, on every rank and step.

        Args:
            what_if: Questions that a replay answers, such as "communication free"; see `what_if`.
            shapes: Whether operators are also added up by the shapes of their inputs, which takes another reading.

        Raises:
            UsageError: A question is invalid, or no rank has one of the steps.

        Example:
            job.summary().step_time.p50
        """
        from tracelink._time.path.questions import asked
        from tracelink._time.summarize import summary_of

        questions = asked(what_if)
        steps = self._reading.selection.steps
        summary = summary_of(self._with_all_steps, self._engine, steps, questions, with_shapes=shapes)
        paths = self._reading.discovery.paths
        return structs.replace(summary, paths=list(paths)) if paths else summary

    def what_if(self, *questions: str) -> list[WhatIf]:
        """Returns how long the steps would take if communication, kernels or a rank were faster, by replay.

        Args:
            *questions: What is different: "communication free", "kernel NAME 2x", "operator NAME 1.5x", "rank 3 on
                time"; several changes at once are separated by commas. NAME is a full name or a part of it.

        Returns:
            An answer to each question, with the error of the replay of the unchanged job. An error of more than 3 % is
            no answer.

        Raises:
            UsageError: There is no question, one is not understood, names a rank, kernel or operator that the job does
                not have, or no rank has a profile.
        """
        from tracelink._time.summarize import answers_of

        return answers_of(self._with_all_steps, questions, self._engine)

    def diff(
        self,
        after: Job | EventGraph | Paths,
        *,
        gates: Sequence[str] = (),
        anyway: bool = False,
        run: int | None = None,
    ) -> Comparison:
        """Compares this run with a later one: how much longer a step takes, and what takes the time.

        If both runs have logs of torch.compile, it also compares what was compiled, and how long that took.

        Args:
            after: The later run: a job, a graph, or paths, which are read with the options of this job.
            gates: Limits such as `step_time > +5%` or `aten::mm > +2ms`, or a single one; see `Comparison.gates`.
            anyway: Decide the gates also if the runs are not comparable.
            run: If the compile logs of this run are of several starts of the job, the one to compare: 1 is the first.

        Returns:
            The change of the step with its causes, whether the runs can be compared, and what became of the gates.

        Raises:
            UsageError: An argument is invalid, a run has none of the steps, or a gate is for something that neither run
                has.
            UnreadableError: No source of a run can be read, it has no breakdown, or its ranks have no step in common.
        """
        from tracelink._time.compare.compare import compare_runs, limits_of

        limits = limits_of(gates)
        later = after if isinstance(after, Job) else Job(after, **self._options)
        steps = self._reading.selection.steps
        return compare_runs(self._run, later._run, limits=limits, anyway=anyway, steps=steps, start=run)

    def diagnose(self, *, before: Paths = (), hung: bool = False) -> Diagnosis:
        """Finds out why the job hangs, from flight-recorder dumps: which rank, in which collective, and why.

        Args:
            before: Paths of earlier dumps of the same job: ranks that recorded nothing since then are stuck.
            hung: The job is known to hang: what is in flight is a problem.

        Returns:
            The diagnosis: problems, the worst first, and what each rank was last doing.

        Raises:
            UsageError: A path does not exist, or a part of the job is selected.
            UnreadableError: No source can be read.
        """
        from tracelink._hang.examine import examine

        return examine(self._files, before=before, hung=hung, **self._options).diagnosis

    def compile(self, *, run: int | None = None) -> CompileReport:
        """Reads the logs of torch.compile (TORCH_TRACE=DIR): what was compiled, why, at what cost, and what failed.

        Args:
            run: If there are logs of several runs, the one to read: 1 is the first one. By default all are read, and
                ranks are compared within each.

        Returns:
            Tables of compilations, graph breaks, failures, open work, differences between ranks, and caches.

        Raises:
            UsageError: There is no such run, or a part of the job is selected.
            UnreadableError: There is no compile log that can be read.

        Example:
            job.compile().table("compiles").to_polars()
        """
        from tracelink._compile.reading import read

        check_whole(self._options, "compile logs of all ranks are compared")
        return read(self._sources, self._engine, run=run).report

    def inspect(self) -> Inspection:
        """Returns what the inputs are, without making one job of them.

        Returns:
            The sources with format, rank, host, time and size, what Chakra traces contain, and findings. A rank that
            two files claim is a finding here, not an error.

        Raises:
            UsageError: A part of the job is selected.
            UnreadableError: No source can be read.
        """
        from tracelink._api.inspection import inspect_sources

        check_whole(self._options, WHOLE_SOURCES)
        return inspect_sources(self._sources, self._engine)

    def validate(
        self,
        *,
        groups: str | os.PathLike[str] | None = None,
        variant: str | None = None,
        limit: int | None = 100,
    ) -> Validation:
        """Checks whether simulators can load `.et` files, and whether the files of all ranks fit together.

        Args:
            groups: The file of communicator groups; by default the one next to the traces, else the groups that the
                traces contain.
            variant: "full" or "astra-sim"; by default what each file records, else "astra-sim". With "full", what only
                ASTRA-sim cannot run is a warning.
            limit: How many violations of each rule and rank are listed; None for all. All are counted.

        Returns:
            The files that were checked, violations and warnings.

        Raises:
            UsageError: An argument is invalid, or a part of the job is selected.
            UnreadableError: No file can be read.
        """
        from tracelink.converters.chakra.validation.validate import validate

        check_whole(self._options, "files are checked as they are")
        return validate(self._files, groups=groups, variant=variant, limit=limit, **self._options)

    def query(
        self,
        sql: str = "",
        *,
        name: str = "",
        parameters: Mapping[str, Value] | None = None,
        arguments: bool = False,
        memory: int | None = None,
    ) -> QueryResult:
        """Runs SQL on the tables of the job; docs/sql.md describes these.

        Traces are written to a temporary dataset by the first query; a DuckDB file or a dataset is asked as it is.

        Args:
            sql: One statement that selects, in the SQL of DuckDB. It can read the tables of the job, and nothing else.
            name: A query that comes with tracelink, such as "top-kernels", in place of `sql`.
            parameters: Values of the parameters `$name` of the statement or the query.
            arguments: Whether the arguments of events are tables, too.
            memory: Bytes of memory that the query can use before it writes temporary files; by default 80 % of all.

        Raises:
            UsageError: The statement is invalid, or duckdb is not installed.
            UnreadableError: No source can be read.

        Example:
            job.query("SELECT name, count(*) FROM events GROUP BY name").to_polars()
        """
        with self.open_query(
            sql, name=name, parameters=parameters, arguments=arguments, memory=memory
        ) as rows:
            return rows.table()

    @contextmanager
    def open_query(
        self,
        sql: str = "",
        *,
        name: str = "",
        parameters: Mapping[str, Value] | None = None,
        arguments: bool = False,
        memory: int | None = None,
        cells: Cells | None = None,
    ) -> Iterator[QueryRows]:
        """Runs SQL as `query` does; the rows are found while they are iterated, in Arrow batches.

        `cells` is what the rows are made of: by default values of Arrow of any type.
        """
        from tracelink._sql.session import Cells, open_query

        with open_query(
            self._tables,
            sql,
            name=name,
            parameters=parameters,
            arguments=arguments,
            memory=memory,
            cells=cells or Cells.VALUES,
        ) as rows:
            yield rows

    def merge(
        self,
        output: str | os.PathLike[str] | None = None,
        *,
        to: str | None = None,
        options: Mapping[str, str] | None = None,
        depth: int | None = None,
        limit: int | None = None,
        on_forecast: OnForecast | None = None,
        resume: bool = False,
    ) -> Merged:
        """Writes the job, with few ranks in memory at a time.

        Args:
            output: The file, or the prefix or directory for formats with a file for each rank; `-` is standard output.
                By default `merged` with the suffix of the format.
            to: The format, such as "perfetto", "chakra" or "chakra-json"; by default the one that the output's name
                means, else "perfetto-json".
            options: Options of the writer by name, such as {"variant": "astra-sim"} of chakra.
            depth: The levels of nesting of a drawing; deeper nodes become part of the box around them.
            limit: The most nodes of a drawing; by default 2000, and all in .graphml.
            on_forecast: Is called with a forecast of the size before a large timeline is written.
            resume: Whether finished ranks are kept in the folder `OUTPUT.resume` until the output is complete: after an
                interruption, the same call goes on with them.

        Returns:
            The files that were written, how events were linked, and the findings of reading and writing.

        Raises:
            UsageError: The format, an option or the output is invalid.
        """
        from tracelink._api.outputs import merge_inputs

        path = None if output is None else os.fspath(output)
        job = self._linked if self._recorded and not resume else None
        return merge_inputs(
            lambda: self._reading,
            path,
            to,
            options,
            on_forecast,
            depth=depth,
            limit=limit,
            resume=resume,
            job=job,
        )

    # How it is read

    @property
    def _engine(self) -> Engine:
        return self._reading.engine

    @cached_property
    def _linked(self) -> LinkedJob:
        return self._read(self._reading)

    @cached_property
    def _with_all_steps(self) -> LinkedJob:
        """The job for answers on time, which take the steps; raises `UsageError` if kinds of events are selected."""
        chosen = self._reading.selection
        if chosen.only is not None:
            raise UsageError(
                "there is no only here: time is divided among events of all kinds", advice="Leave out only."
            )
        return self._linked if chosen.steps is None else self._read(self._reading.with_all_steps())

    def _read(self, reading: Reading) -> LinkedJob:
        recorded = next((one for one in self._recorded if one.has(reading.wanted)), None)
        if recorded is None:
            recorded = record(reading)
            self._recorded.append(recorded)
        return read_job(reading, recorded=recorded)

    @cached_property
    def _tables(self) -> Tables:
        from tracelink._sql.session import Tables

        return Tables(self._reading, lambda: self._linked)

    @property
    def _files(self) -> Paths:
        """The paths of the inputs; raises `UsageError` if there is only a graph."""
        if isinstance(self._given, EventGraph):
            raise UsageError("a graph in memory has no files", advice="Give the paths of the traces.")
        return self._given

    @property
    def _sources(self) -> Discovery:
        """The inputs; raises as `_files` does."""
        return self._reading.discovery if self._files is not None else Discovery()

    @property
    def _run(self) -> Run:
        """The job as one of two runs that are compared."""
        from tracelink._time.compare.compare import MOST_PATHS, Run

        sources = None if isinstance(self._given, EventGraph) else self._reading.discovery
        paths = self._reading.discovery.paths
        called = ", ".join(paths[:MOST_PATHS]) + (", …" if len(paths) > MOST_PATHS else "")
        return Run(self._alone, self._engine, sources, called)

    def _alone(self) -> LinkedJob:
        try:
            return self._with_all_steps
        except RankConflictError as conflict:
            conflict.advice = (
                "Name the folder of one job, with one file of each format for each rank, and rename files whose names "
                "have another rank."
            )
            raise

    def __repr__(self) -> str:
        if "_linked" in self.__dict__:
            return repr(self._linked)
        return f"<Job: {counted(len(self._reading.discovery.sources), 'source')}, not read yet>"

    def _repr_html_(self) -> str:
        return self._linked._repr_html_()


_READ = ("_linked", "_with_all_steps", "graph", "_tables")
"""What a job keeps of its inputs once it has read them."""


def clocks_of(job: LinkedJob, options: ReadOptions) -> Clocks:
    """The clocks of a job that was read with these options."""
    clock = options.get("clock", ClockMode.HOST)
    mode = clock.mode if isinstance(clock, Clocks) else os.fspath(clock)
    return Clocks.of((rank.clock for rank in job.ranks), job.findings, mode)
