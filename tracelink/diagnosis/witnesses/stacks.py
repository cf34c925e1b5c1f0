"""Stacks as text next to dumps: what `py-spy dump --pid PID` prints, and what faulthandler writes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tracelink.diagnosis.witnesses.model import Stack
from tracelink.io.sources import Source
from tracelink.model.errors import Finding, Severity, UnreadableError
from tracelink.model.records import Frame, compiler_frame

LARGEST = 16 << 20
"""Bytes of a file with stacks."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_PROCESS = re.compile(r"Process (?P<pid>\d+): ")
_PY_SPY_THREAD = re.compile(
    r'Thread (?P<id>0x[0-9A-Fa-f]+|\d+) \((?:idle|active)[^)]*\)(?:: "(?P<name>.*)")?'
)
_PY_SPY_FRAME = re.compile(r" {4}(?P<name>\S.*) \((?P<file>.+?)(?::(?P<line>\d{1,9}))?\)")
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


@dataclass(slots=True)
class _Thread:
    program: str
    identity: str
    name: str
    pid: str
    """Of its process, if the file has it."""
    current: bool = False
    frames: list[Frame] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Stacks:
    """The stacks of ranks, and the files in which stacks are."""

    by_rank: Mapping[int, Stack]
    recognised: Collection[str]
    findings: Sequence[Finding]


def stacks_among(sources: Iterable[Source]) -> Stacks:
    """The stacks of main threads in these files; of several files of a rank the last one by name."""
    by_rank: dict[int, Stack] = {}
    recognised: list[str] = []
    findings: list[Finding] = []
    for source in sorted(sources, key=lambda source: source.path):
        thread = _main_thread_of(source)
        if thread is None:
            continue
        recognised.append(source.path)
        hint = source.rank_hint.rank if source.rank_hint else None
        rank = hint if source.rank is None else source.rank
        if rank is None:
            findings.append(_without_rank(source.path))
            continue
        frames = tuple(thread.frames)
        by_rank[rank] = Stack(
            rank,
            thread.program,
            thread.name or thread.identity,
            frames,
            compiler_frame(frames) is not None,
            source.path,
        )
    return Stacks(by_rank, recognised, findings)


def _without_rank(path: str) -> Finding:
    message = (
        f"{path}: the file contains stacks, and neither its name nor that of its folder contains a rank. "
        f"Give it with --rank {path}=N."
    )
    return Finding(Severity.WARNING, "unknown_rank", message, source=path)


def _main_thread_of(source: Source) -> _Thread | None:
    if source.format or source.bytes > LARGEST:
        return None
    try:
        if not _ANY_THREAD.search(source.head()):
            return None
        with source.open() as stream:
            text = stream.read_all(LARGEST).decode("utf-8", "replace")
    except (UnreadableError, OSError):
        return None
    return main_thread(text)


def main_thread(text: str) -> _Thread | None:
    """The main thread of the newest stacks in a text; None if there is no stack."""
    threads = [thread for thread in _threads(text) if thread.frames]
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
    pid = ""
    for line in _COLOUR.sub("", text).splitlines():
        if match := _PROCESS.match(line):
            pid = match["pid"]
        elif match := _PY_SPY_THREAD.match(line):
            threads.append(_Thread("py-spy", match["id"], match["name"] or "", pid))
        elif match := _FAULT_THREAD.match(line):
            current = match["current"].startswith("Current")
            threads.append(_Thread("faulthandler", match["id"], match["name"] or "", "", current))
        elif threads and (match := _frame_pattern(threads[-1]).fullmatch(line)):
            threads[-1].frames.append(Frame(match["name"], match["file"], int(match["line"] or 0)))
    return threads


def _frame_pattern(thread: _Thread) -> re.Pattern[str]:
    return _PY_SPY_FRAME if thread.program == "py-spy" else _FAULT_FRAME
