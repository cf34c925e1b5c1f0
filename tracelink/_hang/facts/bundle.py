"""Files that are no traces: logs, stacks, answers of NCCL's monitor, and what is not used; found by content.

Only the first bytes of a file are read to recognise it; logs are searched in blocks.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

import tracelink.plugins as plugins
from tracelink._hang.facts.recordings import batches_of, find_compile_logs, find_profiles
from tracelink._hang.facts.watchdog import assign_ranks, keep_last_hang
from tracelink._io.engine import Engine
from tracelink._io.sources import Source
from tracelink._join.reading import Task
from tracelink._model.errors import UnreadableError
from tracelink._model.findings import Finding, Severity, UnknownRank
from tracelink._model.records import Frame, compiler_frame
from tracelink._model.witnesses import (
    MOST_REPORTS,
    Conflict,
    FoldedStack,
    MonitorAnswer,
    Program,
    RankReport,
    Sign,
    Stack,
    Use,
    WatchdogLog,
    Witnesses,
)
from tracelink.plugins import Content

CALLS = re.compile(
    r"torch/distributed/(?:distributed_c10d|c10d_logger|_functional_collectives|nn/functional)\.py$"
)
"""Files of torch in which a program is while it communicates."""
NATIVE_CALLS = re.compile(r"c10d::|ProcessGroup|^p?nccl[A-Z]|gloo::")


def is_in_call(frame: Frame) -> bool:
    """True if a program that has this frame in its stack communicates."""
    return CALLS.search(frame.filename) is not None or NATIVE_CALLS.search(frame.name) is not None


WATCHDOG_LOG = "watchdog-log"
NCCL_RAS = "nccl-ras"
SHORTEST_TEXT = 4096
"""First bytes of a file that are looked at to tell text from anything else."""
CONTROL = re.compile(rb"[\x00-\x06\x0e-\x1a\x1c-\x1f]")
LOG_NAME = re.compile(
    r"(?:\.(?:log|out|err|txt)(?:\.\d+)?(?:\.gz)?|(?:^|[._-])(?:stdout|stderr|log)(?:[._-].*)?)$"
)
"""Names of texts that count as logs even without a watchdog line."""
BATCH_BYTES = 32 << 20
"""How much of logs one worker searches before it returns."""
MOST_SKIPPED = 3
"""More files of no known format are one finding."""
BINARY = "binary files"
OTHER_TEXT = "other texts"
EMPTY = "empty files"


class Bundle(Struct):
    """What the files that are no traces contain."""

    reports: Sequence[RankReport] = ()
    ranks_with_logs: Sequence[int] = ()
    logs: Sequence[str] = ()
    """Paths of logs with watchdog lines."""
    quiet: Sequence[str] = ()
    """Paths of logs without any."""
    statuses: Sequence[MonitorAnswer] = ()
    stacks: Stacks = field(default_factory=lambda: Stacks({}, (), (), ()))
    unused: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    findings: list[Finding] = field(default_factory=list)

    @property
    def answers(self) -> list[str]:
        """Paths of answers of NCCL's monitor."""
        return list(dict.fromkeys(status.source for status in self.statuses))

    @property
    def recognised(self) -> set[str]:
        """The files that were used, and logs to which their rank wrote nothing."""
        empty_logs = [path for path in self.unused.get(EMPTY, ()) if LOG_NAME.search(path)]
        return {*self.logs, *self.quiet, *empty_logs, *self.stacks.recognised, *self.answers}

    def failed(self) -> frozenset[tuple[int, int | None]]:
        """Ranks whose logs show that a call of theirs failed, and its sequence number if the log names it."""
        signs = (Sign.TIMED_OUT, Sign.GAVE_UP, Sign.LOST)
        return frozenset(
            (one.rank, one.sequence) for one in self.reports if one.rank is not None and one.sign in signs
        )

    def witnesses(self, conflicts: Sequence[Conflict], uses: Sequence[Use]) -> Witnesses:
        """What the files show, where they contradict each other, and `uses` of others."""
        used = (
            *uses,
            *_uses("logs with watchdog lines", self.logs, "timeouts, last collectives"),
            *_uses("logs without watchdog lines", self.quiet, "searched"),
            *_uses("files with stacks", list(self.stacks.recognised), "what each rank does"),
            *_uses("answers of NCCL's monitor", self.answers, "counts of each communicator"),
            *(use for kind, paths in sorted(self.unused.items()) for use in _uses(kind, paths, "")),
        )
        return Witnesses(self.reports[:MOST_REPORTS], self.stacks.folded, self.statuses, conflicts, used)


