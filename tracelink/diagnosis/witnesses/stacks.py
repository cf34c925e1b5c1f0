"""Stacks as text next to dumps: what `py-spy dump --pid PID` prints, also with --native, and what faulthandler writes.

One process in a file, several, or a section for each rank as torch's debug server writes them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct, field

from tracelink.io.sources import Source
from tracelink.model.errors import UnreadableError
from tracelink.model.findings import Finding, UnknownRank
from tracelink.model.records import Frame, compiler_frame
from tracelink.model.witnesses import FoldedStack, Program, Stack

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
    pid: str
    """Of its process, if the file has it."""
    rank: int | None = None
    """In the command line of its process."""
    current: bool = False
    frames: list[Frame] = field(default_factory=list)


class Stacks(Struct, frozen=True):
    """The stacks of ranks, and the files in which stacks are."""

    by_rank: Mapping[int, Stack]
    folded: Sequence[FoldedStack]
    recognised: Collection[str]
    findings: Sequence[Finding]


class _Process(Struct, frozen=True):
    """The main thread of one process, in the newest stacks of a file."""

    rank: int | None
    label: str
    thread: _Thread
    source: str


def stacks_among(sources: Iterable[Source]) -> Stacks:
    """The stacks of main threads in these files; of several files of a rank the last one by name."""
    by_rank: dict[int, _Process] = {}
    others: list[_Process] = []
    recognised: list[str] = []
    findings: list[Finding] = []
    for source in sorted(sources, key=lambda source: source.path):
        processes = _processes_of(source)
        if not processes:
            continue
        recognised.append(source.path)
        if all(process.rank is None for process in processes):
            findings.append(_without_rank(source.path))
        by_rank.update({process.rank: process for process in processes if process.rank is not None})
        others += [process for process in processes if process.rank is None]
    stacks = {rank: _stack(rank, process) for rank, process in by_rank.items()}
    return Stacks(stacks, _folded([*by_rank.values(), *others]), recognised, findings)


def _stack(rank: int, process: _Process) -> Stack:
    thread = process.thread
    frames = tuple(thread.frames)
    in_compiler = compiler_frame(frames) is not None
    return Stack(rank, thread.program, thread.name or thread.identity, frames, in_compiler, process.source)


def _folded(processes: Sequence[_Process]) -> list[FoldedStack]:
    """Equal stacks once, those of the fewest processes first."""
    alike: dict[tuple[Program, tuple[Frame, ...]], list[_Process]] = {}
    for process in processes:
        alike.setdefault((process.thread.program, tuple(process.thread.frames)), []).append(process)
    folded = [
        FoldedStack(
            tuple(sorted(process.rank for process in same if process.rank is not None)),
            tuple(sorted(process.label for process in same if process.rank is None)),
            program,
            frames,
            compiler_frame(frames) is not None,
            tuple(dict.fromkeys(process.source for process in same)),
        )
        for (program, frames), same in alike.items()
    ]
    return sorted(folded, key=lambda one: (len(one.ranks) + len(one.processes), one.ranks, one.processes))


def _without_rank(path: str) -> Finding:
    what = "the file contains stacks, and neither its name nor that of its folder contains a rank"
    return UnknownRank(path, what).finding()


def _processes_of(source: Source) -> list[_Process]:
    """The processes whose stacks a file contains; none if it is another file."""
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
    found: list[_Process] = []
    for of_section, part in _sections(text):
        found += _processes_in(part, rank if of_section is None else of_section, source.path)
    return found


def _sections(text: str) -> list[tuple[int | None, str]]:
    """The parts of a file of torch's debug server, with their ranks; else the whole text."""
    heads = list(_SECTION.finditer(text))
    if not heads:
        return [(None, text)]
    ends = [head.start() for head in heads[1:]] + [len(text)]
    return [(int(head[1]), text[head.end() : end]) for head, end in zip(heads, ends, strict=True)]


def _processes_in(text: str, rank: int | None, path: str) -> list[_Process]:
    """Of a known rank the first process, which starts the others; else all of them."""
    threads = [thread for thread in _threads(text) if thread.frames]
    pids = list(dict.fromkeys(thread.pid for thread in threads))
    if rank is not None or len(pids) < 2:
        main = _main_of(threads)
        label = f"pid {main.pid}" if main and main.pid else path.rpartition("/")[2]
        known = main.rank if main and rank is None else rank
        return [_Process(known, label, main, path)] if main else []
    mains = [_main_of([thread for thread in threads if thread.pid == pid]) for pid in pids]
    return [_Process(main.rank, f"pid {main.pid}", main, path) for main in mains if main]


def main_thread(text: str) -> _Thread | None:
    """The main thread of the newest stacks in a text; None if there is no stack."""
    return _main_of([thread for thread in _threads(text) if thread.frames])


def _main_of(threads: Sequence[_Thread]) -> _Thread | None:
    """The main thread among those of the first process; None if there are none."""
    if not threads:
        return None
    own = [thread for thread in threads if thread.pid == threads[0].pid]
    return next(
        (
            thread
            for chosen in (_is_main, _ends_like_main, _is_current)
            for thread in own[::-1]
            if chosen(thread)
        ),
        own[-1],
    )


def _is_main(thread: _Thread) -> bool:
    return thread.name == MAIN or (bool(thread.pid) and thread.identity == thread.pid)


def _ends_like_main(thread: _Thread) -> bool:
    return thread.frames[-1].name in OUTERMOST


def _is_current(thread: _Thread) -> bool:
    return thread.current


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
            threads.append(_Thread("faulthandler", match["id"], match["name"] or "", "", None, current))
        elif threads and (frame := _frame_in(line, threads[-1].program)):
            threads[-1].frames.append(frame)
    return threads


def _frame_in(line: str, program: Program) -> Frame | None:
    if program == "faulthandler":
        match = _FAULT_FRAME.fullmatch(line)
        return Frame(match["name"], match["file"], int(match["line"])) if match else None
    name, _, place = line.removeprefix(INDENT).removesuffix(")").rpartition(" (")
    if not (line.startswith(INDENT) and line.endswith(")") and name.strip() == name and name and place):
        return None
    match = _LINE.fullmatch(place)
    return Frame(name, match["file"], int(match["line"])) if match else Frame(name, place, 0)
