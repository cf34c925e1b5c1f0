"""Stacks as text next to dumps: what `py-spy dump --pid PID` prints, also with --native, and what faulthandler writes.

One process in a file, several, or a section for each rank as torch's debug server writes them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain

from msgspec import Struct, field
from msgspec.structs import replace

from tracelink._io.sources import Source
from tracelink._model.errors import UnreadableError
from tracelink._model.findings import Finding, UnknownRank
from tracelink._model.records import Frame, compiler_frame
from tracelink._model.witnesses import FoldedStack, Program, Stack

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


def stacks_among(sources: Iterable[Source]) -> Stacks:
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