def _uses(what: str, paths: Sequence[str], purpose: str) -> list[Use]:
    return [Use(what, len(paths), purpose, paths[0])] if paths else []


def uses_of(tasks: Sequence[Task], dumps: Sequence[str]) -> list[Use]:
    """What files that readers read were used for: without dumps, nothing shows which calls to look for in them."""

    def of(what: str, found: Sequence[Task], purpose: str) -> list[Use]:
        return _uses(what, [task.source.path for task in found], purpose if dumps else "")

    return [
        *_uses("dumps", dumps, "the diagnosis"),
        *of("profiles and execution traces", find_profiles(tasks), "calls of the ranks of a problem"),
        *of("compile logs", find_compile_logs(tasks), "compilations of culprits"),
        *of(
            "metrics",
            [task for task in tasks if task.content is Content.METRICS],
            "GPUs that run differently",
        ),
    ]


def bundle_of(sources: Sequence[Source], engine: Engine, also: Sequence[Source] = ()) -> Bundle:
    """What these files contain, which no reader of traces reads; `also` are texts that another reader uses."""
    bundle = Bundle()
    by_kind: dict[str, list[Source]] = defaultdict(list)
    for source in sources:
        by_kind[_kind(source)].append(source)
    texts = by_kind.pop(WATCHDOG_LOG, [])
    for source in by_kind.pop(NCCL_RAS, []):
        read = _read_by(NCCL_RAS, "read_answers", source, engine)
        if isinstance(read, Finding):
            bundle.findings.append(read)
        else:
            bundle.statuses = [*bundle.statuses, *read]
    for kind, others in by_kind.items():
        bundle.unused[kind] = [source.path for source in others]
    bundle.stacks = find_stacks(texts)
    bundle.findings += bundle.stacks.findings
    _add_logs([*texts, *also], engine, bundle, {source.path for source in also})
    return bundle


def _kind(source: Source) -> str:
    """The format of a file, or what it is; each text may be a log."""
    if source.format:
        return BINARY
    try:
        head = source.head()
    except (UnreadableError, OSError):
        return BINARY
    if not head:
        return EMPTY
    formats = (known.name for known in plugins.recognised(head, source.name, NCCL_RAS))
    binary = CONTROL.search(head[:SHORTEST_TEXT])
    known = (name for name in formats if name in (NCCL_RAS, WATCHDOG_LOG))
    return next(known, BINARY if binary else WATCHDOG_LOG)


def _add_logs(texts: Sequence[Source], engine: Engine, bundle: Bundle, also: Collection[str]) -> None:
    """Searches all texts, also those with stacks: faulthandler writes into logs."""
    logs: list[tuple[Source, WatchdogLog]] = []
    for source, log in zip(texts, _searched(texts, engine), strict=True):
        if isinstance(log, Finding):
            bundle.findings.append(log)
            continue
        bundle.findings += log.findings
        other = {*also, *bundle.stacks.recognised}
        if log.reports or (source.path not in other and LOG_NAME.search(source.name)):
            logs.append((source, log))
        elif source.path not in other:
            bundle.unused[OTHER_TEXT].append(source.path)
    bundle.logs = sorted({source.path for source, log in logs if log.reports})
    bundle.quiet = [source.path for source, log in logs if not log.reports]
    if bundle.logs:
        reports, bundle.ranks_with_logs = assign_ranks(logs, bundle.findings)
        bundle.reports = keep_last_hang(reports, bundle.findings)


def _searched(texts: Sequence[Source], engine: Engine) -> list[WatchdogLog | Finding]:
    """What each text contains, or why it cannot be read."""
    if not texts:
        return []
    batches = batches_of(texts, lambda source: source.bytes, BATCH_BYTES)
    outer, inner = engine.split(len(batches))

    def work(batch: Sequence[Source]) -> list[WatchdogLog | Finding]:
        return [_read_by(WATCHDOG_LOG, "read_reports", source, inner) for source in batch]

    return [log for logs in outer.map(work, batches, shared=texts) for log in logs]


def _read_by(name: str, method: str, source: Source, engine: Engine) -> Any | Finding:
    try:
        return plugins.isolated(name, "reader", lambda: getattr(plugins.reader(name), method)(source, engine))
    except (UnreadableError, OSError) as error:
        message = str(error) if source.path in str(error) else f"{source.path}: {error}"
        return Finding(Severity.WARNING, "unreadable", message, source=source.path)


def fold_skips(findings: Sequence[Finding]) -> list[Finding]:
    """The findings, where those on many files of no known format are one."""
    skipped = [finding for finding in findings if finding.reason == "skipped" and finding.source]
    if len(skipped) <= MOST_SKIPPED:
        return list(findings)
    message = f"{len(skipped)} files were skipped: no reader recognises them."
    one = Finding(Severity.INFO, "skipped", message, len(skipped), example=skipped[0].source)
    return [*(finding for finding in findings if finding not in skipped), one]


LARGEST = 16 << 20
"""Bytes of a file with stacks."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_PROCESS = re.compile(r"Process (?P<pid>\d{1,9}): (?P<command>.*)")
_RANK_OPTION = re.compile(r"(?:^|\s)--?(?:global[-_])?rank[= ](\d{1,6})(?!\d)")
_SECTION = re.compile(r"^=== Rank (\d{1,6}): .{0,300} ===[ \t]*\r?$", re.MULTILINE)
"""How torch's debug server begins what each rank answered."""
_PY_SPY_THREAD = re.compile(
    r'Thread (?P<id>0x[0-9A-Fa-f]+|\d+) \((?:idle|active)[^)]*\)(?:: "(?P<name>.*)")?'
)
INDENT = "    "
"""What py-spy puts in front of a frame, `step (train.py:30)`; a pattern would search long lines in quadratic time."""
_LINE = re.compile(r"(?P<file>.+):(?P<line>\d{1,9})")
_FAULT_THREAD = re.compile(
    r"(?P<current>Current thread|Thread) (?P<id>0x[0-9A-Fa-f]+)(?: \[(?P<name>[^\]]*)\])? \(most recent call first\):"
)
_FAULT_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d{1,9}) in (?P<name>.+)')
_ANY_THREAD = re.compile(
    rb"^(?:\x1b\[[0-9;]*m)*(?:Thread (?:0x[0-9A-Fa-f]+|\d+) \((?:idle|active)"
    rb"|(?:Current thread|Thread) 0x[0-9A-Fa-f]+[^\n]{0,80} \(most recent call first\):)",
    re.MULTILINE,
)
MAIN = "MainThread"
OUTERMOST = frozenset({"<module>", "_run_module_as_main", "_run_code"})
"""Functions at the bottom of the stack of a main thread."""


class _Thread(Struct):
    program: Program
    identity: str
    name: str
    pid: str = ""
    """Of its process, if the file has it."""
    rank: int | None = None
    """In the command line of its process, else as the file is named."""
    current: bool = False
    frames: list[Frame] = field(default_factory=list)
    source: str = ""

    @property
    def process(self) -> str:
        """The process of a thread without a rank."""
        return f"pid {self.pid}" if self.pid else self.source.rpartition("/")[2]


class Stacks(Struct, frozen=True):
    """The stacks of ranks, and the files in which stacks are."""

    by_rank: Mapping[int, Stack]
    folded: Sequence[FoldedStack]
    recognised: Collection[str]
    findings: Sequence[Finding]
    unmoved: Sequence[int] = ()
    """Ranks whose last two files have the same stack."""


def find_stacks(sources: Iterable[Source]) -> Stacks:
    """The stacks of main threads in these files; of several files of a rank the last one by name."""
    mains: dict[int | tuple[str, str], _Thread] = {}
    recognised: list[str] = []
    findings: list[Finding] = []
    unmoved: dict[int, bool] = {}
    for source in sorted(sources, key=lambda source: source.path):
        found = _main_threads(source)
        before = {main.rank: mains[main.rank].frames for main in found if main.rank in mains}
        unmoved |= {main.rank: before[main.rank] == main.frames for main in found if main.rank in before}
        mains |= {main.rank if main.rank is not None else (main.source, main.pid): main for main in found}
        if found:
            recognised.append(source.path)
        if found and all(main.rank is None for main in found):
            what = "the file contains stacks, and neither its name nor that of its folder contains a rank"
            findings.append(UnknownRank(source.path, what).finding())
    by_rank = {rank: _stack(rank, main) for rank, main in mains.items() if isinstance(rank, int)}
    same = [rank for rank, known in unmoved.items() if known]
    return Stacks(by_rank, _folded([*mains.values()]), recognised, findings, same)


def _stack(rank: int, main: _Thread) -> Stack:
    in_compiler = compiler_frame(main.frames) is not None
    return Stack(rank, main.program, main.name or main.identity, tuple(main.frames), in_compiler, main.source)


def _folded(mains: Sequence[_Thread]) -> list[FoldedStack]:
    """Equal stacks once, those of the fewest processes first."""
    alike: dict[tuple[Program, tuple[Frame, ...]], list[_Thread]] = defaultdict(list)
    for main in mains:
        alike[main.program, tuple(main.frames)].append(main)
    folded = [
        FoldedStack(
            tuple(sorted(main.rank for main in same if main.rank is not None)),
            tuple(sorted(main.process for main in same if main.rank is None)),
            program,
            frames,
            compiler_frame(frames) is not None,
            tuple(dict.fromkeys(main.source for main in same)),
        )
        for (program, frames), same in alike.items()
    ]
    return sorted(folded, key=lambda one: (len(one.ranks) + len(one.processes), one.ranks, one.processes))


def _main_threads(source: Source) -> list[_Thread]:
    """The main threads of the processes whose stacks a file contains; none if it is another file."""
    if source.format or source.bytes > LARGEST:
        return []
    try:
        if not _ANY_THREAD.search(source.head()):
            return []
        with source.open() as stream:
            text = stream.read_all(LARGEST).decode("utf-8", "replace")
    except (UnreadableError, OSError):
        return []
    hint = source.rank_hint.rank if source.rank_hint else None
    rank = hint if source.rank is None else source.rank
    found = [main for section, part in _sections(text, rank) for main in _mains_in(part, section)]
    return [replace(main, source=source.path) for main in found]


def _sections(text: str, rank: int | None) -> list[tuple[int | None, str]]:
    """The parts of a file of torch's debug server, with their ranks; else the whole text."""
    heads = list(_SECTION.finditer(text))
    if not heads:
        return [(rank, text)]
    ends = [head.start() for head in heads[1:]] + [len(text)]
    return [(int(head[1]), text[head.end() : end]) for head, end in zip(heads, ends, strict=True)]


def _mains_in(text: str, rank: int | None) -> list[_Thread]:
    """Of a known rank that of the first process, which starts the others; else those of all of them."""
    threads = _threads(text)
    if rank is not None:
        main = _main_of(threads)
        return [replace(main, rank=rank)] if main else []
    pids = dict.fromkeys(thread.pid for thread in threads)
    mains = (_main_of([thread for thread in threads if thread.pid == pid]) for pid in pids)
    return [main for main in mains if main]


def main_thread(text: str) -> _Thread | None:
    """The main thread of the newest stacks in a text; None if there is no stack."""
    return _main_of(_threads(text))


def _main_of(threads: Sequence[_Thread]) -> _Thread | None:
    """The main thread among those of the first process, by its name or its outermost call; None if there are none."""
    own = [thread for thread in threads[::-1] if thread.pid == threads[0].pid]
    named = (
        thread for thread in own if thread.name == MAIN or (thread.pid and thread.identity == thread.pid)
    )
    alike = (thread for thread in own if thread.frames[-1].name in OUTERMOST)
    current = (thread for thread in own if thread.current)
    return next(chain(named, alike, current, own), None)


def _threads(text: str) -> list[_Thread]:
    threads: list[_Thread] = []
    pid, rank = "", None
    for line in _COLOUR.sub("", text).splitlines():
        if match := _PROCESS.match(line):
            option = _RANK_OPTION.search(match["command"])
            pid, rank = match["pid"], int(option[1]) if option else None
        elif match := _PY_SPY_THREAD.match(line):
            threads.append(_Thread("py-spy", match["id"], match["name"] or "", pid, rank))
        elif match := _FAULT_THREAD.match(line):
            current = match["current"].startswith("Current")
            threads.append(_Thread("faulthandler", match["id"], match["name"] or "", current=current))
        elif threads and (frame := _frame_in(line, threads[-1].program)):
            threads[-1].frames.append(frame)
    return [thread for thread in threads if thread.frames]


def _frame_in(line: str, program: Program) -> Frame | None:
    if program == "faulthandler":
        match = _FAULT_FRAME.fullmatch(line)
        return Frame(match["name"], match["file"], int(match["line"])) if match else None
    name, _, place = line.removeprefix(INDENT).removesuffix(")").rpartition(" (")
    if not (line.startswith(INDENT) and line.endswith(")") and name.strip() == name and name and place):
        return None
    match = _LINE.fullmatch(place)
    return Frame(name, match["file"], int(match["line"])) if match else Frame(name, place, 0)
